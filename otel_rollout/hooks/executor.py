"""Keep the trajectory in executor threads: `loop.run_in_executor` drops the caller's context.

`asyncio.to_thread` copies the whole context; verl's reward managers and tool parsers use `run_in_executor(None, …)`.
Only OpenTelemetry's context and our own variables go along: with a whole copied context, the program's own variables
(numpy's error handling, decimal precision) would reach threads that they don't reach without us.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable
from contextvars import ContextVar, Token
from functools import partial
from typing import Any, Final

from opentelemetry import context as context_api

from otel_rollout.record.context import attach, leave_variable

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
        tokens: list[Token[Any]] = [variable.set(value) for variable, value in self._values]
        tokens.append(attach(self._context))
        try:
            return self._function(*args)
        finally:
            for token in reversed(tokens):
                leave_variable(token)

    def __reduce__(self) -> tuple[Any, ...]:
        # A process pool gets the bare function.
        return partial, (self._function,)
