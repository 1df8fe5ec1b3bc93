"""An exception that left traced code, as it stands on a span."""

from __future__ import annotations

from typing import Final

from opentelemetry.trace import Span, StatusCode

from otel_rollout import semconv

__all__ = ["record_failure"]

MAX_MESSAGE_CHARACTERS: Final = 2000


def record_failure(span: Span, error: BaseException) -> str:
    """Write `error` on `span` and return the status that it means: `error` or `cancelled`.

    `asyncio.CancelledError`, `KeyboardInterrupt` and `SystemExit` cancel: the span is marked as failed, without a
    stack trace. `GeneratorExit` cancels without failing: the consumer of a generator had enough.

    Args:
        span: A span that has not ended.
        error: What left the traced code.
    """
    name = _type_name(error)
    if isinstance(error, Exception):
        span.set_attribute(semconv.ERROR_TYPE, name)
        message = _message(error)
        span.set_status(StatusCode.ERROR, f"{name}: {message}" if message else name)
        try:
            span.record_exception(error)
        except Exception:  # noqa: BLE001, RUF100 - the SDK's span asks the exception for its text
            span.add_event(semconv.EXCEPTION_EVENT, {semconv.EXCEPTION_TYPE: name})
        return "error"
    if not isinstance(error, GeneratorExit):
        span.set_attribute(semconv.ERROR_TYPE, name)
        span.set_status(StatusCode.ERROR, "cancelled")
    span.set_attribute(semconv.STATUS, "cancelled")
    return "cancelled"


def _type_name(error: BaseException) -> str:
    cls = type(error)
    return cls.__qualname__ if cls.__module__ == "builtins" else f"{cls.__module__}.{cls.__qualname__}"


def _message(error: BaseException) -> str:
    try:
        return str(error)[:MAX_MESSAGE_CHARACTERS].encode("utf-8", "replace").decode()
    except Exception:  # noqa: BLE001, RUF100 - `__str__` is the user's
        return ""
