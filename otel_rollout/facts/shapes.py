"""The places of a trajectory's spans on a timeline."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from operator import itemgetter
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeAlias

from otel_rollout import semconv
from otel_rollout.facts.packed_spans import KINDS, TOOL
from otel_rollout.facts.span_facts import kind_of
from otel_rollout.facts.span_values import short_name, times_of

if TYPE_CHECKING:
    from opentelemetry.sdk.trace import ReadableSpan

MAX_SHAPES: Final = 512
"""Later spans of a trajectory are not drawn."""


class SpanShape(NamedTuple):
    """A span's place on a timeline.

    Args:
        name: Its name; of a tool call, the tool's.
        kind: Its OpenInference kind: AGENT, CHAIN, EMBEDDING, EVALUATOR, LLM or TOOL; empty for another.
        offset: Microseconds from the trajectory's start to its own.
        duration: Its microseconds.
        status: 0 unset, 1 ok, 2 error.
        parent: The position of its parent among the trajectory's shapes; -1 if it has none there.
    """

    name: str
    kind: str
    offset: int
    duration: int
    status: int
    parent: int


Shape: TypeAlias = Sequence[Any]
"""The fields of a `SpanShape` in order: making those would take half the time of reading a step's from a catalog."""


def shapes_of(spans: Iterable[ReadableSpan]) -> list[SpanShape]:
    """Return the first spans of a trajectory by start."""
    rows = sorted(((*_microseconds(span), _span_id(span), span) for span in spans), key=itemgetter(0, 1, 2))
    positions = {span_id: position for position, (_, _, span_id, _) in enumerate(rows[:MAX_SHAPES])}
    first = rows[0][0] if rows else 0
    shapes = []
    for start, end, _, span in rows[:MAX_SHAPES]:
        attributes = span.attributes or {}
        known = kind_of(attributes) or ""
        kind = known if known in KINDS else ""
        tool = attributes.get(semconv.TOOL_NAME) if kind == KINDS[TOOL] else None
        shown = short_name(tool if type(tool) is str and tool else span.name)
        parent = positions.get(span.parent.span_id, -1) if span.parent else -1
        shapes.append(SpanShape(shown, kind, start - first, end - start, span.status.status_code.value, parent))
    return shapes


def _microseconds(span: ReadableSpan) -> tuple[int, int]:
    start, end = times_of(span)
    return start // 1000, max(start, end) // 1000


def _span_id(span: ReadableSpan) -> int:
    context = span.get_span_context()
    return context.span_id if context else 0
