"""Facts that several exporters read from a span."""

from __future__ import annotations

import math

from opentelemetry.sdk.trace import ReadableSpan

from otel_rollout import semconv

__all__ = ["reward_of", "span_id_of", "trace_id_of"]


def trace_id_of(span: ReadableSpan) -> int:
    """Return the span's trace id; zero if it has none."""
    context = span.get_span_context()
    return 0 if context is None else context.trace_id


def span_id_of(span: ReadableSpan) -> str:
    """Return the span's id in 16 hexadecimal digits; zeros if it has none."""
    context = span.get_span_context()
    return f"{0 if context is None else context.span_id:016x}"


def reward_of(span: ReadableSpan) -> float | None:
    """Return the reward on a span, if it is a finite number: on the root, or on a span that computed it later."""
    reward = (span.attributes or {}).get(semconv.REWARD)
    if isinstance(reward, bool) or not isinstance(reward, (int, float)):
        return None
    return float(reward) if math.isfinite(reward) else None
