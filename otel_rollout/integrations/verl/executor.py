"""Threads that keep their trajectory: `run_in_executor` drops the context of whoever calls it.

`asyncio.to_thread` keeps it; verl's reward managers and tool parsers use `loop.run_in_executor(None, …)`. Only
OpenTelemetry's context and the trajectory go along: a whole copied context would have the program's own context
variables (numpy's error handling, decimal precision) hold in its threads, where they don't hold without us.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable
from functools import partial
from typing import Any, Final

from opentelemetry import context as context_api

from otel_rollout.integrations.verl.rollout import current_rollout, rollout_variable
from otel_rollout.spans.context import leave

__all__ = ["keep_context"]

_MARK: Final = "__otel_rollout_hook__"


def keep_context() -> None:
    """Have functions that the running event loop hands to its default executor run inside the caller's trajectory.

    The executor is the program's own: uvloop's loops don't show which one they have.

    Raises:
        AttributeError: The loop takes no attributes.
    """
    loop: Any = asyncio.get_running_loop()
    original = loop.run_in_executor
    if hasattr(original, _MARK):
        return

    def run_in_executor(*args: Any, **kwargs: Any) -> Any:
        return original(*_in_trajectory(args), **kwargs)

    setattr(run_in_executor, _MARK, True)
    loop.run_in_executor = run_in_executor


def _in_trajectory(args: tuple[Any, ...]) -> tuple[Any, ...]:
    if len(args) < 2 or args[0] is not None or not callable(args[1]) or inspect.iscoroutinefunction(args[1]):
        # Among them what the loop itself refuses.
        return args
    return (None, _InTrajectory(args[1]), *args[2:])


class _InTrajectory:
    """A function that runs in a thread inside the trajectory that it was handed over in."""

    def __init__(self, function: Callable[..., Any]) -> None:
        self._function = function
        self._context = context_api.get_current()
        self._rollout = current_rollout()

    def __call__(self, *args: Any) -> Any:
        rollout = rollout_variable.set(self._rollout)
        context = context_api.attach(self._context)
        try:
            return self._function(*args)
        finally:
            leave(context)
            rollout_variable.reset(rollout)

    def __reduce__(self) -> tuple[Any, ...]:
        # An executor of processes gets what it would have got.
        return partial, (self._function,)
