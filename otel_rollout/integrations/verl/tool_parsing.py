"""Tool calls that verl's parser can't read: it logs an error, and goes on as if the model had not asked for any."""

from __future__ import annotations

import logging
import sys
from contextvars import ContextVar
from typing import Any, ClassVar, Final

from opentelemetry.trace import StatusCode, get_current_span

from otel_rollout import semconv
from otel_rollout.capture import op
from otel_rollout.integrations.verl.faults import report
from otel_rollout.integrations.verl.hook import Call, Hook, Observer, Patch
from otel_rollout.integrations.verl.tools import MAX_MESSAGE_CHARACTERS, count_tool_call
from otel_rollout.spans import runtime
from otel_rollout.values.snapshot import snapshot

__all__ = ["EXTRACT", "HOOKS"]

_Failure = tuple[str, BaseException | None]

_MODULE: Final = "verl.experimental.agent_loop.tool_parser"
_LOST: Final = "calls that can't be read are not recorded"

_failures: Final[ContextVar[list[_Failure] | None]] = ContextVar("otel-rollout-verl-parsing", default=None)


class _Extract(Observer):
    """`extract_tool_calls` of a parser, in which each call that can't be read is a failed TOOL span."""

    variable: ClassVar[ContextVar[Any] | None] = _failures
    opens_span: ClassVar[bool] = True

    def __init__(self, call: Call) -> None:
        self._failures: list[_Failure] = []

    @property
    def value(self) -> list[_Failure]:
        """What the parser's log has said."""
        return self._failures

    def end(self, result: Any) -> None:
        """Make a span of each."""
        for message, error in self._failures:
            _unreadable(message, error)

    def fail(self, error: BaseException) -> None:
        """Make a span of each."""
        self.end(None)


@op.rollout_trace_op(name="unreadable_tool_call", kind="TOOL", capture_inputs=False, capture_output=False)
def _unreadable(message: str, error: BaseException | None) -> None:
    span, pipeline = get_current_span(), runtime.pipeline
    if pipeline is None or not span.is_recording():
        return
    text = getattr(error, "doc", None)
    if isinstance(text, str):
        pipeline.tracer.set_input(span, snapshot({"text": text}))
    span.set_attribute(semconv.ERROR_TYPE, type(error).__name__ if error is not None else "tool_call")
    span.set_status(StatusCode.ERROR, message[:MAX_MESSAGE_CHARACTERS])
    count_tool_call(is_error=True)


def _note_failure(record: logging.LogRecord) -> bool:
    """Note what a parser says of a call that it can't read; a filter of verl's logger that lets everything pass."""
    try:
        failures = _failures.get()
        if failures is not None and record.levelno >= logging.ERROR:
            failures.append((record.getMessage(), sys.exc_info()[1]))
    except Exception as error:  # noqa: BLE001, RUF100 - logging catches what handlers raise, but not filters
        report("tool_parser.logger", _LOST, error)
    return True


def _watch_log(module: Any) -> None:
    module.logger.addFilter(_note_failure)


EXTRACT: Final = Hook(
    _MODULE, "HermesToolParser.extract_tool_calls", "parsing is not traced", _Extract, captures=(False, True)
)
"""Of every parser; the arguments are what the turn before has come to."""

HOOKS: Final = (Patch(_MODULE, "logger", _LOST, _watch_log),)
