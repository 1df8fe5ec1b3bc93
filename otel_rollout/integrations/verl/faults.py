"""Which exceptions are faults of ours, and how they are reported: one warning, and the traced program goes on."""

from __future__ import annotations

import functools
import inspect
import logging
import os
import signal
from collections.abc import Iterator
from types import CodeType
from typing import Any, Final

from otel_rollout.log_once import internal_errors

__all__ = ["forget", "is_fault", "report"]

_logger: Final = logging.getLogger("otel_rollout")
_reported: Final[set[str]] = set()


def is_fault(error: BaseException) -> bool:
    """Whether an exception that left our code is a fault of ours, and not something that was to reach the program.

    Ctrl-C, cancellation and what a signal handler of the program raises (graders set alarms) come up in whatever code
    runs at that moment. PyO3 makes a BaseException of a panic in Rust, in a tokenizer say.

    Args:
        error: The exception.
    """
    if not isinstance(error, Exception):
        return type(error).__module__ == "pyo3_runtime"
    handlers = set(_codes_of_signal_handlers())
    traceback = error.__traceback__
    while traceback is not None:
        if traceback.tb_frame.f_code in handlers:
            return False
        traceback = traceback.tb_next
    return True


def report(target: str, lost: str, error: BaseException) -> None:
    """Log once for each function of verl that it is not as expected, and what is therefore not traced.

    Args:
        target: The function's name.
        lost: What is not traced.
        error: What was found out; with a traceback where it was raised in a call.

    Raises:
        BaseException: The error itself, in a test run of ours (`OTEL_ROLLOUT_RAISE_INTERNAL_ERRORS`).
    """
    internal_errors[f"hooking verl's {target}"] += 1
    if target not in _reported:
        _reported.add(target)
        _logger.warning(
            "verl: %s, as this verl is not as expected (%s: %s)",
            lost,
            type(error).__name__,
            error,
            exc_info=error if error.__traceback__ is not None else None,
        )
    if error.__traceback__ is not None and os.environ.get("OTEL_ROLLOUT_RAISE_INTERNAL_ERRORS"):
        raise error


def forget() -> None:
    """Forget what was reported; for tests."""
    _reported.clear()


def _codes_of_signal_handlers() -> Iterator[CodeType]:
    for number in signal.valid_signals():
        handler: Any = signal.getsignal(number)
        while isinstance(handler, functools.partial):
            handler = handler.func
        handler = getattr(handler, "__func__", handler)
        if not hasattr(handler, "__code__"):
            handler = inspect.getattr_static(type(handler), "__call__", None)
        code = getattr(handler, "__code__", None)
        if isinstance(code, CodeType):
            yield code
