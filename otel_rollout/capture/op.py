"""The op: a decorator that traces each call of a function as a span."""

from __future__ import annotations

import functools
import inspect
from collections.abc import AsyncGenerator, Callable, Coroutine, Generator
from types import CoroutineType
from typing import Any, TypeVar, cast, overload

from otel_rollout import semconv
from otel_rollout.capture.call import Call, Capture, Operation
from otel_rollout.spans import runtime

__all__ = ["rollout_trace_op"]

Function = TypeVar("Function", bound=Callable[..., Any])


@overload
def rollout_trace_op(function: Function, /) -> Function: ...


@overload
def rollout_trace_op(
    *, name: str | None = None, kind: str = "CHAIN", capture_inputs: Capture = True, capture_output: Capture = True
) -> Callable[[Function], Function]: ...


def rollout_trace_op(
    function: Any = None,
    /,
    *,
    name: str | None = None,
    kind: str = "CHAIN",
    capture_inputs: Capture = True,
    capture_output: Capture = True,
) -> Any:
    """Trace each call of a function as a span under the current one, with its arguments, result and error.

    Works bare (`@rollout_trace_op`) and with arguments, on functions, methods, class methods and static methods, on
    coroutine functions, generators and async generators; a generator's span covers the iteration, and its output is
    the list of what was yielded. The bare form is verl's `rollout_trace_op`
    (https://verl.readthedocs.io/en/latest/advance/rollout_trace.html).

    Args:
        function: The function.
        name: The span's name; if None, the function's qualified name.
        kind: OpenInference's span kind: `LLM`, `TOOL`, `CHAIN`, `AGENT` or `EVALUATOR`, in any case.
        capture_inputs: Record the arguments; `self` and `cls` never are. Or a function that takes the arguments by
            name, in one dict, and returns the value to record: it runs on the caller's thread, and if it raises, one
            warning is logged.
        capture_output: Record the result; or a function that takes the result, or each yielded item, and returns the
            value to record.

    Raises:
        ValueError: The kind is none of these.
        TypeError: The decorated object is a class, or not callable.
    """
    if isinstance(kind, str):
        kind = kind.upper()
    if kind not in semconv.SPAN_KINDS:
        raise ValueError(f"rollout_trace_op(kind={kind!r}): the kinds are {', '.join(semconv.SPAN_KINDS)}")

    def decorate(target: Any) -> Any:
        if isinstance(target, (classmethod, staticmethod)):
            return type(target)(decorate(target.__func__))
        if not callable(target) or isinstance(target, type):
            raise TypeError(f"rollout_trace_op takes a function, not {target!r}")
        operation = Operation(target, name, kind, capture_inputs=capture_inputs, capture_output=capture_output)
        return _wrap(target, operation)

    return decorate if function is None else decorate(function)


def _wrap(function: Callable[..., Any], operation: Operation) -> Callable[..., Any]:
    def is_kind(test: Callable[[Any], bool]) -> bool:
        return test(function) or test(type(function).__call__)

    if is_kind(inspect.isasyncgenfunction):
        return _wrap_async_generator(function, operation)
    if is_kind(inspect.iscoroutinefunction):
        return _wrap_coroutine(function, operation)
    if is_kind(inspect.isgeneratorfunction):
        return _wrap_generator(function, operation)

    @functools.wraps(function)
    def traced(*args: Any, **kwargs: Any) -> Any:
        pipeline = runtime.pipeline
        if pipeline is None:
            return function(*args, **kwargs)
        call = Call(operation, pipeline)
        try:
            call.start(args, kwargs)
            result = function(*args, **kwargs)
            if type(result) is CoroutineType and call.is_open:
                # A function that returns a coroutine: another decorator's wrapper, for example.
                finishing: Any = _finish(call, result)
                finishing.__name__, finishing.__qualname__ = result.__name__, result.__qualname__
                call.set_aside()
                return finishing
            call.succeed(result)
            return result
        except BaseException as error:
            call.stop(error)
            raise
        finally:
            if call.is_open:
                call.clean_up()

    return traced


async def _finish(call: Call, coroutine: Coroutine[Any, Any, Any]) -> Any:
    try:
        call.take_up()
        result = await coroutine
        call.succeed(result)
        return result
    except BaseException as error:
        call.stop(error)
        raise
    finally:
        if call.is_open:
            call.clean_up()


def _wrap_coroutine(function: Callable[..., Any], operation: Operation) -> Callable[..., Any]:
    @functools.wraps(function)
    async def traced(*args: Any, **kwargs: Any) -> Any:
        pipeline = runtime.pipeline
        if pipeline is None:
            return await function(*args, **kwargs)
        call = Call(operation, pipeline)
        try:
            call.start(args, kwargs)
            result = await function(*args, **kwargs)
            call.succeed(result)
            return result
        except BaseException as error:
            call.stop(error)
            raise
        finally:
            if call.is_open:
                call.clean_up()

    return traced


def _wrap_generator(function: Callable[..., Any], operation: Operation) -> Callable[..., Any]:
    @functools.wraps(function)
    def traced(*args: Any, **kwargs: Any) -> Generator[Any, Any, Any]:
        pipeline = runtime.pipeline
        if pipeline is None:
            return (yield from function(*args, **kwargs))
        call = Call(operation, pipeline)
        try:
            call.start(args, kwargs)
            generator = cast("Generator[Any, Any, Any]", function(*args, **kwargs))
            step: Callable[[Any], Any] = generator.send
            argument: Any = None
            while True:
                call.resume()
                item = step(argument)
                call.pause()
                call.add_yielded(item)
                try:
                    argument = yield item
                    step = generator.send
                except BaseException as error:
                    # Thrown in by the consumer, or GeneratorExit: the generator handles it.
                    step, argument = generator.throw, error
        except StopIteration as stop:
            call.stop()
            return stop.value
        except BaseException as error:
            call.stop(error)
            raise
        finally:
            if call.is_open:
                call.clean_up()
            # A frame that holds the exception that passed it is a reference cycle, freed by the collector alone.
            argument = None

    return traced


def _wrap_async_generator(function: Callable[..., Any], operation: Operation) -> Callable[..., Any]:
    @functools.wraps(function)
    async def traced(*args: Any, **kwargs: Any) -> AsyncGenerator[Any, Any]:
        pipeline = runtime.pipeline
        call = Call(operation, pipeline) if pipeline is not None else None
        try:
            if call is not None:
                call.start(args, kwargs)
            generator = cast("AsyncGenerator[Any, Any]", function(*args, **kwargs))
            step: Callable[[Any], Any] = generator.asend
            argument: Any = None
            while True:
                if call is not None:
                    call.resume()
                item = await step(argument)
                if call is not None:
                    call.pause()
                    call.add_yielded(item)
                try:
                    argument = yield item
                    step = generator.asend
                except BaseException as error:
                    # Thrown in by the consumer, or GeneratorExit: the generator handles it.
                    step, argument = generator.athrow, error
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
            # A frame that holds the exception that passed it is a reference cycle, freed by the collector alone.
            argument = None

    return traced
