"""verl's `rollout_trace_op`: ours, with what is known of verl's own functions."""

from __future__ import annotations

import inspect
import sys
from typing import Any, ClassVar, Final

from otel_rollout.capture import op
from otel_rollout.integrations.verl import generation, tool_parsing, tools
from otel_rollout.integrations.verl.hook import Call, Hook, Observer
from otel_rollout.integrations.verl.patching import is_replaced, observe

__all__ = ["HOOKS", "OPS", "rollout_trace_op"]

_MODULE: Final = "verl.utils.rollout_trace"

OPS: Final = (generation.GENERATE, tools.EXECUTE, tool_parsing.EXTRACT)
"""How functions of verl that are decorated are observed: by their names, and the first only in its own module."""


def rollout_trace_op(function: Any) -> Any:
    """Trace each call of a function as a span, as `otel_rollout.rollout_trace_op` does.

    `generate` of verl's own clients is an LLM op with one span per turn; a tool's `execute` is a TOOL op.

    Args:
        function: The function.
    """
    if inspect.iscoroutinefunction(function):
        name = getattr(function, "__name__", "")
        if name == "generate" and getattr(function, "__module__", "") == generation.GENERATE.module:
            return observe(function, generation.GENERATE)
        if name == "execute":
            return tools.trace_execute(function)
        if name == "extract_tool_calls":
            return observe(function, tool_parsing.EXTRACT)
    return op.rollout_trace_op(function)


class _Decorated(Observer):
    """`rollout_trace_op`: what it decorates is traced by us; the rest is verl's."""

    wraps: ClassVar[bool] = True

    def __init__(self, call: Call) -> None:
        self._call = call

    def wrapped(self, result: Any) -> Any:
        """Return the function with our decorator, in place of verl's where it has no options."""
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
    """Whether verl has handed its tracing to us: otherwise its own decorator has to stay."""
    config = getattr(sys.modules.get(_MODULE), "RolloutTraceConfig", None)
    return is_replaced(getattr(config, "init", None))


HOOKS: Final = (Hook(_MODULE, "rollout_trace_op", "functions are not traced", _Decorated, while_off=True),)
