"""Write the same batches into two empty databases, by our statements and by MLflow's own store, and compare all rows.

Run by tests with the Python of one MLflow version: `compare_rows.py OURS THEIRS`, two tracking URIs. The last line of
its output is JSON: the rows that differ, by table, and how many rows each table has.
"""

from __future__ import annotations

import json
import random
import sys
from collections.abc import Iterator, Mapping
from typing import Any

import sqlalchemy
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import Event, ReadableSpan
from opentelemetry.sdk.util.instrumentation import InstrumentationScope
from opentelemetry.trace import Link, SpanContext, SpanKind, Status, StatusCode, TraceFlags

from otel_rollout_mlflow.database import connect_without_prepared_statements, make_engine
from otel_rollout_mlflow.sql_store import SqlStore
from otel_rollout_mlflow.store import Feedback
from otel_rollout_mlflow.tracking_uri import parse_tracking_uri

START_NS = 1_760_000_000_123_456_789
SECOND_NS = 1_000_000_000
TABLES = (
    "trace_info",
    "spans",
    "trace_tags",
    "trace_request_metadata",
    "trace_metrics",
    "span_metrics",
    "assessments",
)
NOW = {"assessments": ("last_updated_timestamp",)}

LLM = {"openinference.span.kind": "LLM", "gen_ai.operation.name": "chat"}
TOOL = {
    "openinference.span.kind": "TOOL",
    "gen_ai.operation.name": "execute_tool",
    "gen_ai.tool.name": "tool",
    "gen_ai.tool.type": "function",
}
USAGE = {"gen_ai.usage.input_tokens": 12, "gen_ai.usage.output_tokens": 3}
JSON_INPUT = {"input.mime_type": "application/json"}
CHAT = '{"messages":[{"role":"system","content":"Be brief."},{"role":"user","content":"Was ist 2+2? 語 😀"}]}'


class Trace:
    """The spans of one trace, with ids from a generator that is the same for both databases."""

    def __init__(self, generator: random.Random, number: int) -> None:
        self.generator = generator
        self.trace_id = generator.getrandbits(127) + 1
        self.tags = {
            "rollout.step": number % 3,
            "rollout.sample_index": f"prompt {number}" if number % 2 else number,
            "rollout.rollout_n": number,
            "rollout.validate": bool(number % 2),
            "rollout.experiment_name": 'exp "1"',
        }
        self.root_context = self.context()

    @property
    def mlflow_id(self) -> str:
        """The id of the trace in MLflow."""
        return f"tr-{self.trace_id:032x}"

    def context(self) -> SpanContext:
        """Return a new span's context."""
        return SpanContext(self.trace_id, self.generator.getrandbits(63) + 1, False, TraceFlags(1))

    def span(
        self, name: str, start: float, end: float, attributes: Mapping[str, Any], *, parent: Any = "root", **more: Any
    ) -> ReadableSpan:
        """Return a span; without a parent it is the root."""
        context = self.root_context if parent is None and "context" not in more else more.pop("context", self.context())
        return ReadableSpan(
            name=name,
            context=context,
            parent=self.root_context if parent == "root" else parent,
            resource=Resource({"service.name": "math"}),
            attributes={**self.tags, **attributes},
            kind=more.pop("kind", SpanKind.INTERNAL),
            start_time=START_NS + int(start * SECOND_NS),
            end_time=START_NS + int(end * SECOND_NS),
            instrumentation_scope=InstrumentationScope(more.pop("scope", "otel_rollout"), "1"),
            **more,
        )

    def root(self, **attributes: Any) -> ReadableSpan:
        """Return the root."""
        given = {
            "openinference.span.kind": "AGENT",
            "gen_ai.operation.name": "invoke_agent",
            "gen_ai.agent.name": "trajectory",
            "session.id": f"exp-1/{self.trace_id % 7}",
            "gen_ai.conversation.id": f"{self.trace_id:032x}",
            "metadata": '{"step":1}',
            "rollout.status": "completed",
            "input.value": '"What is 2+2?"',
            "output.value": '"4"',
            **JSON_INPUT,
            **attributes,
        }
        status = Status(StatusCode.ERROR, "it failed") if attributes.get("rollout.status") == "error" else None
        more = {} if status is None else {"status": status}
        return self.span("trajectory", 0, 10, given, parent=None, **more)


