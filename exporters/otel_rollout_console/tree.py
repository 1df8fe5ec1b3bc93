"""One trace as lines of text."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.trace import StatusCode

from otel_rollout import semconv

__all__ = ["draw_trace"]

MAX_PAYLOAD_CHARACTERS: Final = 60


def draw_trace(spans: Sequence[ReadableSpan]) -> list[str]:
    """Return a trace as lines: the trajectory first, what it did below it, in the order of start.

    Args:
        spans: All spans of one trace; one whose parent is missing is drawn as a root.
    """
    known = {span.context.span_id for span in spans if span.context}
    children: dict[int | None, list[ReadableSpan]] = {}
    for span in sorted(spans, key=lambda each: each.start_time or 0):
        parent = span.parent.span_id if span.parent and span.parent.span_id in known else None
        children.setdefault(parent, []).append(span)
    lines: list[str] = []
    for root in children.get(None, []):
        lines.append(describe_span(root))
        _draw_children(root, children, "", lines)
    return lines


def _draw_children(
    span: ReadableSpan, children: dict[int | None, list[ReadableSpan]], indent: str, lines: list[str]
) -> None:
    below = children.get(span.context.span_id if span.context else None, [])
    for position, child in enumerate(below):
        is_last = position == len(below) - 1
        lines.append(f"{indent}{'└─' if is_last else '├─'} {describe_span(child)}")
        _draw_children(child, children, f"{indent}{'   ' if is_last else '│  '}", lines)


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
    return "  ".join(part for part in parts if part)


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
    text = " ".join(str(value).split())
    return text if len(text) <= MAX_PAYLOAD_CHARACTERS else f"{text[: MAX_PAYLOAD_CHARACTERS - 1]}…"


def _duration(span: ReadableSpan) -> str:
    nanoseconds = (span.end_time or 0) - (span.start_time or 0)
    if nanoseconds < 1_000_000:
        return f"{nanoseconds / 1e3:.0f} µs"
    return f"{nanoseconds / 1e6:.1f} ms" if nanoseconds < 1_000_000_000 else f"{nanoseconds / 1e9:.2f} s"
