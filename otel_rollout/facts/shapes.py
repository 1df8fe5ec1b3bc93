"""The places of a trajectory's spans on a timeline."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeAlias

from otel_rollout.facts.compact_spans import KINDS

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
    # Lists of what an index has don't need it.
    from otel_rollout.facts.builder import SummaryBuilder

    builder = SummaryBuilder(0, takes_records=False)
    builder.add(spans)
    rows = builder.sorted_rows()[:MAX_SHAPES]
    positions = {row.span_id: position for position, row in enumerate(rows)}
    shapes = []
    for row in rows:
        offset = row.start // 1000 - rows[0].start // 1000
        duration = row.end // 1000 - row.start // 1000
        parent = positions.get(row.parent, -1)
        shapes.append(SpanShape(row.name, KINDS[row.kind], offset, duration, row.status, parent))
    return shapes