def batches() -> Iterator[list[ReadableSpan]]:
    """Return what is written, batch by batch: traces that come whole, in parts, again, out of order, from others."""
    generator = random.Random(1)
    traces = [Trace(generator, number) for number in range(12)]
    plain, parts, failed, chat, foreign, nested, odd, late, moved, links, wide, roots = traces

    whole = [
        plain.span(
            "generate", 1, 4, {**LLM, **USAGE, "input.value": CHAT, "output.value": '{"text":"4"}', **JSON_INPUT}
        ),
        plain.span("tool", 5, 6, {**TOOL, "input.value": '{"x":1.0}', **JSON_INPUT}),
        plain.root(**{"user.id": "anna"}),
    ]
    first = [parts.span("generate", n, n + 1, {**LLM, **USAGE, "input.value": CHAT}) for n in range(1, 4)]
    yield [*whole, *first]
    yield whole  # again, in a batch of its own
    yield [parts.span("generate", n, n + 1, {**LLM, **USAGE, "output.value": '"four"'}) for n in range(4, 6)]
    yield [parts.root(**{"input.value": CHAT, "output.value": '[{"role":"assistant","content":"4"}]'})]

    error = Event("exception", {"exception.type": "ValueError", "exception.message": "ü"}, START_NS + SECOND_NS)
    yield [
        failed.span(
            "tool", 1, 2, {"error.type": "ValueError"}, events=[error], status=Status(StatusCode.ERROR, "boom")
        ),
        failed.root(**{"rollout.status": "error", "input.value": None or '{"a":"' + "x" * 3000 + '"}'}),
        chat.span(
            "ask", 1, 2, {**LLM, "input.value": '[{"role":"user","content":"hi"}]', "output.value": '{"model":"m"}'}
        ),
        chat.root(**{"input.value": '[{"role":"user","content":"hi"},{"role":"user","content":"last"}]'}),
    ]
    openinference = {
        "openinference.span.kind": "LLM",
        "llm.model_name": "gpt-4o-mini",
        "llm.token_count.prompt": 100,
        "llm.token_count.completion": 20,
        "input.value": '{"messages":[{"role":"user","content":"hi"}]}',
        **JSON_INPUT,
    }
    priced = {**LLM, **USAGE, "gen_ai.request.model": "gpt-4o", "gen_ai.provider.name": "openai"}
    yield [
        foreign.span("completion", 1, 2, openinference, scope="openinference"),
        foreign.span("chat", 2, 3, {**priced, "gen_ai.usage.cache_read.input_tokens": 4}, scope="other"),
        foreign.span("old", 3, 4, {"gen_ai.system": "x", "llm.request.type": "chat"}, scope="traceloop"),
    ]
    message = Event("gen_ai.user.message", {"content": "hello"}, START_NS)
    yield [foreign.span("events", 4, 5, {"gen_ai.operation.name": "chat"}, events=[message], scope="other")]
    yield [foreign.span("more", 5, 6, priced, scope="other"), foreign.root()]

    outer = nested.context()
    inner = nested.span("inner", 2, 3, {**LLM, **USAGE}, parent=outer)
    yield [inner, nested.span("no usage", 2, 3, {}, parent=outer)]
    yield [nested.span("outer", 1, 4, {**LLM, "gen_ai.usage.input_tokens": 50}, context=outer), nested.root()]

    yield [
        odd.span(
            "texts", 1, 2, {"rollout.note": '{"looks":"like json"}', "rollout.more": '"quoted"', "rollout.n": "12"}
        ),
        odd.span("json text", 1, 2, {"input.value": '"{\\"a\\": 1}"', "output.value": '"\\"q\\""', **JSON_INPUT}),
        odd.span("values", 1, 2, {"rollout.list": (1, 2), "rollout.floats": (0.5, 1.0), "rollout.big": 2**62}),
        odd.span("plain", 1, 2, {"input.value": "not json", "input.mime_type": "text/plain"}),
        odd.span(
            "nul \x00 and \ud800", 1, 2, {"rollout.text": "a\x00b", "input.value": '{"t":"a\\u0000b"}', **JSON_INPUT}
        ),
        odd.span("wide", 1, 2, {"input.value": '{"i":123456789012345678901234567890}', **JSON_INPUT}),
        odd.span("no kind", 1, 2, {}),
        odd.span("other kind", 1, 2, {"openinference.span.kind": "GUARDRAIL"}),
        odd.span("unknown operation", 1, 2, {"gen_ai.operation.name": "response"}),
        odd.root(**{"session.id": '{"a": 1}', "user.id": "12", "input.value": '{"model":"m","input":[]}'}),
    ]

    yield [late.root()]
    yield [late.span("after the end", 11, 14, {**LLM, **USAGE})]
    yield [moved.span("first", 5, 6, {}), moved.span("second", 3, 12, {})]
    yield [moved.root()]
    link = Link(SpanContext(0xABC, 0xDEF, is_remote=True), {"reason": "retry"})
    yield [
        links.span("linked", 1, 2, {}, links=[link, Link(SpanContext(1, 2, is_remote=True))], kind=SpanKind.CLIENT),
        links.root(),
        *(wide.span(f"span {n}", n / 100, 1 + n / 100, {"rollout.i": n, **LLM, **USAGE}) for n in range(120)),
        wide.root(),
    ]
    yield [
        roots.root(),
        roots.span("second root", 1, 2, {"input.value": '"again"'}, parent=None, context=roots.context()),
    ]
    tagged = Trace(generator, 12)
    yield [tagged.root(**{"mlflow.traceTag.colour": "green"})]


