"""Keep the trajectory in executor threads: `loop.run_in_executor` drops the caller's context.

`asyncio.to_thread` copies the whole context; verl's reward managers and tool parsers use `run_in_executor(None, …)`.
Only OpenTelemetry's context and our own variables go along: with a whole copied context, the program's own variables
(numpy's error handling, decimal precision) would reach threads that they don't reach without us.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable
from contextvars import ContextVar
from functools import partial
from typing import Any, Final

from opentelemetry import context as context_api

from otel_rollout.record.context import restore

_MARK: Final = "__otel_rollout_hook__"


def keep_context(*variables: ContextVar[Any]) -> None:
    """Run functions for the running loop's default executor in their caller's trajectory.

    Wraps the loop's method, not the executor: uvloop's loops don't show theirs.

    Args:
        *variables: Variables that go along with OpenTelemetry's context.

    Raises:
        AttributeError: The loop takes no attributes.
    """
    loop: Any = asyncio.get_running_loop()
    original = loop.run_in_executor
    if hasattr(original, _MARK):
        return

    def run_in_executor(*args: Any, **kwargs: Any) -> Any:
        # The loop itself refuses wrong arguments.
        if len(args) > 1 and args[0] is None and callable(args[1]) and not inspect.iscoroutinefunction(args[1]):
            args = (None, _InTrajectory(args[1], variables), *args[2:])
        return original(*args, **kwargs)

    setattr(run_in_executor, _MARK, True)
    loop.run_in_executor = run_in_executor


class _InTrajectory:
    """A function that runs in the trajectory in which this object was made."""

    def __init__(self, function: Callable[..., Any], variables: tuple[ContextVar[Any], ...]) -> None:
        self._function = function
        self._context = context_api.get_current()
        self._values = [(variable, variable.get()) for variable in variables]

    def __call__(self, *args: Any) -> Any:
        outer = context_api.get_current()
        before = [(variable, variable.get()) for variable, _ in self._values]

        def leave() -> None:
            # Not by tokens: an exception of the program may come before one is stored.
            restore(outer)
            for variable, value in before:
                variable.set(value)

        try:
            try:
                for variable, value in self._values:
                    variable.set(value)
                context_api.attach(self._context)
                return self._function(*args)
            finally:
                leave()
        finally:
            # Again, if one came in the middle.
            leave()

    def __reduce__(self) -> tuple[Any, ...]:
        # A process pool gets the bare function.
        return partial, (self._function,)
