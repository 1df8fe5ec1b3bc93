"""Facts that several exporters read from a span."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from otel_rollout import semconv
from otel_rollout.text.sanitize import replace_surrogates

if TYPE_CHECKING:
    from opentelemetry.sdk.trace import ReadableSpan

_OWN_SCOPE: Final = "otel_rollout"
_KINDS_OF_OPERATIONS: Final = {
    "agent": "AGENT",
    "chat": "LLM",
    "create_agent": "AGENT",
    "embeddings": "EMBEDDING",
    "execute_tool": "TOOL",
    "generate_content": "LLM",
    "invoke_agent": "AGENT",
    "task": "CHAIN",
    "text_completion": "LLM",
    "tool": "TOOL",
    "workflow": "CHAIN",
}
_TRACELOOP_KIND: Final = "traceloop.span.kind"
_PLACE: Final = (("s", semconv.SAMPLE_INDEX), ("r", semconv.ROLLOUT_N))


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
    try:
        return float(reward) if math.isfinite(reward) else None
    except OverflowError:
        # An integer beyond a float's range.
        return None


def is_late_annotation(span: ReadableSpan) -> bool:
    """Return True for a span that has only facts of an ended trajectory: stored, it would lengthen the trace."""
    return (span.attributes or {}).get(semconv.LATE) is True


def exception_attributes(span: ReadableSpan) -> Mapping[str, Any]:
    """Return the attributes of the span's last exception event; empty if it has none."""
    found: Mapping[str, Any] = {}
    for event in span.events:
        if event.name == semconv.EXCEPTION_EVENT:
            found = event.attributes or {}
    return found


def is_own(span: ReadableSpan) -> bool:
    """Return True if otel-rollout made the span, and not another instrumentation."""
    scope = span.instrumentation_scope
    return scope is not None and scope.name.replace("-", "_").partition(".")[0] == _OWN_SCOPE


def kind_of(attributes: Mapping[str, Any]) -> str | None:
    """Return a span's OpenInference kind; without one, the kind that its GenAI operation has; None if it has neither.

    Source: https://opentelemetry.io/docs/specs/semconv/gen-ai/gen-ai-spans/, `gen_ai.operation.name`.
    """
    kind = attributes.get(semconv.SPAN_KIND)
    if isinstance(kind, str) and kind:
        return replace_surrogates(kind)
    operation = attributes.get(semconv.OPERATION_NAME) or attributes.get(_TRACELOOP_KIND)
    return _KINDS_OF_OPERATIONS.get(operation) if isinstance(operation, str) else None


def numbered(mark: str, value: object) -> str:
    """Return a number with its mark, `s12`; any other value, such as a uid, as it is."""
    text = replace_surrogates(str(value))
    return f"{mark}{text}" if text.isdigit() else text


def rollout_label(span: ReadableSpan, *, with_reward: bool = False) -> str:
    """Return the label of a trajectory's root, `s12 · r3 = 0.5 · step 7`, for lists that cut; empty without tags."""
    attributes = span.attributes or {}
    known = [numbered(mark, attributes[key]) for mark, key in _PLACE if key in attributes]
    if known and with_reward and (reward := reward_of(span)) is not None:
        known[-1] += f" = {reward:.3g}"
    known += [f"step {replace_surrogates(str(attributes[semconv.STEP]))}"] if semconv.STEP in attributes else []
    return " · ".join([*known, *(["validate"] if known and attributes.get(semconv.VALIDATE) is True else [])])
