"""The op: a decorator that makes each call of a function a span."""

from __future__ import annotations

import functools
import inspect
from collections.abc import AsyncGenerator, Callable, Generator
from contextvars import Token
from typing import TYPE_CHECKING, Any, Final, TypeVar, cast, overload

import orjson
from opentelemetry import context as context_api
from opentelemetry.context import Context
from opentelemetry.trace import Span

from otel_rollout import runtime, semconv
from otel_rollout.context import SILENCE, Frame, current_frame, enter, leave
from otel_rollout.failure import record_failure
from otel_rollout.llm import describe_llm_call
from otel_rollout.log_once import internal_error
from otel_rollout.payload import snapshot, snapshot_arguments
from otel_rollout.signature import compile_binder

if TYPE_CHECKING:
    from otel_rollout.pipeline import Pipeline

__all__ = ["rollout_trace_op"]

Function = TypeVar("Function", bound=Callable[..., Any])

MAX_YIELDED_ITEMS: Final = 10_000
MAX_YIELDED_BYTES: Final = 4 * 1024 * 1024
"""How much of what a generator yields is kept as its output."""


@overload
def rollout_trace_op(function: Function, /) -> Function: ...


@overload
def rollout_trace_op(
    *, name: str | None = None, kind: str = "CHAIN", capture_inputs: bool = True, capture_output: bool = True
) -> Callable[[Function], Function]: ...


def rollout_trace_op(
    function: Any = None,
    /,
    *,
    name: str | None = None,
    kind: str = "CHAIN",
    capture_inputs: bool = True,
    capture_output: bool = True,
) -> Any:
    """Trace each call of a function as a span under the current one, with its arguments, result and error.

    Works bare (`@rollout_trace_op`) and with arguments, on functions, methods, class methods and static methods, on
    coroutine functions, generators and async generators; a generator's span covers the iteration, and its output is
    the list of what was yielded. The bare form is verl's `rollout_trace_op`
    (https://verl.readthedocs.io/en/latest/advance/rollout_trace.html).

    Args:
        function: The function.
        name: The span's name; the function's qualified name where None.
        kind: What the function is: `LLM`, `TOOL`, `CHAIN`, `AGENT` or `EVALUATOR` (OpenInference's span kinds).
        capture_inputs: Whether the arguments are recorded; `self` and `cls` never are.
        capture_output: Whether the result is recorded.

    Raises:
        ValueError: The kind is not one of these.
        TypeError: What is decorated is not callable.
    """
    if kind not in semconv.SPAN_KINDS:
        raise ValueError(f"rollout_trace_op(kind={kind!r}): the kinds are {', '.join(semconv.SPAN_KINDS)}")

    def decorate(target: Any) -> Any:
        if isinstance(target, (classmethod, staticmethod)):
            return type(target)(decorate(target.__func__))
        if not callable(target):
            raise TypeError(f"rollout_trace_op takes a function, not {type(target).__qualname__}")
        operation = Operation(target, name, kind, capture_inputs=capture_inputs, capture_output=capture_output)
        return _wrap(target, operation)

    return decorate if function is None else decorate(function)


