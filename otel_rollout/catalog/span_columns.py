"""The columns of spans, messages and conversations, and their rows, which are made of a trajectory's spans."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, NamedTuple

# Its names are imported at first use: lists need none of them.
from otel_rollout import facts, semconv
from otel_rollout.catalog.columns import Column
from otel_rollout.errors import UnreadableTraceError
from otel_rollout.facts.span_facts import kind_of, span_id_of
from otel_rollout.facts.span_values import count_of, engine_of, error_type_of, last_text, text_of, times_of
from otel_rollout.facts.trace_tree import error_of, id_of
from otel_rollout.messages import json_of
from otel_rollout.text.sanitize import clean

if TYPE_CHECKING:
    from opentelemetry.sdk.trace import ReadableSpan

    from otel_rollout.facts import Conversations, Utterance
    from otel_rollout.folder.reader import RecordedTrajectory

_PAYLOAD: Final = frozenset(
    {semconv.INPUT_VALUE, semconv.OUTPUT_VALUE, semconv.INPUT_MESSAGES, semconv.OUTPUT_MESSAGES}
)
BYTES_AT_ONCE: Final = 2**24
"""The bound on the trajectories, as OTLP, whose rows are made together."""
_Attributes = Mapping[str, Any]


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


def _attribute(name: str, kind: Any, meaning: str, read: Callable[[Any], Any], key: str, unit: str = "") -> Column:
    """Return a column of a span's attribute."""
    return Column(name, kind, meaning, lambda it: read(it.attributes.get(key)), unit)


COMMON: Final = (
    Column("trace_id", str, "its trajectory"),
    Column("step", int | None, "the trajectory's step"),
    Column("validate", bool, "true in a validation pass"),
)
"""The first columns of the tables, which are the trajectory's."""
SPANS: Final = (
    Column("span_id", str, "16 hexadecimal digits", lambda it: span_id_of(it.span)),
    Column(
        "parent_id",
        str,
        "the span that it is inside; null for a root",
        lambda it: f"{it.span.parent.span_id:016x}" if it.span.parent else None,
    ),
    Column("name", str, "its name", "span.name"),
    Column(
        "kind",
        str,
        "`AGENT`, `CHAIN`, `EVALUATOR`, `LLM`, `TOOL` or another OpenInference kind; null if it has none",
        lambda it: kind_of(it.attributes),
    ),
    Column("turn", int | None, "of a generation that is in no other one, its number from 1"),
    Column("conversation", int | None, "its conversation, as in `conversations`; null for a root, and outside all"),
    Column("start_time", int, "its start, since 1970", lambda it: times_of(it.span)[0], unit="ns"),
    Column("end_time", int, "its end, since 1970", lambda it: times_of(it.span)[1], unit="ns"),
    Column("seconds", float, "its duration", lambda it: (times_of(it.span)[1] - times_of(it.span)[0]) / 1e9, unit="s"),
    Column("status", str, "`unset`, `ok` or `error`", lambda it: it.span.status.status_code.name.lower()),
    Column(
        "error_type",
        str | None,
        "the exception's class; null if it did not fail, or it is unknown",
        lambda it: _failed(it.span) and error_type_of(it.span),
    ),
    Column(
        "error", str, "the exception's class and message", lambda it: error_of(it.span) if _failed(it.span) else None
    ),
    _attribute("tool", str, "of a tool call, the tool", text_of, semconv.TOOL_NAME),
    Column("model", str, "of a generation, the model", lambda it: _model_of(it.attributes)),
    Column("engine", str, "of a generation, the engine, as in `trajectories`", lambda it: engine_of(it.attributes)),
    Column(
        "host",
        str,
        "the host of its process: `host.name` of the resource",
        lambda it: text_of(it.span.resource.attributes.get(semconv.HOST_NAME)),
    ),
    _attribute(
        "input_tokens", int | None, "of a generation's prompt", count_of, semconv.USAGE_INPUT_TOKENS, unit="tokens"
    ),
    _attribute(
        "output_tokens", int | None, "of a generation's answer", count_of, semconv.USAGE_OUTPUT_TOKENS, unit="tokens"
    ),
    _attribute("finish_reason", str, "the reason for which a generation stopped", last_text, semconv.FINISH_REASONS),
    Column(
        "input",
        str,
        "what it was given, as JSON or as text",
        lambda it: _payload(it, semconv.INPUT_MESSAGES, semconv.INPUT_VALUE),
    ),
    Column("output", str, "what it gave", lambda it: _payload(it, semconv.OUTPUT_MESSAGES, semconv.OUTPUT_VALUE)),
    Column("attributes", str, "its other attributes, as a JSON object", lambda it: _attributes(it.attributes)),
)
"""These follow the common columns in `spans`."""
MESSAGES: Final = (
    Column("position", int, "its place among the trajectory's messages, from 0"),
    Column("conversation", int, "its conversation, as in `conversations`", "told.conversation"),
    Column("turn", int, "the last generation until then, from 1; 0 before the first answer"),
    Column("role", str, "`system`, `user`, `assistant`, `tool` or another program's word", "told.message.role"),
    Column("content", str, "its text, or a tool's result", "told.message.text"),
    Column(
        "reasoning", str | None, "the model's reasoning before the text; null without any", "told.message.reasoning"
    ),
    Column(
        "tool_calls",
        str,
        "its tool calls, as a JSON array of objects with `name`, `arguments` and `call_id`; null without any",
        lambda it: json_of([call._asdict() for call in it.told.message.calls]) if it.told.message.calls else None,
    ),
    Column("tool", str | None, "of a result, the tool; null if it is unknown", "told.message.name"),
    Column("is_error", bool, "true if it is the error of a tool or of a generation", "told.is_error"),
    Column(
        "span_id",
        str,
        "the span that it came from, if it was generated or is a tool's result",
        lambda it: span_id_of(it.told.span) if it.told.span else None,
    ),
)
"""These follow the common columns in `messages`."""
CONVERSATIONS: Final = (
    Column("conversation", int, "its number in the trajectory, from 1, by the first turns", "id"),
    Column("kind", str, "`main`, `subagent`, `fork`, `compacted` or `user`"),
    Column("name", str | None, "the sub-agent or simulated user, else the agent around it; null if it is unknown"),
    Column(
        "parent",
        int | None,
        "the conversation that called the sub-agent, that the fork parts from, that is compacted, or that a simulated "
        "user speaks to; null for `main`",
    ),
    Column(
        "parent_turn",
        int | None,
        "the parent's last turn before it, of a fork the last one that it shares; null if it has none",
    ),
    Column("joined_turn", int | None, "of a sub-agent, the parent's first turn after it"),
    Column("shared", int, "the messages at its beginning that are the parent's", unit="messages"),
    Column("replaced", int | None, "of a compacted one, the parent's messages that it leaves out", unit="messages"),
    Column("turns", int, "its generations that are in no other one", lambda it: len(it.turns), unit="turns"),
    Column("first_turn", int, "the number of its first turn in the trajectory", lambda it: it.turns[0]),
    Column("last_turn", int, "the number of its last turn", lambda it: it.turns[-1]),
    Column("input_tokens", int | None, "the sum over its turns", unit="tokens"),
    Column("output_tokens", int | None, "the sum over its turns", unit="tokens"),
    Column("messages", int, "the length of its history, with the last answer", unit="messages"),
    Column("trained", bool | None, "true if it is training data; null if that is unknown"),
    Column(
        "inferred",
        bool,
        "true if no scope, mark or prompt shows what it comes from: that is a guess from what messages repeat",
    ),
    Column("start_time", int, "the start of its first turn, since 1970", unit="ns"),
    Column("end_time", int, "the end of its last turn, since 1970", unit="ns"),
    Column("seconds", float, "the time between both", lambda it: (it.end_time - it.start_time) / 1e9, unit="s"),
    Column("conversation_id", str | None, "`gen_ai.conversation.id` of its turns; null if they have none"),
)
"""These follow the common columns in `conversations`."""


