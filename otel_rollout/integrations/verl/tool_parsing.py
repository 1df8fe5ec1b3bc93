"""Tool calls that verl's parser can't read: it logs an error, and goes on as if the model had not asked for any."""

from __future__ import annotations

import functools
import logging
import sys
from collections.abc import Callable
from contextvars import ContextVar
from typing import Any, Final

from opentelemetry.trace import StatusCode, get_current_span

from otel_rollout import op, runtime, semconv
from otel_rollout.integrations.verl.tools import MAX_MESSAGE_CHARACTERS, count_tool_call
from otel_rollout.log_once import internal_error
from otel_rollout.payload import snapshot

__all__ = ["note_failure", "trace_extract"]

_failures: Final[ContextVar[list[tuple[str, BaseException | None]] | None]] = ContextVar(
    "otel-rollout-verl-parsing", default=None
)


def note_failure(record: logging.LogRecord) -> bool:
    """Note what a parser says of a call that it can't read; a filter of verl's logger that lets everything pass."""
    failures = _failures.get()
    if failures is not None and record.levelno >= logging.ERROR:
        failures.append((record.getMessage(), sys.exc_info()[1]))
    return True


def trace_extract(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return `extract_tool_calls` of a parser as an op, in which each call that can't be read is a failed TOOL span.

    Args:
        function: The method, a coroutine function.
    """

    @functools.wraps(function)
    async def extract_tool_calls(*args: Any, **kwargs: Any) -> Any:
        failures: list[tuple[str, BaseException | None]] = []
        token = _failures.set(failures)
        try:
            return await function(*args, **kwargs)
        finally:
            _failures.reset(token)
            for message, error in failures:
                _unreadable(message, error)

    # Its arguments are what the turn before has come to.
    return op.rollout_trace_op(capture_inputs=False)(extract_tool_calls)


@op.rollout_trace_op(name="unreadable_tool_call", kind="TOOL", capture_inputs=False, capture_output=False)
def _unreadable(message: str, error: BaseException | None) -> None:
    try:
        span, pipeline = get_current_span(), runtime.pipeline
        if pipeline is None or not span.is_recording():
            return
        text = getattr(error, "doc", None)
        if isinstance(text, str):
            pipeline.tracer.set_input(span, snapshot({"text": text}))
        span.set_attribute(semconv.ERROR_TYPE, type(error).__name__ if error is not None else "tool_call")
        span.set_status(StatusCode.ERROR, message[:MAX_MESSAGE_CHARACTERS])
        count_tool_call(is_error=True)
    except Exception:  # noqa: BLE001, RUF100 - tracing never reaches the traced program
        internal_error("describing a tool call of verl")
