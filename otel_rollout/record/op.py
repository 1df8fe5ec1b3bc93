"""The op: a decorator that traces each call of a function as a span."""

from __future__ import annotations

import asyncio.tasks
import functools
import inspect
import sys
from asyncio import Future, Task
from collections.abc import AsyncGenerator, Callable, Generator
from types import AsyncGeneratorType, CoroutineType, GeneratorType, coroutine
from typing import Any, Final, TypeVar, cast, overload

from otel_rollout import semconv
from otel_rollout.record import runtime
from otel_rollout.record.call import Call, Capture, Operation
from otel_rollout.record.callables import (
    Unawaited,
    is_generator_coroutine,
    is_generator_function,
    is_kind,
    is_untouched,
    like,
    require_function,
)
from otel_rollout.record.followed_result import follow_iterator
from otel_rollout.record.readers import is_compiling
from otel_rollout.semconv import Role, SpanKind

Function = TypeVar("Function", bound=Callable[..., Any])

_Gathering: Final = getattr(asyncio.tasks, "_GatheringFuture", Future)
"""The type of what `asyncio.gather` returns."""
_LATER: Final = frozenset(map(id, (AsyncGeneratorType, CoroutineType, Future, GeneratorType, Task, _Gathering)))
"""The ids of the types of results that run later: comparing classes may call a metaclass's `__eq__`."""


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
        capture_inputs: Record the arguments; `self` and `cls` never are. Or a function that takes the arguments by
            name, in one dict, and returns the value to record: it runs on the caller's thread, and if it raises, one
            warning is logged.
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

    options = {
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
        operation = Operation(
            target,
            name,
            kind,
            capture_inputs=capture_inputs,
            capture_output=capture_output,
            follow_result=follow_result,
            role=role,
        )
        return like(target, _wrap(target, operation), functools.partial(_decorate_again, options))

    return decorate if function is None else decorate(function)


def _decorate_again(options: dict[str, Any], target: Any) -> Any:
    return rollout_trace_op(**options)(target)


def _wrap(function: Callable[..., Any], operation: Operation) -> Callable[..., Any]:
    if is_kind(inspect.isasyncgenfunction, function):
        return _wrap_async_generator(function, operation)
    if is_kind(inspect.iscoroutinefunction, function):
        return _wrap_coroutine(function, operation)
    if is_kind(is_generator_function, function):
        return _wrap_generator(function, operation)

    def traced(*args: Any, **kwargs: Any) -> Any:
        pipeline = runtime.pipeline
        if pipeline is None or is_compiling():
            return function(*args, **kwargs)
        call = Call(operation, pipeline)
        try:
            call.start(args, kwargs)
            # Only the function refers to its arguments now; it may free them before it returns.
            held: list[Any] = [kwargs, args]
            del args, kwargs
            result = function(*held.pop(), **held.pop())
            if (operation.follow_result or id(type(result)) in _LATER) and call.is_open:
                references = sys.getrefcount(result)
                later = _follow(call, result, references)
                if later is not None:
                    return later
            call.succeed(result)
            return result
        except BaseException as error:
            call.stop(error)
            raise
        finally:
            if call.is_open:
                call.clean_up()

    return traced


def _new_call(operation: Operation) -> Call | None:
    pipeline = runtime.pipeline
    return None if pipeline is None else Call(operation, pipeline)


def _follow(call: Call, result: Any, references: int) -> Any:
    """Return a form of a result that runs later and ends the span of the call that returned it.

    None if the span ends now: the program has the coroutine or generator elsewhere, or has begun it.

    Args:
        call: The call.
        result: Its result, of a type in `_LATER`; any, if the operation asks for it.
        references: The references to the result, as `is_untouched` takes them.
    """
    kind = type(result)
    if kind is Task or kind is Future or kind is _Gathering:
        return result if call.wait_for(result) else None
    later: Any
    if not is_untouched(result, references):
        later = follow_iterator(call, result) if call.operation.follow_result else None
        if later is not None:
            call.set_aside()
        return later
    if kind is CoroutineType:
        later = _finish(call, Unawaited(result))
    elif kind is GeneratorType and is_generator_coroutine(result.gi_code):
        later = _finish_generator(call, Unawaited(result))
    elif kind is GeneratorType:
        later = _wrap_generator(lambda: result, call.operation, call)()
    else:
        later = _wrap_async_generator(lambda: result, call.operation, call)()
    later.__name__, later.__qualname__ = result.__name__, result.__qualname__
    call.set_aside()
    return later


async def _finish(call: Call, awaited: Unawaited) -> Any:
    return await _finish_generator(call, awaited)


@coroutine
def _finish_generator(call: Call, awaited: Unawaited) -> Generator[Any, Any, Any]:
    try:
        call.take_up()
        result = yield from awaited.take()
        call.succeed(result)
        return result
    except BaseException as error:
        call.stop(error)
        raise
    finally:
        if call.is_open or call.token is not None:
            call.clean_up()


def _wrap_coroutine(function: Callable[..., Any], operation: Operation) -> Callable[..., Any]:
    async def traced(*args: Any, **kwargs: Any) -> Any:
        pipeline = runtime.pipeline
        if pipeline is None or is_compiling():
            return await function(*args, **kwargs)
        call = Call(operation, pipeline)
        try:
            call.start(args, kwargs)
            # Only the function refers to its arguments now; it may free them before it returns.
            held: list[Any] = [kwargs, args]
            del args, kwargs
            result = await function(*held.pop(), **held.pop())
            if (operation.follow_result or id(type(result)) in _LATER) and call.is_open:
                references = sys.getrefcount(result)
                later = _follow(call, result, references)
                if later is not None:
                    return later
            call.succeed(result)
            return result
        except BaseException as error:
            call.stop(error)
            raise
        finally:
            if call.is_open:
                call.clean_up()

    return traced


# The items of the two generators below are only ever in `held`, and are taken out as they are passed on: a frame that
# refers to an item keeps one more of them alive, and one that refers to the exception that passed it is a cycle.


def _wrap_generator(
    function: Callable[..., Any], operation: Operation, begun: Call | None = None
) -> Callable[..., Any]:
    def traced(*args: Any, **kwargs: Any) -> Generator[Any, Any, Any]:
        held: list[Any] = [kwargs, args]
        del args, kwargs
        call = begun or _new_call(operation)
        if call is None:
            return (yield from function(*held.pop(), **held.pop()))
        try:
            if begun is None:
                call.start(held[1], held[0])
            else:
                call.take_up()
            generator = cast("Generator[Any, Any, Any]", function(*held.pop(), **held.pop()))
            step: Callable[[Any], Any] = generator.send
            held.append(None)
            while True:
                call.resume()
                held.append(step(held.pop()))
                call.pause()
                call.add_yielded(held[-1])
                try:
                    held.append((yield held.pop()))
                    step = generator.send
                except BaseException as error:
                    # Thrown in by the consumer, or GeneratorExit: the generator handles it.
                    step = generator.throw
                    held.append(error)
        except StopIteration as stop:
            call.stop()
            return stop.value
        except BaseException as error:
            call.stop(error)
            raise
        finally:
            if call.is_open:
                call.clean_up()
            held.clear()

    return traced


def _wrap_async_generator(
    function: Callable[..., Any], operation: Operation, begun: Call | None = None
) -> Callable[..., Any]:
    async def traced(*args: Any, **kwargs: Any) -> AsyncGenerator[Any, Any]:
        held: list[Any] = [kwargs, args]
        del args, kwargs
        call = begun or _new_call(operation)
        try:
            if begun is not None:
                begun.take_up()
            elif call is not None:
                call.start(held[1], held[0])
            generator = cast("AsyncGenerator[Any, Any]", function(*held.pop(), **held.pop()))
            step: Callable[[Any], Any] = generator.asend
            first: Any = _first_step(generator)
            while True:
                if call is not None:
                    call.resume()
                if first is not None:
                    awaited, first = first, None
                    held.append(await awaited)
                else:
                    held.append(await step(held.pop()))
                if call is not None:
                    call.pause()
                    call.add_yielded(held[-1])
                try:
                    held.append((yield held.pop()))
                    step = generator.asend
                except BaseException as error:
                    # Thrown in by the consumer, or GeneratorExit: the generator handles it.
                    step = generator.athrow
                    held.append(error)
        except StopAsyncIteration:
            if call is not None:
                call.stop()
        except BaseException as error:
            if call is not None:
                call.stop(error)
            raise
        finally:
            if call is not None and call.is_open:
                call.clean_up()
            held.clear()

    return traced


def _first_step(generator: AsyncGenerator[Any, Any]) -> Any:
    """Return the awaitable of a generator's first item, without the event loop hearing of the generator.

    A loop closes all async generators that it tracks when it ends. It tracks the traced one, which closes this one.
    """
    hooks = sys.get_asyncgen_hooks()
    sys.set_asyncgen_hooks(None, None)
    try:
        return generator.asend(None)
    finally:
        sys.set_asyncgen_hooks(*hooks)