def _failed(span: ReadableSpan) -> bool:
    return not span.status.is_ok


def _model_of(attributes: _Attributes) -> str | None:
    return text_of(attributes.get(semconv.RESPONSE_MODEL)) or text_of(attributes.get(semconv.REQUEST_MODEL))


def _payload(it: _Span, *keys: str) -> str | None:
    return next((value for key in keys if isinstance(value := it.attributes.get(key), str)), None)


def _attributes(attributes: _Attributes) -> str:
    kept = {key: list(value) if isinstance(value, tuple) else value for key, value in attributes.items()}
    return json_of(clean({key: value for key, value in kept.items() if key not in _PAYLOAD}))


OF_SPANS: Final[Mapping[str, Sequence[Column]]] = {
    "spans": (*COMMON, *SPANS),
    "messages": (*COMMON, *MESSAGES),
    "conversations": (*COMMON, *CONVERSATIONS),
}
"""The columns of the tables that are filled for the steps that are asked for."""


def batches_of(
    trajectories: Iterable[RecordedTrajectory],
    columns: Mapping[str, Sequence[Column]],
    on_unreadable: Callable[[str], object],
) -> Iterator[dict[str, list[list[Any]]]]:
    """Yield the values of each column by table, of some trajectories at a time.

    Args:
        trajectories: The trajectories, which are read once.
        columns: The columns by table.
        on_unreadable: Called with the trace id of a trajectory that can't be read.
    """
    batch: dict[str, list[list[Any]]] = {table: [[] for _ in chosen] for table, chosen in columns.items()}
    size = 0
    for trajectory in trajectories:
        try:
            # A damaged span shows when it is parsed.
            found = facts.conversations_of(trajectory.spans)
        except UnreadableTraceError:
            on_unreadable(trajectory.trace_id)
            continue
        for table, chosen in columns.items():
            rows = list(_ROWS[table](trajectory.spans, found))
            for values, column in zip(batch[table], chosen, strict=True):
                if column in COMMON:
                    values.extend([column.value_of(trajectory)] * len(rows))
                else:
                    values.extend(map(column.value_of, rows))
        size += trajectory.size_bytes
        if size >= BYTES_AT_ONCE:
            yield batch
            batch, size = {table: [[] for _ in chosen] for table, chosen in columns.items()}, 0
    yield batch


def _spans_of(spans: Sequence[ReadableSpan], found: Conversations) -> Iterator[_Span]:
    turns = {id(span): turn for turn, span in enumerate(found.turns, 1)}
    for span in sorted(spans, key=lambda span: (span.start_time or 0, span.parent is not None)):
        yield _Span(span, span.attributes or {}, turns.get(id(span)), found.of_span.get(id_of(span)))


def _messages_of(spans: Sequence[ReadableSpan], found: Conversations) -> Iterator[_Message]:
    turn = 0
    for position, told in enumerate(facts.utterances_of(spans, found)):
        turn += told.message.role == "assistant" and told.span is not None
        yield _Message(position, turn, told)


_ROWS: Final[Mapping[str, Callable[[Sequence[ReadableSpan], Conversations], Iterable[Any]]]] = {
    "spans": _spans_of,
    "messages": _messages_of,
    "conversations": lambda _, found: found.all,
}
