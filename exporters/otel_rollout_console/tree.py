"""One trace as lines of text."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, NamedTuple

from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.trace import StatusCode

from otel_rollout import semconv
from otel_rollout.analysis.trace_tree import Place, duration, place_of, printable, shorten, walk_tree

__all__ = ["Branch", "describe_span", "draw_trace", "make_branch"]

MAX_PAYLOAD_CHARACTERS: Final = 60


class Branch(NamedTuple):
    """What is kept of a span until its trace is drawn.

    Args:
        place: Where the span stands.
        line: What is drawn.
    """

    place: Place
    line: str


def make_branch(span: ReadableSpan) -> Branch:
    """Return what is kept of `span`: its line, not its payload."""
    return Branch(place_of(span), describe_span(span))


def draw_trace(branches: Sequence[Branch]) -> list[str]:
    """Return a trace as lines: the trajectory first, what it did below it, in the order of start.

    Args:
        branches: All spans of one trace; one whose parent is missing is drawn as a root.
    """
    return [f"{guide}{branch.line}" for branch, guide, _ in walk_tree(branches, lambda branch: branch.place)]


def describe_span(span: ReadableSpan) -> str:
    """Return one line on a span: kind, name, duration, tags and totals of a root, payload of an op, error."""
    attributes = span.attributes or {}
    parts = [
        f"{attributes.get(semconv.SPAN_KIND, 'SPAN')} {span.name}",
        duration((span.end_time or 0) - (span.start_time or 0)),
    ]
    if span.parent is None and semconv.STATUS in attributes:
        parts.append(" ".join(_summary(attributes)))
    else:
        payload = [_clip(attributes[key]) for key in (semconv.INPUT_VALUE, semconv.OUTPUT_VALUE) if key in attributes]
        parts.append(" → ".join(payload))
    if span.status.status_code is StatusCode.ERROR:
        parts.append(f"ERROR {_clip(span.status.description or '')}".rstrip())
    return printable("  ".join(part for part in parts if part))


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
    return shorten(str(value), MAX_PAYLOAD_CHARACTERS)
