"""`guarded`: tracing never reaches the traced program."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, TypeVar, cast

from otel_rollout.safety.log_once import internal_error
from otel_rollout.safety.signal_handlers import is_from_signal_handler

__all__ = ["call_guarded", "drop_fault", "guarded", "is_fault"]

Function = TypeVar("Function", bound=Callable[..., Any])


def guarded(doing: str) -> Callable[[Function], Function]:
    """Decorate a function that the traced program's thread runs: a fault in it is logged once, counted and dropped.

    The function returns None then. Exceptions that aren't faults of ours pass.

    Args:
        doing: The function's work for the log, such as "ending a span".
    """

    def guard(function: Function) -> Function:
        @functools.wraps(function)
        def guarded_function(*args: Any, **kwargs: Any) -> Any:
            try:
                return function(*args, **kwargs)
            except BaseException as error:
                drop_fault(error, doing)
                return None

        return cast("Function", guarded_function)

    return guard


def drop_fault(error: BaseException, doing: str) -> None:
    """Log and count the exception that is being handled, if it is a fault of ours; others are raised again.

    A function that makes another context current calls this itself, after it has restored the context: a signal
    handler may raise between its end and the end of `guarded`.

    Args:
        error: The exception.
        doing: The work that failed, for the log.
    """
    if not is_fault(error):
        raise  # noqa: PLE0704 - called from except blocks only
    internal_error(doing)


def call_guarded(report: Callable[[BaseException], None], function: Callable[..., Any], *arguments: Any) -> Any:
    """Return what a function returns, or None if it fails: its fault is reported.

    Args:
        report: Takes the fault.
        function: The function; exceptions that aren't faults of ours pass.
        *arguments: The function's arguments.
    """
    try:
        return function(*arguments)
    except BaseException as error:
        # PyO3 makes a panic in Rust (in a tokenizer, say) a BaseException.
        if not is_fault(error) and type(error).__module__ != "pyo3_runtime":
            raise
        report(error)
        return None


def is_fault(error: BaseException) -> bool:
    """Return whether an exception that left our code is our own failure.

    Ctrl-C, cancellation and exceptions of the program's signal handlers can come up in any code.
    """
    return isinstance(error, Exception) and not is_from_signal_handler(error)
