"""The op: a decorator that traces each call of a function as a span."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, TypeVar, overload

from otel_rollout import semconv
from otel_rollout.record.call import Capture, Operation
from otel_rollout.record.callables import like, require_function
from otel_rollout.record.driver import wrap
from otel_rollout.semconv import Role, SpanKind

Function = TypeVar("Function", bound=Callable[..., Any])


@overload
def rollout_trace_op(function: Function, /) -> Function: ...


@overload
def rollout_trace_op(
    *,
    name: str | None = None,
    kind: SpanKind = "CHAIN",
    role: Role | None = None,
    capture_inputs: Capture = True,
    capture_output: Capture = True,
    follow_result: bool = False,
) -> Callable[[Function], Function]: ...


def rollout_trace_op(
    function: Any = None,
    /,
    *,
    name: str | None = None,
    kind: str = "CHAIN",
    role: str | None = None,
    capture_inputs: Capture = True,
    capture_output: Capture = True,
    follow_result: bool = False,
) -> Any:
    """Trace each call of a function as a span under the current one, with its arguments, result and error.

    Works bare (`@rollout_trace_op`) and with arguments, on functions, methods, class methods and static methods, on
    coroutine functions, generators, async generators and objects with a `__call__`. A generator's span covers the
    iteration, and its output is the list of yielded items. If a function returns a new coroutine, generator or task,
    its span covers that, too. The bare form is verl's `rollout_trace_op`
    (https://verl.readthedocs.io/en/latest/advance/rollout_trace.html).

    Args:
        function: The function.
        name: The span's name; if None, the function's qualified name.
        kind: OpenInference's span kind: `LLM`, `TOOL`, `CHAIN`, `AGENT` or `EVALUATOR`, in any case.
        role: The side that an LLM op or an agent speaks for: `policy`, or `user` for a simulated user, whose turns and
            tokens are not the trajectory's. Without it, the agent's around it; else the trace's readers find out.
        capture_inputs: Record the arguments, without a first one that is named `self` or `cls`. Or a function that
            takes these arguments by name, in one dict, and returns the value to record: it runs on the caller's thread,
            and if it raises, one warning is logged.
        capture_output: Record the result; or a function that takes the result, or each yielded item, and returns the
            value to record.
        follow_result: If the function returns an iterator, such as a client's stream, the span lasts until that has
            ended, is closed or is freed, and its output is the list of items. The caller gets a proxy that passes
            everything on to the iterator; without it, the iterator itself, and the span ends at the return.

    Raises:
        ValueError: The kind or the role is none of these, or another kind has a role.
        TypeError: The decorated object is a class, or not callable; or the kind or the name is not given by its name.
    """
    if isinstance(function, str):
        meant = "kind" if function.upper() in semconv.SPAN_KINDS else "name"
        raise TypeError(f'rollout_trace_op({function!r}): use {meant}="{function}"')
    if isinstance(kind, str):
        kind = kind.upper()
    if kind not in semconv.SPAN_KINDS:
        raise ValueError(f"rollout_trace_op(kind={kind!r}): the kinds are {', '.join(semconv.SPAN_KINDS)}")
    if role is not None and (role not in semconv.ROLES or kind not in ("AGENT", "LLM")):
        roles = " and ".join(semconv.ROLES)
        raise ValueError(f"rollout_trace_op(kind={kind!r}, role={role!r}): LLM and AGENT ops have the roles {roles}")

    options: dict[str, Any] = {
        "name": name,
        "kind": kind,
        "role": role,
        "capture_inputs": capture_inputs,
        "capture_output": capture_output,
        "follow_result": follow_result,
    }

    def decorate(target: Any) -> Any:
        if isinstance(target, (classmethod, staticmethod)):
            return type(target)(decorate(target.__func__))
        require_function(target, "rollout_trace_op")
        operation = Operation(target, **options)
        return like(target, wrap(target, operation.begin), functools.partial(_decorate_again, options))

    return decorate if function is None else decorate(function)


def _decorate_again(options: dict[str, Any], target: Any) -> Any:
    return rollout_trace_op(**options)(target)
