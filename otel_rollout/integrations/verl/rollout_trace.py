"""Put our trajectories and ops behind verl's `rollout_trace_attr` and `rollout_trace_op`."""

from __future__ import annotations

import functools
import inspect
import sys
from collections.abc import Callable
from contextlib import AbstractContextManager
from types import TracebackType
from typing import Any, Final

from otel_rollout import op, semconv, trajectory
from otel_rollout.integrations.hooks.faults import guarded
from otel_rollout.integrations.hooks.hook import Call, Hook, Observer
from otel_rollout.integrations.hooks.patching import is_replaced, observe
from otel_rollout.integrations.verl import generation, tools
from otel_rollout.integrations.verl.rollout import Rollout, current_rollout

__all__ = ["HOOKS", "OPS", "rollout_trace_op"]

_MODULE: Final = "verl.utils.rollout_trace"
_ARGUMENTS: Final = ("sample_index", "step", "rollout_n", "name", "validate", "trace")

OPS: Final = (generation.GENERATE, tools.EXECUTE, tools.EXTRACT)
"""Hooks for functions that verl decorates: by the function's name, and the first only in its own module."""


class _Wrapping(Observer):
    """A call whose result is wrapped."""

    def __init__(self, call: Call) -> None:
        self._call = call


class _Attributes(_Wrapping):
    """`rollout_trace_attr`: the context manager that it returns also makes a trajectory."""

    def wrapped(self, result: Any) -> Any:
        """Return verl's context manager with our trajectory inside."""
        kind = type(result)
        if not hasattr(kind, "__enter__") or not hasattr(kind, "__exit__"):
            raise TypeError(f"rollout_trace_attr returns {kind.__name__}")
        given = self._call.arguments
        return _Traced(result, {name: given[name] for name in _ARGUMENTS if name in given})


class _Traced:
    """The context manager of verl's `rollout_trace_attr`, with a trajectory inside."""

    def __init__(self, verls: Any, arguments: dict[str, Any]) -> None:
        self._verls = verls
        self._arguments = arguments
        self._trajectory: AbstractContextManager[None] | None = None

    def __getattr__(self, name: str) -> Any:
        return getattr(self._verls, name)

    def __call__(self, function: Callable[..., Any]) -> Any:
        again = getattr(self._verls, "_recreate_cm", None)
        if again is None:
            return self._verls(function)

        @functools.wraps(function)
        def traced(*args: Any, **kwargs: Any) -> Any:
            # A trajectory for each call, as `contextlib.ContextDecorator` does.
            with _Traced(again(), self._arguments):
                return function(*args, **kwargs)

        return traced

    def __enter__(self) -> Any:
        value = self._verls.__enter__()
        self._run(self._begin)
        return value

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> Any:
        ours, self._trajectory = self._trajectory, None
        if ours is not None:
            self._run(ours.__exit__, kind, error, traceback)
        return self._verls.__exit__(kind, error, traceback)

    def _begin(self) -> None:
        self._trajectory = _trajectory(self._arguments)
        self._trajectory.__enter__()

    def _run(self, step: Callable[..., Any], *arguments: Any) -> None:
        try:
            guarded(ATTRIBUTES, step, *arguments)
        except BaseException:
            # Ctrl-C, say: verl's context manager is left too.
            self._verls.__exit__(*sys.exc_info())
            raise


def _trajectory(arguments: dict[str, Any]) -> AbstractContextManager[None]:
    """Return a new trajectory; the first one inside an agent loop has its identity."""
    rollout = current_rollout()
    if rollout is None:
        return trajectory.rollout_trace_attr(**arguments)
    if not rollout.is_entered:
        rollout.is_entered = True
        step, sample_index, rollout_n, *_ = rollout.identity
        numbers = {"step": step, "sample_index": sample_index, "rollout_n": rollout_n}
        arguments = {**arguments, **numbers, "trace": rollout.is_traced}
    manager = trajectory.rollout_trace_attr(**arguments)
    return _Described(manager, rollout) if arguments.get("trace", True) else manager


class _Described(AbstractContextManager[None]):
    """A trajectory whose root span has the rollout's attributes."""

    def __init__(self, manager: AbstractContextManager[None], rollout: Rollout) -> None:
        self._manager = manager
        self._rollout = rollout

    def __enter__(self) -> None:
        self._manager.__enter__()
        messages = self._rollout.messages
        content = {"messages": list(messages)} if messages is not None else None
        trajectory.annotate(input=content, **self._rollout.attributes)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> bool | None:
        rollout = self._rollout
        if rollout.tool_calls:
            counts: dict[str, Any] = {semconv.TOOL_CALLS: rollout.tool_calls, semconv.TOOL_ERRORS: rollout.tool_errors}
            trajectory.annotate(**counts)
        return self._manager.__exit__(kind, error, traceback)


def rollout_trace_op(function: Any) -> Any:
    """Trace each call of a function as a span, as `otel_rollout.rollout_trace_op` does.

    `generate` of verl's own clients is an LLM op with one span per turn; a tool's `execute` is a TOOL op.
    """
    if inspect.iscoroutinefunction(function):
        name = getattr(function, "__name__", "")
        if name == "generate" and getattr(function, "__module__", "") == generation.GENERATE.module:
            return observe(function, generation.GENERATE)
        if name == "execute":
            return tools.trace_execute(function)
        if name == "extract_tool_calls":
            return observe(function, tools.EXTRACT)
    return op.rollout_trace_op(function)


class _Decorated(_Wrapping):
    """`rollout_trace_op`: functions get our decorator; all else stays verl's."""

    def wrapped(self, result: Any) -> Any:
        """Return the function with our decorator, instead of verl's if verl's has no options."""
        if not _is_ours():
            return None
        given = [*self._call.args, *self._call.kwargs.values()]
        if given and _is_function(given[0]):
            return rollout_trace_op(given[0] if len(given) == 1 else result)
        if any(isinstance(value, type) or _is_function(value) for value in given) or not _is_function(result):
            return None

        def decorate(function: Any) -> Any:
            decorated = result(function)
            return rollout_trace_op(decorated) if _is_function(decorated) else decorated

        return decorate


def _is_function(value: Any) -> bool:
    return isinstance(value, (classmethod, staticmethod)) or (callable(value) and not isinstance(value, type))


def _is_ours() -> bool:
    """Return whether `RolloutTraceConfig.init` is hooked: otherwise verl traces, and its own decorator stays."""
    config = getattr(sys.modules.get(_MODULE), "RolloutTraceConfig", None)
    return is_replaced(getattr(config, "init", None))


ATTRIBUTES: Final = Hook(_MODULE, "rollout_trace_attr", "trajectories are not traced", _Attributes)

HOOKS: Final = (
    ATTRIBUTES,
    Hook(_MODULE, "rollout_trace_op", "functions are not traced", _Decorated, while_off=True),
)
