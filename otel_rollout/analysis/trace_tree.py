"""The spans of a trace as a tree of text, without rich."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Final, NamedTuple, TypeVar

from opentelemetry.sdk.trace import ReadableSpan

from otel_rollout import semconv
from otel_rollout.analysis.plain_text import duration, printable, shorten

__all__ = [
    "KIND_STYLES",
    "STATUS_STYLES",
    "Place",
    "duration",
    "error_of",
    "place_of",
    "printable",
    "shorten",
    "time_bar",
    "walk_tree",
]

Node = TypeVar("Node")

KIND_STYLES: Final = {"AGENT": "magenta", "CHAIN": "blue", "LLM": "cyan", "TOOL": "yellow", "EVALUATOR": "green"}
"""The colour of each kind of span."""
STATUS_STYLES: Final = {"completed": "green", "truncated": "yellow", "cancelled": "yellow", "error": "red"}
"""The colour of each status of a trajectory."""


class Place(NamedTuple):
    """A node's place in its trace.

    Args:
        span_id: Its span id.
        parent_id: Its parent's span id; None for a root.
        start_time: Its start, in nanoseconds.
    """

    span_id: int
    parent_id: int | None
    start_time: int


def place_of(span: ReadableSpan) -> Place:
    """Return a span's place in its trace."""
    context = span.get_span_context()
    return Place(
        context.span_id if context else 0,
        span.parent.span_id if span.parent else None,
        span.start_time or 0,
    )


def walk_tree(nodes: Sequence[Node], place: Callable[[Node], Place]) -> Iterator[tuple[Node, str, str]]:
    """Walk a trace: each node before its children, children in the order of start.

    Args:
        nodes: The nodes of one trace; one whose parent is missing is a root.
        place: Returns a node's place.

    Yields:
        A node, the lines to draw before it, and the lines to draw before text below it.
    """
    placed = sorted(((place(node), node) for node in nodes), key=lambda each: each[0].start_time)
    known = {at.span_id for at, _ in placed}
    children: dict[int | None, list[tuple[Place, Node]]] = {}
    for at, node in reversed(placed):
        parent = at.parent_id if at.parent_id in known and at.parent_id != at.span_id else None
        children.setdefault(parent, []).append((at, node))
    # A stack: recursion would end at a depth of 1,000.
    waiting = [(at, node, "", "") for at, node in children.pop(None, [])]
    while waiting:
        at, node, guide, stem = waiting.pop()
        below = children.pop(at.span_id, [])
        yield node, guide, stem + ("│  " if below else "   ")
        for position, (child_at, child) in enumerate(below):
            is_last = position == 0
            waiting.append(
                (child_at, child, f"{stem}{'└─' if is_last else '├─'} ", f"{stem}{'   ' if is_last else '│  '}")
            )


def time_bar(span: ReadableSpan, start: int, end: int, width: int) -> str:
    """Draw when a span ran.

    Args:
        span: The span.
        start: The start of the drawing's time, in nanoseconds.
        end: Its end.
        width: The bar's columns.
    """
    scale = width / max(1, end - start)
    left = max(0, min(width - 1, int(((span.start_time or 0) - start) * scale)))
    right = min(width, max(left + 1, round(((span.end_time or 0) - start) * scale)))
    return " " * left + "━" * (right - left) + " " * (width - right)


def error_of(span: ReadableSpan) -> str:
    """Return a failed span's exception, or the description of its status."""
    for event in span.events:
        if event.name == semconv.EXCEPTION_EVENT and event.attributes:
            kind = str(event.attributes.get(semconv.EXCEPTION_TYPE, "")).rpartition(".")[2]
            return f"{kind}: {event.attributes.get(semconv.EXCEPTION_MESSAGE, '')!s}"
    return span.status.description or "failed"
