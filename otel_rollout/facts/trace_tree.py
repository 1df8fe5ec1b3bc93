"""The tree of a trace's spans as text, without rich."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Final, NamedTuple, TypeVar

from otel_rollout import semconv
from otel_rollout.facts.span_facts import exception_attributes

if TYPE_CHECKING:
    from opentelemetry.sdk.trace import ReadableSpan

Node = TypeVar("Node")

KIND_STYLES: Final = {"AGENT": "magenta", "CHAIN": "blue", "LLM": "cyan", "TOOL": "yellow", "EVALUATOR": "green"}
"""The color of each kind of span."""
STATUS_STYLES: Final = {"completed": "green", "truncated": "yellow", "cancelled": "yellow", "error": "red"}
"""The color of each status of a trajectory."""


class Place(NamedTuple):
    """A node's place in its trace.

    Args:
        span_id: Its span id.
        parent_id: Its parent's span id; None for a root.
        start_time: Its start, in nanoseconds since the epoch.
    """

    span_id: int
    parent_id: int | None
    start_time: int


def id_of(span: ReadableSpan) -> int:
    """Return a span's id; 0 if it has none."""
    context = span.get_span_context()
    return context.span_id if context else 0


def _parent_of(span: ReadableSpan) -> int | None:
    return span.parent.span_id if span.parent else None


def place_of(span: ReadableSpan) -> Place:
    """Return a span's place in its trace."""
    return Place(id_of(span), _parent_of(span), span.start_time or 0)


def walk_tree(nodes: Sequence[Node], place: Callable[[Node], Place]) -> Iterator[tuple[Node, str, str]]:
    """Walk a trace in pre-order, children in the order of start.

    Args:
        nodes: The nodes of one trace; a node whose parent is missing is a root.
        place: Returns a node's place.

    Yields:
        A node, the guide lines before it, and the guide lines before text below it.
    """
    placed = sorted(((place(node), node) for node in nodes), key=lambda each: each[0].start_time)
    known = {at.span_id for at, _ in placed}
    children: dict[int | None, list[tuple[Place, Node]]] = {}
    for at, node in reversed(placed):
        parent = at.parent_id if at.parent_id in known and at.parent_id != at.span_id else None
        children.setdefault(parent, []).append((at, node))
    # A stack, as recursion would fail at a depth of 1,000.
    waiting = [(at, node, "", "") for at, node in children.pop(None, [])]
    while waiting:
        at, node, guide, stem = waiting.pop()
        below = children.pop(at.span_id, [])
        yield node, guide, stem + ("│  " if below else "   ")
        for position, (child_at, child) in enumerate(below):
            is_last = position == 0
            fork, line = ("└─ ", "   ") if is_last else ("├─ ", "│  ")
            waiting.append((child_at, child, stem + fork, stem + line))


def time_bar(span: ReadableSpan, start: int, end: int, width: int) -> str:
    """Return a bar at the span's position in time."""
    scale = width / max(1, end - start)
    left = max(0, min(width - 1, int(((span.start_time or 0) - start) * scale)))
    right = min(width, max(left + 1, round(((span.end_time or 0) - start) * scale)))
    return " " * left + "━" * (right - left) + " " * (width - right)


def error_of(span: ReadableSpan) -> str:
    """Return a failed span's exception, else its status description."""
    if attributes := exception_attributes(span):
        kind = str(attributes.get(semconv.EXCEPTION_TYPE, "")).rpartition(".")[2]
        return f"{kind}: {attributes.get(semconv.EXCEPTION_MESSAGE, '')!s}"
    return span.status.description or "failed"
