"""What every drawing of a trace needs: its spans as a tree, and text that a terminal can be trusted with."""

from __future__ import annotations

import unicodedata
from collections.abc import Callable, Iterator, Sequence
from typing import Final, NamedTuple, TypeVar

from opentelemetry.sdk.trace import ReadableSpan

from otel_rollout import semconv

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
"""The colour of what became of a trajectory."""
JOINERS: Final = "\N{ZERO WIDTH JOINER}\N{ZERO WIDTH NON-JOINER}"


class Place(NamedTuple):
    """Where something stands in a trace.

    Args:
        span_id: Its span id.
        parent_id: Its parent's; None for a root.
        start_time: When it started.
    """

    span_id: int
    parent_id: int | None
    start_time: int


def place_of(span: ReadableSpan) -> Place:
    """Return where a span stands in its trace."""
    context = span.get_span_context()
    return Place(
        context.span_id if context else 0,
        span.parent.span_id if span.parent else None,
        span.start_time or 0,
    )


def walk_tree(nodes: Sequence[Node], place: Callable[[Node], Place]) -> Iterator[tuple[Node, str, str]]:
    """Go through a trace: each node before its children, children in the order of start.

    Args:
        nodes: The nodes of one trace; one whose parent is missing is a root.
        place: Says where a node stands.

    Yields:
        A node, the lines to draw before it, and the lines to draw before what is written below it.
    """
    placed = sorted(((place(node), node) for node in nodes), key=lambda each: each[0].start_time)
    known = {at.span_id for at, _ in placed}
    children: dict[int | None, list[tuple[Place, Node]]] = {}
    for at, node in reversed(placed):
        parent = at.parent_id if at.parent_id in known and at.parent_id != at.span_id else None
        children.setdefault(parent, []).append((at, node))
    # A stack instead of recursion, which would end at a depth of 1,000.
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
        start: When the drawing's time begins, in nanoseconds.
        end: When it ends.
        width: The columns for it.
    """
    scale = width / max(1, end - start)
    left = max(0, min(width - 1, int(((span.start_time or 0) - start) * scale)))
    right = min(width, max(left + 1, round(((span.end_time or 0) - start) * scale)))
    return " " * left + "━" * (right - left) + " " * (width - right)


def error_of(span: ReadableSpan) -> str:
    """Return how a failed span failed: its exception, or what its status says."""
    for event in span.events:
        if event.name == semconv.EXCEPTION_EVENT and event.attributes:
            kind = str(event.attributes.get(semconv.EXCEPTION_TYPE, "")).rpartition(".")[2]
            return f"{kind}: {event.attributes.get(semconv.EXCEPTION_MESSAGE, '')!s}"
    return span.status.description or "failed"


def printable(text: str) -> str:
    """Return `text` with a mark in place of what a terminal would act on: control and format characters."""
    # An escape sequence in a name or an error would move the terminal's cursor, or say something false.
    return text if text.isprintable() else "".join(map(_printable_character, text))


def _printable_character(character: str) -> str:
    if character.isprintable() or character in JOINERS or unicodedata.category(character) == "Zs":
        return character
    return "\N{REPLACEMENT CHARACTER}"


def shorten(text: str, limit: int) -> str:
    """Return `text` on one line of at most `limit` characters.

    Args:
        text: A text of any length and with line breaks; only its beginning is looked at.
        limit: How many characters at most.
    """
    line = " ".join(text[: 10 * limit].split())
    return line if len(line) <= limit else f"{line[: limit - 1]}…"


def duration(nanoseconds: int) -> str:
    """Return a duration in a unit that suits it."""
    if abs(nanoseconds) < 1_000_000:
        return f"{nanoseconds / 1e3:.0f} µs"
    return f"{nanoseconds / 1e6:.1f} ms" if abs(nanoseconds) < 1_000_000_000 else f"{nanoseconds / 1e9:.2f} s"
