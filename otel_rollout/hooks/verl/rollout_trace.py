"""Make our trajectories and ops of verl's `rollout_trace_attr` and `rollout_trace_op`."""

from __future__ import annotations

import functools
import inspect
import sys
from collections.abc import Callable
from types import TracebackType
from typing import Any, Final

from otel_rollout import semconv
from otel_rollout.hooks import Call, Hook, after
from otel_rollout.hooks.guard import guarded
from otel_rollout.hooks.patching import is_replaced, observe
from otel_rollout.hooks.verl import generation, tools
from otel_rollout.hooks.verl.rollout import Rollout, current_rollout
from otel_rollout.record import op, trajectory
from otel_rollout.record.annotate import annotate

_MODULE: Final = "verl.utils.rollout_trace"
_ARGUMENTS: Final = ("sample_index", "step", "rollout_n", "name", "validate", "trace")

OPS: Final = (generation.GENERATE, tools.EXECUTE, tools.EXTRACT)
"""Hooks for functions that verl decorates: by the function's name, and the first only in its own module."""


def _add_trajectory(call: Call, result: Any) -> _Traced:
    """Return `rollout_trace_attr`'s context manager with our trajectory inside."""
    kind = type(result)
    if not hasattr(kind, "__enter__") or not hasattr(kind, "__exit__"):
        raise TypeError(f"rollout_trace_attr returns {kind.__name__}")
    return _Traced(result, {name: call.arguments[name] for name in _ARGUMENTS if name in call.arguments})


class _Traced:
    """The context manager of verl's `rollout_trace_attr`, with a trajectory inside."""

    def __init__(self, verls: Any, arguments: dict[str, Any]) -> None:
        self._verls = verls
        self._arguments = arguments
        self._trajectory: trajectory.Trajectory | None = None
        self._rollout: Rollout | None = None

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
        self._run(self._end, kind, error, traceback)
        return self._verls.__exit__(kind, error, traceback)

    def _begin(self) -> None:
        """Begin a trajectory; the first one inside an agent loop has its identity."""
        arguments, rollout = self._arguments, current_rollout()
        if rollout is not None and not rollout.is_entered:
            rollout.is_entered = True
            step, sample_index, rollout_n, *_ = rollout.identity
            numbers = {"step": step, "sample_index": sample_index, "rollout_n": rollout_n}
            arguments = {**arguments, **numbers, "trace": rollout.is_traced}
        self._trajectory = trajectory.rollout_trace_attr(**arguments)
        self._trajectory.__enter__()
        if rollout is not None and arguments.get("trace", True):
            self._rollout = rollout
            content = {"messages": list(rollout.messages)} if rollout.messages is not None else None
            annotate(input=content, **rollout.attributes)

    def _end(self, *exception: Any) -> None:
        rollout = self._rollout
        try:
            if rollout is not None and rollout.tool_calls:
                counts: dict[str, Any] = {
                    semconv.TOOL_CALLS: rollout.tool_calls,
                    semconv.TOOL_ERRORS: rollout.tool_errors,
                }
                annotate(**counts)
        finally:
            self._leave(*exception)

    def _leave(self, *exception: Any) -> None:
        if self._trajectory is not None:
            self._trajectory.__exit__(*exception)
        self._trajectory = self._rollout = None

    def _run(self, step: Callable[..., Any], *arguments: Any) -> None:
        try:
            guarded(ATTRIBUTES, step, *arguments)
        except BaseException:
            # Ctrl-C, for example: our trajectory and verl's context manager are left too.
            exception = sys.exc_info()
            try:
                self._leave(*exception)
            finally:
                self._verls.__exit__(*exception)
            raise


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


def _decorate(call: Call, result: Any) -> Any:
    """Return the function with our decorator, instead of verl's if verl's has no options; None for all else."""
    if not _is_ours():
        return None
    given = [*call.args, *call.kwargs.values()]
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
    """Return True if `RolloutTraceConfig.init` is hooked: otherwise verl traces, and its own decorator stays."""
    config = getattr(sys.modules.get(_MODULE), "RolloutTraceConfig", None)
    return is_replaced(getattr(config, "init", None))


ATTRIBUTES: Final = Hook(_MODULE, "rollout_trace_attr", "trajectories are not traced", after(_add_trajectory))

HOOKS: Final = (
    ATTRIBUTES,
    Hook(_MODULE, "rollout_trace_op", "functions are not traced", after(_decorate), while_off=True),
)
