"""Which exceptions are faults of ours, and how they are reported: one warning, and the traced program goes on."""

from __future__ import annotations

import os

from otel_rollout.safety.log_once import internal_errors, warn_once
from otel_rollout.safety.signal_handlers import is_from_signal_handler

__all__ = ["is_fault", "report"]


def is_fault(error: BaseException) -> bool:
    """Return whether an exception that left our code is a fault of ours, and not on its way to the program.

    Ctrl-C, cancellation and what a signal handler of the program raises come up in whatever code runs at that moment.
    PyO3 makes a BaseException of a panic in Rust, in a tokenizer for one.

    Args:
        error: The exception.
    """
    if not isinstance(error, Exception):
        return type(error).__module__ == "pyo3_runtime"
    return not is_from_signal_handler(error)


def report(target: str, lost: str, error: BaseException) -> None:
    """Log once for each function of verl that it is not as expected, and what is therefore not traced.

    Args:
        target: The function's name.
        lost: What is not traced.
        error: What was found out; with a traceback if it was raised in a call.

    Raises:
        BaseException: The error itself, in a test run of ours (`OTEL_ROLLOUT_RAISE_INTERNAL_ERRORS`).
    """
    internal_errors[f"hooking verl's {target}"] += 1
    was_raised = error.__traceback__ is not None
    warn_once(
        f"verl {target}",
        "verl: %s, as this verl is not as expected (%s: %s)",
        lost,
        type(error).__name__,
        error,
        exc_info=error if was_raised else None,
    )
    if was_raised and os.environ.get("OTEL_ROLLOUT_RAISE_INTERNAL_ERRORS"):
        raise error
