"""Values of spans as summaries have them: bounded, and None if they have another type."""

from __future__ import annotations

import math
import sys
from collections.abc import Mapping, Sequence
from typing import Any, Final

from opentelemetry.sdk.trace import ReadableSpan

from otel_rollout import semconv
from otel_rollout.facts.span_figures import text_of
from otel_rollout.text.sanitize import INT64_MAX, fits_int64

__all__ = ["integer_of", "last_text", "number_of", "scalars_of", "times_of"]

MAX_TEXT_CHARACTERS: Final = 1024
"""Longer strings of the root are left out of its scalar attributes."""

_PAYLOAD: Final = frozenset(
    {
        semconv.INPUT_VALUE,
        semconv.OUTPUT_VALUE,
        semconv.INPUT_MIME_TYPE,
        semconv.OUTPUT_MIME_TYPE,
        semconv.INPUT_MESSAGES,
        semconv.OUTPUT_MESSAGES,
        semconv.TOOL_DEFINITIONS,
        semconv.METADATA,
        semconv.SPAN_KIND,
        semconv.OPERATION_NAME,
    }
)


def scalars_of(attributes: Mapping[str, Any], trace_id: str) -> dict[str, Any]:
    """Return the attributes that fit into an index: strings other than the trace id, booleans and numbers."""
    scalars: dict[str, Any] = {}
    for key, value in attributes.items():
        if key in _PAYLOAD:
            continue
        if isinstance(value, str):
            if len(value) <= MAX_TEXT_CHARACTERS and value != trace_id:
                scalars[key] = value
        elif isinstance(value, float):
            if math.isfinite(value):
                scalars[key] = float(value)
        elif isinstance(value, int) and fits_int64(value):
            scalars[key] = value
    return scalars


def last_text(reasons: Any) -> str | None:
    """Return the last of the finish reasons."""
    if isinstance(reasons, Sequence) and not isinstance(reasons, str):
        reasons = reasons[-1] if reasons else None
    return text_of(reasons)


def times_of(span: ReadableSpan) -> tuple[int, int]:
    """Return a span's start and end, within 64 bits."""
    end = span.end_time or 0
    start = span.start_time or end
    return (start, end) if end <= INT64_MAX and start <= INT64_MAX else (min(start, INT64_MAX), min(end, INT64_MAX))


def integer_of(value: Any) -> int | None:
    """Return an integer of 64 bits; None if the value is none."""
    return value if type(value) is int and fits_int64(value) else None


def number_of(value: Any) -> float | None:
    """Return a finite number; None if the value is none."""
    if isinstance(value, bool) or not isinstance(value, (int, float)) or abs(value) > sys.float_info.max:
        return None
    return None if math.isnan(value) else float(value)
