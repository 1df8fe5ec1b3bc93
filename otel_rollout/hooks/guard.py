"""The guard between our code and a trainer's: a library that isn't as expected is logged once, and the trainer goes on.

Our code around a trainer's reads objects of its classes. In another version they may lack a field, or have one of
another type.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any, Final

from otel_rollout.guard.log_once import internal_errors, warn_once
from otel_rollout.guard.provenance import is_programs
from otel_rollout.hooks.hook import Hook, Patch

_PANIC: Final = "pyo3_runtime"
"""PyO3 makes a panic in Rust (in a tokenizer, for example) a BaseException of this module."""


def guarded(hook: Hook | Patch, step: Callable[..., Any], *arguments: Any) -> Any:
    """Return `step(*arguments)`; log and return None if the library isn't as the step expects."""
    try:
        return step(*arguments)
    except BaseException as error:
        if is_programs(error):
            raise
        report(hook, error)
        return None


def call_library(key: str, message: str, function: Callable[..., Any], *arguments: Any) -> Any:
    """Return the result of a library's function, such as a copy of a tokenizer; log and return None if it fails.

    Args:
        key: The subject of the warning.
        message: The warning, with `%s` for the exception.
        function: The function.
        *arguments: Its arguments.
    """
    try:
        return function(*arguments)
    except BaseException as error:
        if is_programs(error) and type(error).__module__ != _PANIC:
            raise
        warn_once(key, message, error)
        return None


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
