"""The tables of spans, messages and conversations, which are filled for one step on demand, from the recorded spans."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

import orjson
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.trace import StatusCode

from otel_rollout import semconv
from otel_rollout.catalog.schema import ROWS_AT_ONCE, storable
from otel_rollout.errors import UnreadableTraceError
from otel_rollout.facts.conversations import Conversations, conversations_of
from otel_rollout.facts.shapes import Shape
from otel_rollout.facts.span_facts import kind_of, span_id_of
from otel_rollout.facts.span_values import count_of, error_type_of, last_text, text_of, times_of
from otel_rollout.facts.trace_tree import error_of, place_of
from otel_rollout.facts.utterances import Utterance, utterances_of
from otel_rollout.folder.reader import RecordedTrajectory
from otel_rollout.messages import json_of
from otel_rollout.text.sanitize import clean

MAX_BYTES: Final = 2**28
"""The bound on the texts of all steps' rows: beyond it the steps that were filled first are emptied."""
BYTES_AT_ONCE: Final = 2**25
"""The bound on the trajectories, as OTLP, whose rows are inserted together."""
_ROW_BYTES: Final = 200
MAX_SHAPES: Final = 65_536
"""The trajectories whose places on timelines are kept: some 60 MB."""
_STATUSES: Final = {StatusCode.UNSET: "unset", StatusCode.OK: "ok", StatusCode.ERROR: "error"}
_PAYLOAD: Final = frozenset(
    {semconv.INPUT_VALUE, semconv.OUTPUT_VALUE, semconv.INPUT_MESSAGES, semconv.OUTPUT_MESSAGES}
)
_Attributes = Mapping[str, Any]


class Column(NamedTuple):
    """A column.

    Args:
        name: Its name.
        type: Its type.
        unit: The unit of a number.
        meaning: A clause for the docs.
        of: Returns its value, of a span or of a message.
    """

    name: str
    type: type
    unit: str
    meaning: str
    of: Callable[[Any], Any]


class _Span(NamedTuple):
    """A span with its turn and its conversation."""

    span: ReadableSpan
    attributes: _Attributes
    turn: int | None
    conversation: int | None


class _Message(NamedTuple):
    """A message with its place."""

    position: int
    turn: int
    told: Utterance


