"""The guard between our code and a trainer's: our failures are logged once, and the trainer goes on."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

from otel_rollout.integrations.hooks.hook import Hook, Patch
from otel_rollout.safety.log_once import internal_errors, warn_once
from otel_rollout.safety.signal_handlers import is_from_signal_handler

__all__ = ["guarded", "is_fault", "report"]


def guarded(hook: Hook | Patch, step: Callable[..., Any], *arguments: Any) -> Any:
    """Return `step(*arguments)`, or None if it fails; exceptions that aren't faults of ours pass."""
    try:
        return step(*arguments)
    except BaseException as error:
        if not is_fault(error):
            raise
        report(hook, error)
        return None


def is_fault(error: BaseException) -> bool:
    """Return whether an exception that left our code is our own failure.

    Ctrl-C, cancellation and exceptions of the program's signal handlers can come up in any code.
    PyO3 makes a panic in Rust (in a tokenizer, say) a BaseException.
    """
    if not isinstance(error, Exception):
        return type(error).__module__ == "pyo3_runtime"
    return not is_from_signal_handler(error)


def report(hook: Hook | Patch, error: BaseException, lost: str = "") -> None:
    """Log once per hook that a library differs from what the hook expects.

    Args:
        hook: The hook.
        error: The difference; an exception that was raised is logged with its traceback.
        lost: A phrase on what isn't traced; `hook.lost` if empty.

    Raises:
        BaseException: The error itself if it was raised, in our own test runs
            (`OTEL_ROLLOUT_RAISE_INTERNAL_ERRORS`).
    """
    library = hook.module.partition(".")[0]
    internal_errors[f"hooking {library}'s {hook.target}"] += 1
    was_raised = error.__traceback__ is not None
    warn_once(
        f"{library} {hook.target}",
        "%s: %s, as this %s is not as expected (%s: %s)",
        library,
        lost or hook.lost,
        library,
        type(error).__name__,
        error,
        exc_info=error if was_raised else None,
    )
    if was_raised and os.environ.get("OTEL_ROLLOUT_RAISE_INTERNAL_ERRORS"):
        raise error