class Operation:
    """What is known of a decorated function before it is called.

    Args:
        function: The function.
        name: The span's name, or None for the function's qualified name.
        kind: Its OpenInference span kind.
        capture_inputs: Whether arguments are recorded.
        capture_output: Whether the result is recorded.
    """

    __slots__ = ("attributes", "binder", "capture_inputs", "capture_output", "has_receiver", "is_llm", "name")

    def __init__(
        self,
        function: Callable[..., Any],
        name: str | None,
        kind: str,
        *,
        capture_inputs: bool,
        capture_output: bool,
    ) -> None:
        self.name = name or getattr(function, "__qualname__", None) or type(function).__qualname__
        self.is_llm = kind == "LLM"
        self.capture_inputs = capture_inputs
        self.capture_output = capture_output
        self.binder = compile_binder(function)
        code = getattr(function, "__code__", None)
        self.has_receiver = code is not None and code.co_varnames[:1] == ("self",)
        self.attributes: dict[str, Any] = {semconv.SPAN_KIND: kind}
        if kind in semconv.OPERATION_NAMES:
            self.attributes[semconv.OPERATION_NAME] = semconv.OPERATION_NAMES[kind]
        if kind == "TOOL":
            self.attributes[semconv.TOOL_NAME] = self.name

    def start(self, pipeline: Pipeline, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Call | None:
        """Start the span of one call; None where it is not traced or the arguments don't fit the function."""
        try:
            context = context_api.get_current()
            frame = current_frame(context)
            if frame is SILENCE:
                return None
            arguments: dict[str, Any] | None = None
            text = None
            if self.capture_inputs or self.is_llm:
                try:
                    arguments = self.binder(*args, **kwargs)
                except TypeError:
                    # The function will raise the same, with its own name in it.
                    return None
                if self.capture_inputs:
                    text = snapshot_arguments(dict(arguments) if self.is_llm else arguments)
            tracer = pipeline.tracer
            span = tracer.start_op(self.name, context, frame, self.attributes)
            if span is None:
                return None
            if text is not None:
                tracer.set_input(span, text)
            call = Call(self, pipeline, span, Frame(frame.trajectory if frame else None, span))
            if self.is_llm:
                call.arguments = arguments
            if pipeline.token2text and self.has_receiver and args:
                pipeline.note_tokenizer(span, args[0])
            call.token = enter(context, call.frame)
        except Exception:  # noqa: BLE001, RUF100 - tracing never reaches the traced program
            internal_error("starting a span")
            return None
        return call


class Call:
    """One traced call, from its start to its end."""

    __slots__ = (
        "arguments",
        "frame",
        "operation",
        "pipeline",
        "span",
        "token",
        "yielded",
        "yielded_bytes",
        "yields",
    )

    def __init__(self, operation: Operation, pipeline: Pipeline, span: Span, frame: Frame) -> None:
        self.operation = operation
        self.pipeline = pipeline
        self.span = span
        self.frame = frame
        self.token: Token[Context] | None = None
        self.arguments: dict[str, Any] | None = None
        self.yielded: list[bytes] = []
        self.yielded_bytes = 0
        self.yields = 0

    def succeed(self, result: Any) -> None:
        """End the span with the result of the call."""
        self.suspend()
        try:
            operation = self.operation
            if operation.is_llm:
                self._describe(result)
            if operation.capture_output:
                self.pipeline.tracer.set_output(self.span, snapshot(result))
            self.span.end()
        except Exception:  # noqa: BLE001, RUF100 - tracing never reaches the traced program
            internal_error("ending a span")

    def fail(self, error: BaseException) -> None:
        """End the span with the exception that left the call."""
        self.suspend()
        try:
            if self.yields:
                self._set_yielded()
            record_failure(self.span, error)
            self.span.end()
        except Exception:  # noqa: BLE001, RUF100 - tracing never reaches the traced program
            internal_error("ending a span")

    def suspend(self) -> None:
        """Make what was current before the call current again."""
        token, self.token = self.token, None
        if token is not None:
            leave(token)

    def resume(self) -> None:
        """Make the call's span current: a generator runs again."""
        if self.token is None:
            self.token = enter(context_api.get_current(), self.frame)

    def add_yielded(self, item: Any) -> None:
        """Note an item that a generator yields."""
        self.suspend()
        self.yields += 1
        if not self.operation.capture_output:
            return
        if len(self.yielded) < MAX_YIELDED_ITEMS and self.yielded_bytes < MAX_YIELDED_BYTES:
            text = snapshot(item)
            self.yielded.append(text)
            self.yielded_bytes += len(text)

    def exhaust(self) -> None:
        """End the span of a generator that has come to its end."""
        self.suspend()
        try:
            if self.operation.is_llm:
                self._describe(None)
            self._set_yielded()
            self.span.end()
        except Exception:  # noqa: BLE001, RUF100 - tracing never reaches the traced program
            internal_error("ending a span")

    def _set_yielded(self) -> None:
        if self.operation.capture_output:
            kept = self.yielded
            if self.yields > len(kept):
                kept.append(orjson.dumps(f"…[{self.yields - len(kept):,} items cut]"))
            self.pipeline.tracer.set_output(self.span, b"[" + b",".join(kept) + b"]")

    def _describe(self, result: Any) -> None:
        attributes = describe_llm_call(self.arguments, result)
        self.span.set_attributes(attributes)
        if self.frame.trajectory is not None:
            self.frame.trajectory.add_turn(
                attributes.get(semconv.USAGE_INPUT_TOKENS, 0), attributes.get(semconv.USAGE_OUTPUT_TOKENS, 0)
            )


def _wrap(function: Callable[..., Any], operation: Operation) -> Callable[..., Any]:
    if inspect.isasyncgenfunction(function):
        return _wrap_async_generator(function, operation)
    if inspect.iscoroutinefunction(function):
        return _wrap_coroutine(function, operation)
    if inspect.isgeneratorfunction(function):
        return _wrap_generator(function, operation)

    @functools.wraps(function)
    def traced(*args: Any, **kwargs: Any) -> Any:
        pipeline = runtime.pipeline
        if pipeline is None:
            return function(*args, **kwargs)
        call = operation.start(pipeline, args, kwargs)
        if call is None:
            return function(*args, **kwargs)
        try:
            result = function(*args, **kwargs)
        except BaseException as error:
            call.fail(error)
            raise
        call.succeed(result)
        return result

    return traced


def _wrap_coroutine(function: Callable[..., Any], operation: Operation) -> Callable[..., Any]:
    @functools.wraps(function)
    async def traced(*args: Any, **kwargs: Any) -> Any:
        pipeline = runtime.pipeline
        if pipeline is None:
            return await function(*args, **kwargs)
        call = operation.start(pipeline, args, kwargs)
        if call is None:
            return await function(*args, **kwargs)
        try:
            result = await function(*args, **kwargs)
        except BaseException as error:
            call.fail(error)
            raise
        call.succeed(result)
        return result

    return traced


def _wrap_generator(function: Callable[..., Any], operation: Operation) -> Callable[..., Any]:
    @functools.wraps(function)
    def traced(*args: Any, **kwargs: Any) -> Generator[Any, Any, Any]:
        pipeline = runtime.pipeline
        call = operation.start(pipeline, args, kwargs) if pipeline is not None else None
        if call is None:
            return (yield from function(*args, **kwargs))
        generator = cast("Generator[Any, Any, Any]", function(*args, **kwargs))
        step: Callable[[Any], Any] = generator.send
        argument: Any = None
        while True:
            call.resume()
            try:
                item = step(argument)
            except StopIteration as stop:
                call.exhaust()
                return stop.value
            except BaseException as error:
                call.fail(error)
                raise
            call.add_yielded(item)
            try:
                argument = yield item
                step = generator.send
            except BaseException as error:
                # Thrown in by the consumer, or GeneratorExit: the generator decides what becomes of it.
                step, argument = generator.throw, error

    return traced


def _wrap_async_generator(function: Callable[..., Any], operation: Operation) -> Callable[..., Any]:
    @functools.wraps(function)
    async def traced(*args: Any, **kwargs: Any) -> AsyncGenerator[Any, Any]:
        pipeline = runtime.pipeline
        call = operation.start(pipeline, args, kwargs) if pipeline is not None else None
        generator = cast("AsyncGenerator[Any, Any]", function(*args, **kwargs))
        step: Callable[[Any], Any] = generator.asend
        argument: Any = None
        while True:
            if call is not None:
                call.resume()
            try:
                item = await step(argument)
            except StopAsyncIteration:
                if call is not None:
                    call.exhaust()
                return
            except BaseException as error:
                if call is not None:
                    call.fail(error)
                raise
            if call is not None:
                call.add_yielded(item)
            try:
                argument = yield item
                step = generator.asend
            except BaseException as error:
                # Thrown in by the consumer, or GeneratorExit: the generator decides what becomes of it.
                step, argument = generator.athrow, error

    return traced
