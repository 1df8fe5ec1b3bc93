"""The places of a trajectory's spans on a timeline."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, NamedTuple, TypeAlias

from otel_rollout import semconv
from otel_rollout.facts.packed_spans import KINDS, TOOL
from otel_rollout.facts.span_facts import KIND_KEYS, kind_of
from otel_rollout.facts.span_values import short_name

MAX_SHAPES: Final = 512
"""Later spans of a trajectory are not drawn."""
OUTLINED: Final = frozenset({semconv.TOOL_NAME, *KIND_KEYS})
"""The attributes that a shape follows from."""


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


class Outline(NamedTuple):
    """A span without its payload."""

    start: int
    end: int
    span_id: int
    parent_id: int
    name: str
    attributes: Mapping[str, Any]
    status: int


def shapes_of(outlines: Iterable[Outline]) -> list[SpanShape]:
    """Return the first spans of a trajectory by start."""
    rows = sorted(outlines, key=lambda row: (row.start // 1000, max(row.start, row.end) // 1000, row.span_id))
    positions = {row.span_id: position for position, row in enumerate(rows[:MAX_SHAPES])}
    first = rows[0].start // 1000 if rows else 0
    shapes = []
    for start, end, _, parent_id, name, attributes, status in rows[:MAX_SHAPES]:
        known = kind_of(attributes) or ""
        kind = known if known in KINDS else ""
        tool = attributes.get(semconv.TOOL_NAME) if kind == KINDS[TOOL] else None
        shown = short_name(tool if type(tool) is str and tool else name)
        began, lasted = start // 1000, max(start, end) // 1000 - start // 1000
        shapes.append(SpanShape(shown, kind, began - first, lasted, status, positions.get(parent_id, -1)))
    return shapes