SPANS: Final = (
    Column("span_id", str, "", "16 hexadecimal digits", lambda it: span_id_of(it.span)),
    Column(
        "parent_id",
        str,
        "",
        "the span that it is inside; null for a root",
        lambda it: f"{it.span.parent.span_id:016x}" if it.span.parent else None,
    ),
    Column("name", str, "", "its name", lambda it: it.span.name),
    Column(
        "kind",
        str,
        "",
        "`AGENT`, `CHAIN`, `EVALUATOR`, `LLM`, `TOOL` or another OpenInference kind; null if it has none",
        lambda it: kind_of(it.attributes),
    ),
    Column("turn", int, "", "of a generation that is in no other one, its number from 1", lambda it: it.turn),
    Column(
        "conversation",
        int,
        "",
        "its conversation, as in `conversations`; null for a root, and outside all",
        lambda it: it.conversation,
    ),
    Column("start_time", int, "ns", "its start, since 1970", lambda it: times_of(it.span)[0]),
    Column("end_time", int, "ns", "its end, since 1970", lambda it: times_of(it.span)[1]),
    Column("seconds", float, "s", "its duration", lambda it: (times_of(it.span)[1] - times_of(it.span)[0]) / 1e9),
    Column("status", str, "", "`unset`, `ok` or `error`", lambda it: _STATUSES[it.span.status.status_code]),
    Column(
        "error_type",
        str,
        "",
        "the exception's class; null if it did not fail, or it is unknown",
        lambda it: (_failed(it.span) and error_type_of(it.span)) or None,
    ),
    Column(
        "error",
        str,
        "",
        "the exception's class and message",
        lambda it: error_of(it.span) if _failed(it.span) else None,
    ),
    Column("tool", str, "", "of a tool call, the tool", lambda it: text_of(it.attributes.get(semconv.TOOL_NAME))),
    Column("model", str, "", "of a generation, the model", lambda it: _model_of(it.attributes)),
    Column(
        "input_tokens",
        int,
        "tokens",
        "of a generation, the tokens of its prompt",
        lambda it: count_of(it.attributes.get(semconv.USAGE_INPUT_TOKENS)),
    ),
    Column(
        "output_tokens",
        int,
        "tokens",
        "of a generation, the tokens of its answer",
        lambda it: count_of(it.attributes.get(semconv.USAGE_OUTPUT_TOKENS)),
    ),
    Column(
        "finish_reason",
        str,
        "",
        "of a generation, the reason for which it stopped",
        lambda it: last_text(it.attributes.get(semconv.FINISH_REASONS)),
    ),
    Column(
        "input",
        str,
        "",
        "what it was given, as JSON or as text",
        lambda it: _payload(it, semconv.INPUT_MESSAGES, semconv.INPUT_VALUE),
    ),
    Column("output", str, "", "what it gave", lambda it: _payload(it, semconv.OUTPUT_MESSAGES, semconv.OUTPUT_VALUE)),
    Column("attributes", str, "", "its other attributes, as a JSON object", lambda it: _attributes(it.attributes)),
)
"""These follow the common columns in `spans`."""
MESSAGES: Final = (
    Column("position", int, "", "its place among the trajectory's messages, from 0", lambda it: it.position),
    Column("conversation", int, "", "its conversation, as in `conversations`", lambda it: it.told.conversation),
    Column("turn", int, "", "the last generation until then, from 1; 0 before the first answer", lambda it: it.turn),
    Column(
        "role",
        str,
        "",
        "`system`, `user`, `assistant`, `tool` or another program's word",
        lambda it: it.told.message.role,
    ),
    Column("content", str, "", "its text, or a tool's result", lambda it: it.told.message.text),
    Column(
        "reasoning",
        str,
        "",
        "the model's reasoning before the text; null without any",
        lambda it: it.told.message.reasoning or None,
    ),
    Column(
        "tool_calls",
        str,
        "",
        "its tool calls, as a JSON array of objects with `name`, `arguments` and `call_id`; null without any",
        lambda it: json_of([call._asdict() for call in it.told.message.calls]) if it.told.message.calls else None,
    ),
    Column("tool", str, "", "of a result, the tool; null if it is unknown", lambda it: it.told.message.name or None),
    Column("is_error", bool, "", "true if it is the error of a tool or of a generation", lambda it: it.told.is_error),
    Column(
        "span_id",
        str,
        "",
        "the span that it came from, if it was generated or is a tool's result",
        lambda it: span_id_of(it.told.span) if it.told.span else None,
    ),
)
"""These follow the common columns in `messages`."""
CONVERSATIONS: Final = (
    Column("conversation", int, "", "its number in the trajectory, from 1, by the first turns", lambda it: it.id),
    Column("kind", str, "", "`main`, `subagent`, `fork`, `compacted` or `user`", lambda it: it.kind),
    Column(
        "name",
        str,
        "",
        "the sub-agent or simulated user, else the agent around it; null if it is unknown",
        lambda it: it.name or None,
    ),
    Column(
        "parent",
        int,
        "",
        "the conversation that called the sub-agent, that the fork parts from, that is compacted, or that a simulated "
        "user speaks to; null for `main`",
        lambda it: it.parent,
    ),
    Column(
        "parent_turn",
        int,
        "",
        "the parent's last turn before it, of a fork the last one that it shares; null if it has none",
        lambda it: it.parent_turn,
    ),
    Column("joined_turn", int, "", "of a sub-agent, the parent's first turn after it", lambda it: it.joined_turn),
    Column("shared", int, "messages", "the messages at its beginning that are the parent's", lambda it: it.shared),
    Column(
        "replaced",
        int,
        "messages",
        "of a compacted one, the parent's messages that it leaves out",
        lambda it: it.replaced,
    ),
    Column("turns", int, "turns", "its generations that are in no other one", lambda it: len(it.turns)),
    Column("first_turn", int, "", "the number of its first turn in the trajectory", lambda it: it.turns[0]),
    Column("last_turn", int, "", "the number of its last turn", lambda it: it.turns[-1]),
    Column("input_tokens", int, "tokens", "the sum over its turns", lambda it: it.input_tokens),
    Column("output_tokens", int, "tokens", "the sum over its turns", lambda it: it.output_tokens),
    Column("messages", int, "messages", "the length of its history, with the last answer", lambda it: it.messages),
    Column("trained", bool, "", "true if it is training data; null if that is unknown", lambda it: it.trained),
    Column(
        "inferred",
        bool,
        "",
        "true if no scope, mark or prompt shows what it comes from: that is a guess from what messages repeat",
        lambda it: it.inferred,
    ),
    Column("start_time", int, "ns", "the start of its first turn, since 1970", lambda it: it.start_time),
    Column("end_time", int, "ns", "the end of its last turn, since 1970", lambda it: it.end_time),
    Column("seconds", float, "s", "the time between both", lambda it: (it.end_time - it.start_time) / 1e9),
    Column(
        "conversation_id",
        str,
        "",
        "`gen_ai.conversation.id` of its turns; null if they have none",
        lambda it: it.conversation_id or None,
    ),
)
"""These follow the common columns in `conversations`."""
COMMON: Final = (
    Column("trace_id", str, "", "its trajectory", lambda it: None),
    Column("step", int, "", "the trajectory's step", lambda it: None),
    Column("validate", bool, "", "true in a validation pass", lambda it: None),
)
"""The first columns of the tables."""


