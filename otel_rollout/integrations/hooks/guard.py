"""The guard between our code and a trainer's: our failures are logged once, and the trainer goes on."""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import partial
from typing import Any

from otel_rollout.integrations.hooks.hook import Hook, Patch
from otel_rollout.safety.guard import call_guarded
from otel_rollout.safety.log_once import internal_errors, warn_once

__all__ = ["guarded", "report"]


def guarded(hook: Hook | Patch, step: Callable[..., Any], *arguments: Any) -> Any:
    """Return `step(*arguments)`, or None if it fails; exceptions that aren't faults of ours pass."""
    return call_guarded(partial(report, hook), step, *arguments)


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