def rewards() -> list[list[Feedback]]:
    """Return rewards: new ones, one that is older, and one that is newer."""
    generator = random.Random(1)
    ids = [Trace(generator, number).mlflow_id for number in range(12)]
    return [
        [Feedback(trace_id, number / 2, START_NS + number) for number, trace_id in enumerate(ids)],
        [Feedback(ids[0], 9.0, START_NS - 5), Feedback(ids[1], 7.0, START_NS + SECOND_NS)],
        [
            Feedback(ids[0], 0.5, START_NS, "format", rationale="the answer is in a box"),
            Feedback(ids[0], True, START_NS, "correct"),
            Feedback(ids[2], "Yes", START_NS, "judge"),
            Feedback(ids[3], "undecided", START_NS, "judge"),
        ],
    ]


def write(uri: str, *, by_mlflow: bool) -> bool:
    """Write everything into an empty database; return True if our statements could be used."""
    from mlflow.tracking import MlflowClient

    store = SqlStore(parse_tracking_uri(uri))
    store.ensure_experiment("Default")
    experiment_id = MlflowClient(tracking_uri=uri).create_experiment("math", artifact_location="mlflow-artifacts:/1")
    is_bulk = store._bulk is not None
    if by_mlflow:
        store._bulk = None
    all_rewards = rewards()
    for number, batch in enumerate(batches()):
        store.write(experiment_id, batch)
        if number == 12:
            # One of these has not its root yet.
            store.record([reward for reward in all_rewards[0] if store.span_ids(reward.trace_id)])
    for some in all_rewards:
        store.record(some)
    store.close()
    return is_bulk


def rows(uri: str) -> dict[str, dict[str, dict[str, Any]]]:
    """Return all rows of the tables of traces, by table and key."""
    engine = make_engine(uri)
    found: dict[str, dict[str, dict[str, Any]]] = {}
    with engine.connect() as connection:
        for table in TABLES:
            keys = sqlalchemy.inspect(connection).get_pk_constraint(table)["constrained_columns"]
            found[table] = {}
            for row in connection.execute(sqlalchemy.text(f"SELECT * FROM {table}")).mappings():
                values = {key: value for key, value in row.items() if key not in NOW.get(table, ())}
                found[table][" ".join(str(row[key]) for key in sorted(keys))] = values
    engine.dispose()
    return found


def main() -> None:
    """Compare, and print the differences."""
    ours_uri, theirs_uri = sys.argv[1:]
    # As in the process that writes: one of them may be behind a pooler.
    connect_without_prepared_statements()
    is_bulk = write(ours_uri, by_mlflow=False)
    write(theirs_uri, by_mlflow=True)
    ours, theirs = rows(ours_uri), rows(theirs_uri)
    differences = [
        (table, key, column, str(mine), str(other))
        for table in TABLES
        for key in sorted({*ours[table], *theirs[table]})
        for column in {**ours[table].get(key, {}), **theirs[table].get(key, {})}
        if (mine := ours[table].get(key, {}).get(column)) != (other := theirs[table].get(key, {}).get(column))
    ]
    print(  # noqa: T201 - its output is read by the test
        json.dumps({"bulk": is_bulk, "rows": {table: len(ours[table]) for table in TABLES}, "differences": differences})
    )


if __name__ == "__main__":
    main()
