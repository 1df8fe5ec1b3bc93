"""One trace as lines of text."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, NamedTuple

from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.trace import StatusCode

from otel_rollout import semconv

__all__ = ["Branch", "describe_span", "draw_trace", "make_branch"]

MAX_PAYLOAD_CHARACTERS: Final = 60


class Branch(NamedTuple):
    """What is kept of a span until its trace is drawn.

    Args:
        span_id: The span's id.
        parent_id: Its parent's; None for a root.
        start_time: When it started.
        line: What is drawn.
    """

    span_id: int
    parent_id: int | None
    start_time: int
    line: str


def make_branch(span: ReadableSpan) -> Branch:
    """Return what is kept of `span`: its line, not its payload."""
    context = span.get_span_context()
    return Branch(
        span_id=context.span_id if context else 0,
        parent_id=span.parent.span_id if span.parent else None,
        start_time=span.start_time or 0,
        line=describe_span(span),
    )


def draw_trace(branches: Sequence[Branch]) -> list[str]:
    """Return a trace as lines: the trajectory first, what it did below it, in the order of start.

    Args:
        branches: All spans of one trace; one whose parent is missing is drawn as a root.
    """
    known = {branch.span_id for branch in branches}
    children: dict[int | None, list[Branch]] = {}
    for branch in sorted(branches, key=lambda each: each.start_time, reverse=True):
        parent = branch.parent_id if branch.parent_id in known and branch.parent_id != branch.span_id else None
        children.setdefault(parent, []).append(branch)
    lines: list[str] = []
    # A stack instead of recursion, which would end at a depth of 1,000.
    waiting = [(root, "", "") for root in children.get(None, [])]
    while waiting:
        branch, indent, indent_below = waiting.pop()
        lines.append(f"{indent}{branch.line}")
        for position, child in enumerate(children.pop(branch.span_id, [])):
            is_last = position == 0
            waiting.append(
                (child, f"{indent_below}{'└─' if is_last else '├─'} ", f"{indent_below}{'   ' if is_last else '│  '}")
            )
    return lines


def describe_span(span: ReadableSpan) -> str:
    """Return one line on a span: kind, name, duration, tags and totals of a root, payload of an op, error."""
    attributes = span.attributes or {}
    parts = [f"{attributes.get(semconv.SPAN_KIND, 'SPAN')} {span.name}", _duration(span)]
    if span.parent is None and semconv.STATUS in attributes:
        parts.append(" ".join(_summary(attributes)))
    else:
        payload = [_clip(attributes[key]) for key in (semconv.INPUT_VALUE, semconv.OUTPUT_VALUE) if key in attributes]
        parts.append(" → ".join(payload))
    if span.status.status_code is StatusCode.ERROR:
        parts.append(f"ERROR {_clip(span.status.description or '')}".rstrip())
    return _printable("  ".join(part for part in parts if part))


def _printable(text: str) -> str:
    # An escape sequence in a name or an error would move the terminal's cursor, or say something false.
    return (
        text
        if text.isprintable()
        else "".join(each if each.isprintable() else "\N{REPLACEMENT CHARACTER}" for each in text)
    )


def _summary(attributes: Any) -> list[str]:
    names = (
        (semconv.STEP, "step"),
        (semconv.SAMPLE_INDEX, "sample"),
        (semconv.ROLLOUT_N, "rollout"),
        (semconv.REWARD, "reward"),
        (semconv.TURNS, "turns"),
        (semconv.DROPPED_SPANS, "dropped spans"),
    )
    words = [
        f"{label}={attributes[key]:g}" if key == semconv.REWARD else f"{label}={attributes[key]}"
        for key, label in names
        if key in attributes
    ]
    if attributes.get(semconv.VALIDATE):
        words.append("validation")
    words.append(str(attributes[semconv.STATUS]))
    return words


def _clip(value: Any) -> str:
    text = " ".join(str(value)[: 10 * MAX_PAYLOAD_CHARACTERS].split())
    return text if len(text) <= MAX_PAYLOAD_CHARACTERS else f"{text[: MAX_PAYLOAD_CHARACTERS - 1]}…"


def _duration(span: ReadableSpan) -> str:
    nanoseconds = (span.end_time or 0) - (span.start_time or 0)
    if nanoseconds < 1_000_000:
        return f"{nanoseconds / 1e3:.0f} µs"
    return f"{nanoseconds / 1e6:.1f} ms" if nanoseconds < 1_000_000_000 else f"{nanoseconds / 1e9:.2f} s"
