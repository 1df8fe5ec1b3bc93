"""Record on a span the exception that left traced code."""

from __future__ import annotations

from typing import Final

from opentelemetry.trace import Span, StatusCode

from otel_rollout import semconv
from otel_rollout.record.exception_record import ExceptionRecord, exception_message, exception_type_name
from otel_rollout.record.recording_span import RolloutSpan

MAX_MESSAGE_CHARACTERS: Final = 2000


def record_failure(span: Span, error: BaseException) -> str:
    """Record `error` on `span` and return the trajectory's status: `error` or `cancelled`.

    `asyncio.CancelledError`, `KeyboardInterrupt` and `SystemExit` cancel: the span fails, without a stack trace.
    `GeneratorExit` cancels and the span doesn't fail: the consumer stopped the iteration.

    Args:
        span: A span that has not ended.
        error: The exception.
    """
    name = exception_type_name(error)
    if issubclass(type(error), Exception):
        span.set_attribute(semconv.ERROR_TYPE, name)
        message = exception_message(error)[:MAX_MESSAGE_CHARACTERS]
        span.set_status(StatusCode.ERROR, f"{name}: {message}" if message else name)
        if isinstance(span, RolloutSpan):
            span.record_exception(error)
        else:
            # The SDK's own `record_exception` calls the exception's `__str__`, which is code of its class.
            span.add_event(semconv.EXCEPTION_EVENT, ExceptionRecord(error).attributes())
        return "error"
    if not issubclass(type(error), GeneratorExit):
        span.set_attribute(semconv.ERROR_TYPE, name)
        span.set_status(StatusCode.ERROR, "cancelled")
    span.set_attribute(semconv.STATUS, "cancelled")
    return "cancelled"