def _failed(span: ReadableSpan) -> bool:
    return span.status.status_code is StatusCode.ERROR


def _model_of(attributes: _Attributes) -> str | None:
    return text_of(attributes.get(semconv.RESPONSE_MODEL)) or text_of(attributes.get(semconv.REQUEST_MODEL))


def _payload(it: _Span, *keys: str) -> str | None:
    return next((value for key in keys if isinstance(value := it.attributes.get(key), str)), None)


def _attributes(attributes: _Attributes) -> str:
    kept = {key: list(value) if isinstance(value, tuple) else value for key, value in attributes.items()}
    return json_of(clean({key: value for key, value in kept.items() if key not in _PAYLOAD}))


_TABLES: Final = {"spans": SPANS, "messages": MESSAGES, "conversations": CONVERSATIONS}
_OF_CONVERSATIONS: Final = frozenset({"turn", "conversation"})
"""The columns of spans for which the conversations have to be found."""
_OF_STEP: Final = "step IS ? AND validate = ?"


def _names(columns: Sequence[Column]) -> str:
    return ", ".join(f'"{each.name}"' for each in (*COMMON, *columns))


DDL: Final = (
    "".join(
        f"""
CREATE TABLE {table} ({_names(columns)});
CREATE INDEX {table}_by_step ON {table} (step, validate);
CREATE INDEX {table}_by_trace ON {table} (trace_id);"""
        for table, columns in _TABLES.items()
    )
    + """
CREATE TABLE filled_steps (number INTEGER PRIMARY KEY, step INTEGER, validate INTEGER, bytes INTEGER);
CREATE TABLE shapes (number INTEGER PRIMARY KEY, trace_id TEXT UNIQUE, shapes TEXT);
"""
    + "".join(
        f"""
CREATE TRIGGER shapes_{event} AFTER {event} ON trajectories
  BEGIN DELETE FROM shapes WHERE trace_id = old.trace_id; END;"""
        for event in ("UPDATE", "DELETE")
    )
)


def filled_steps(connection: sqlite3.Connection) -> set[tuple[int | None, bool]]:
    """Return the steps that have rows in these tables, and whether they are validation passes."""
    found = connection.execute("SELECT step, validate FROM filled_steps")
    return {(step, bool(validate)) for step, validate in found}


def fill_step(
    connection: sqlite3.Connection,
    step: int | None,
    validate: bool,
    trajectories: Iterable[RecordedTrajectory],
    max_bytes: int = MAX_BYTES,
) -> list[str]:
    """Fill the tables for a step, and return the trace ids of those that can't be read. The caller commits.

    Args:
        connection: The catalog.
        step: The step.
        validate: Its validation.
        trajectories: All of its trajectories.
        max_bytes: The bound on all steps' texts; this step's rows are kept whatever their size.
    """
    empty_step(connection, step, validate)
    unreadable: list[str] = []
    size = waiting = 0
    rows: dict[str, list[Sequence[Any]]] = {table: [] for table in _TABLES}
    for trajectory in trajectories:
        try:
            found = rows_of(trajectory.spans)
        except UnreadableTraceError:
            unreadable.append(trajectory.trace_id)
            continue
        waiting += trajectory.size_bytes
        for table, of_table in found.items():
            rows[table] += [(trajectory.trace_id, step, validate, *row) for row in of_table]
            if len(rows[table]) >= ROWS_AT_ONCE or waiting > BYTES_AT_ONCE:
                size += _insert(connection, table, rows[table])
                rows[table].clear()
        waiting = 0 if waiting > BYTES_AT_ONCE else waiting
    size += sum(_insert(connection, table, left) for table, left in rows.items())
    connection.execute("INSERT INTO filled_steps (step, validate, bytes) VALUES (?, ?, ?)", (step, validate, size))
    _keep_within(connection, max_bytes)
    return unreadable


def keep_shapes(connection: sqlite3.Connection, read: Iterable[tuple[str, int, int, Sequence[Shape]]]) -> None:
    """Keep the shapes of trajectories until these change.

    Args:
        connection: The catalog.
        read: Trace ids, spans and ends of trajectories, and the shapes that were read since.
    """
    connection.execute("BEGIN IMMEDIATE")
    connection.executemany(
        "INSERT OR REPLACE INTO shapes (trace_id, shapes)"
        " SELECT trace_id, ?4 FROM trajectories WHERE trace_id = ?1 AND spans = ?2 AND end_time = ?3",
        ((*known, orjson.dumps(shapes, default=tuple).decode()) for *known, shapes in read),
    )
    connection.execute("DELETE FROM shapes WHERE number <= (SELECT max(number) FROM shapes) - ?", (MAX_SHAPES,))
    connection.execute("COMMIT")


def empty_step(connection: sqlite3.Connection, step: int | None, validate: bool) -> None:
    """Remove the rows of a step: it has changed. The caller commits."""
    for table in (*_TABLES, "filled_steps"):
        connection.execute(f"DELETE FROM {table} WHERE {_OF_STEP}", (step, validate))


def _keep_within(connection: sqlite3.Connection, max_bytes: int) -> None:
    filled = connection.execute("SELECT step, validate, bytes FROM filled_steps ORDER BY number").fetchall()
    size = sum(each[2] for each in filled)
    for step, validate, of_step in filled[:-1]:
        if size <= max_bytes:
            return
        empty_step(connection, step, validate)
        size -= of_step


def _insert(connection: sqlite3.Connection, table: str, rows: Sequence[Sequence[Any]]) -> int:
    stored = [[storable(value) for value in row] for row in rows]
    marks = ", ".join("?" * (len(COMMON) + len(_TABLES[table])))
    connection.executemany(f"INSERT INTO {table} VALUES ({marks})", stored)
    return sum(_ROW_BYTES + sum(len(value) for value in row if isinstance(value, str)) for row in stored)


def column_of(table: str, name: str) -> Column:
    """Return a column that is not a common one by its name."""
    return next(each for each in _TABLES[table] if each.name == name)


def rows_of(
    spans: Sequence[ReadableSpan], columns: Mapping[str, Sequence[Column]] = _TABLES
) -> dict[str, list[Sequence[Any]]]:
    """Return the rows of a trajectory in each table, without the common columns.

    Args:
        spans: The trajectory's spans.
        columns: The columns of the rows by table.

    Raises:
        UnreadableTraceError: A span is damaged.
    """
    found = None
    if columns.keys() != {"spans"} or not _OF_CONVERSATIONS.isdisjoint(each.name for each in columns["spans"]):
        found = conversations_of(spans)
    return {
        table: [[each.of(it) for each in chosen] for it in _items(table, spans, found)]
        for table, chosen in columns.items()
    }


def _items(table: str, spans: Sequence[ReadableSpan], found: Conversations | None) -> Iterable[Any]:
    if table == "spans":
        return _spans_of(spans, found)
    if found is None:
        return ()
    return _messages_of(spans, found) if table == "messages" else found.all


def _spans_of(spans: Sequence[ReadableSpan], found: Conversations | None) -> Iterator[_Span]:
    turns = {} if found is None else {id(span): turn for turn, span in enumerate(found.turns, 1)}
    of_span = {} if found is None else found.of_span
    for span in sorted(spans, key=lambda span: (span.start_time or 0, span.parent is not None)):
        yield _Span(span, span.attributes or {}, turns.get(id(span)), of_span.get(place_of(span).span_id))


def _messages_of(spans: Sequence[ReadableSpan], found: Conversations) -> Iterator[_Message]:
    turn = 0
    for position, told in enumerate(utterances_of(spans, found)):
        turn += told.message.role == "assistant" and told.span is not None
        yield _Message(position, turn, told)
