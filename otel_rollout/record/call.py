"""An operation (a decorated function), and one call of it from its start to its end."""

from __future__ import annotations

import asyncio.tasks
import sys
from asyncio import CancelledError, Future, Task, _get_running_loop
from collections.abc import Callable
from contextvars import Token
from functools import partial
from typing import TYPE_CHECKING, Any, Final, cast

from opentelemetry.context import Context

from otel_rollout import semconv
from otel_rollout.guard.log_once import call_user_function, pass_on
from otel_rollout.guard.provenance import is_programs
from otel_rollout.record import runtime
from otel_rollout.record.context import (
    SILENCE,
    Frame,
    attach,
    current_frame,
    get_current,
    in_silence,
    leave,
    leave_variable,
    with_frame,
)
from otel_rollout.record.driver import RUNNING, Scope, follow
from otel_rollout.record.fields import shape_of
from otel_rollout.record.llm import describe_request, describe_response
from otel_rollout.record.readers import is_compiling
from otel_rollout.record.signature import begins_with_receiver, compile_binder
from otel_rollout.record.snapshot import Snapshot, take_snapshot

if TYPE_CHECKING:
    from otel_rollout.record.recording_span import RolloutSpan
    from otel_rollout.record.runtime import RunningPipeline

MAX_YIELDED_ITEMS: Final = 10_000
MAX_YIELDED_BYTES: Final = 4 * 1024 * 1024
"""The limits of a generator's recorded output."""

_FUTURES: Final = (Task, Future, getattr(asyncio.tasks, "_GatheringFuture", Future))
"""The types of results that an event loop ends; the last is what `asyncio.gather` returns."""
_LATER: Final = (*RUNNING, *_FUTURES)

Capture = bool | Callable[[Any], Any]
"""Record a side of a call, or don't; or a function that returns the value to record in its place."""


class Operation:
    """A decorated function."""

    def __init__(
        self,
        function: Callable[..., Any],
        name: str | None,
        kind: str,
        *,
        capture_inputs: Capture,
        capture_output: Capture,
        follow_result: bool = False,
        role: str | None = None,
    ) -> None:
        self.name = name or _name(function)
        self.is_llm = kind == "LLM"
        self.is_scope = kind in semconv.SCOPES
        self.capture_inputs = capture_inputs
        self.capture_output = capture_output
        self.follow_result = follow_result
        self.binder = compile_binder(function)
        self.has_receiver = begins_with_receiver(function)
        self.role = role
        self.attributes = attributes_of(kind, self.name)
        if role is not None:
            self.attributes[semconv.ROLE] = role

    def capture(self, name: str, capture: Capture, value: Any, pipeline: RunningPipeline) -> Snapshot:
        """Return a snapshot of a side of a call."""
        if capture is not True:
            value = call_user_function(f"{self.name}: {name}", cast("Callable[[Any], Any]", capture), value)
        return take_snapshot(value, pipeline.snapshot_budget)

    def bind(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Any]:
        """Return the arguments of a call by name."""
        try:
            return self.binder(*args, **kwargs)
        except TypeError as error:
            if is_programs(error):
                raise
            # The function will raise the same error, unless a decorator changed its parameters.
            return {"args": args[1:] if self.has_receiver else args, "kwargs": kwargs}

    def begin(self, held: list[Any]) -> Call | None:
        """Start a call and make its span current; return None where nothing is traced."""
        pipeline = runtime.pipeline
        if pipeline is None or is_compiling():
            return None
        context = get_current()
        frame = current_frame(context)
        if frame is SILENCE:
            return None
        call = Call(self, pipeline)
        try:
            call.start(context, frame, held[1], held[0])
        except BaseException as error:
            call.break_off(error, "starting an op")
            return None
        return call


class Call(Scope):
    """One traced call, from its start to its end: the scope of an op."""

    def __init__(self, operation: Operation, pipeline: RunningPipeline) -> None:
        self.operation = operation
        self.pipeline = pipeline
        self.span: RolloutSpan | None = None
        """Its span; None if the sampler drops it with everything inside."""
        self.frame = SILENCE
        """The frame that is current while it runs."""
        self.inner: Context | None = None
        """The context of the function's code."""
        self.token: Token[Context] | None = None
        """The token of that context; None while it isn't current."""
        self.yields = 0

    def start(
        self, context: Context, frame: Frame | None, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> None:
        """Start the span and make it current."""
        operation, pipeline = self.operation, self.pipeline
        tracer = pipeline.tracer
        shown: Snapshot | None = None
        is_llm = operation.is_llm
        if operation.capture_inputs or is_llm:
            arguments = operation.bind(args, kwargs or {})
            if operation.capture_inputs:
                shown = operation.capture("capture_inputs", operation.capture_inputs, arguments, pipeline)
            if is_llm:
                # Before the call, which may extend the lists that it takes.
                self.request = describe_request(arguments)
                self.is_turn = frame is not None and frame.trajectory is not None and not frame.is_llm
        trajectory = None if frame is None else frame.trajectory
        self.span = span = tracer.start_op(operation.name, context, frame, operation.attributes)
        if span is None:
            self.inner = in_silence(context)
            self.token = attach(self.inner)
            return
        if frame is None:
            self.frame = Frame(trajectory, span, is_llm, role=operation.role)
        else:
            depth, role = frame.depth + operation.is_scope, operation.role or frame.role
            self.frame = Frame(trajectory, span, is_llm or frame.is_llm, frame.agent, depth, role)
        if trajectory is not None:
            trajectory.open_ops[span] = None
            if is_llm and self.is_turn:
                role = self.frame.role
                if role is not None and operation.role is None:
                    span.set_attribute(semconv.ROLE, role)
                # Outside of a sub-agent, the mark is the policy's.
                agent = self.frame.agent or (None if role == semconv.USER else trajectory)
                if agent is not None and agent.is_compacted:
                    agent.is_compacted = False
                    span.set_attribute(semconv.COMPACTED, True)
        if shown is not None:
            tracer.set_input(span, shown)
        if pipeline.token2text and operation.has_receiver and args:
            span.tokenizer = pipeline.tokenizer_of(args[0])
        self.inner = with_frame(context, self.frame)
        self.token = attach(self.inner)

    def finish(self, result: Any) -> Any:
        """End the span with the result of the call, or follow one that runs later; return what the caller gets."""
        try:
            if type(result) in _LATER or self.operation.follow_result:
                references = sys.getrefcount(result)
                later = self._follow(result, references)
                if later is not None:
                    return later
            self.succeed(result)
        except BaseException as error:
            self.break_off(error, "ending an op")
        return result

    def succeed(self, result: Any) -> None:
        """End the span with the result of the call."""
        self._leave()
        span = self.span
        if span is None:
            return
        operation = self.operation
        capture = operation.capture_output
        shown = operation.capture("capture_output", capture, result, self.pipeline) if capture else None
        if operation.is_llm:
            self._describe(span, result)
            if capture is True and type(result) is not str and type(result) is not dict:
                span.returned = shape_of(result)
        if shown is not None:
            span.output = shown
        self._end(span)

    def exhaust(self) -> None:
        """End the span of a generator after its last item."""
        self.fail(None)

    def fail(self, error: BaseException | None) -> None:
        """End the span with the exception that leaves the call, or that closes a generator."""
        try:
            self._leave()
            span = self.span
            # Ended already, if a capture function or a signal handler raised as the call ended.
            if span is None or not span.is_recording():
                return
            if error is not None:
                span.fail(error)
            if self.operation.is_llm:
                self._describe(span, error)
            if self.operation.capture_output and (self.yields or error is None):
                kept = self.yielded if self.yields else []
                span.output = Snapshot.of_items(kept, self.yields - len(kept))
            self._end(span)
        except BaseException as own:
            self.break_off(own, "ending an op")

    def break_off(self, error: BaseException, where: str) -> None:
        """Leave the context and end the span, after an exception in the middle of another step; raise the program's."""
        self._leave()
        span = self.span
        if span is not None and span.is_recording():
            span.fail(error)
            self._end(span)
        pass_on(where)

    def pause(self) -> None:
        """Restore the caller's context, and remember the function's."""
        if self.token is not None:
            self.inner = get_current()
            leave_variable(self.token)
            self.token = None

    def resume(self) -> None:
        """Restore the function's context."""
        if self.token is None and self.inner is not None:
            self.token = attach(self.inner)
            trajectory = self.frame.trajectory
            if trajectory is not None:
                trajectory.open_ops[self.span] = None

    def add_yielded(self, item: Any) -> None:
        """Add a snapshot of a yielded item to the output."""
        try:
            if not self.yields:
                self.yielded: list[Snapshot] = []
                self.yielded_bytes = 0
                self.answered: dict[str, Any] = {}
            self.yields += 1
            if self.span is None:
                return
            if self.operation.is_llm and type(item) is not str:
                # The pieces of a stream: model, usage and finish reason come in one of them.
                self.answered.update(describe_response({}, item))
            capture = self.operation.capture_output
            if capture and len(self.yielded) < MAX_YIELDED_ITEMS and self.yielded_bytes < MAX_YIELDED_BYTES:
                taken = self.operation.capture("capture_output", capture, item, self.pipeline)
                self.yielded.append(taken)
                self.yielded_bytes += taken.size
        except BaseException as error:
            self.break_off(error, "reading a yielded item")

    def _follow(self, result: Any, references: int) -> Any:
        """Return a form of a result that runs later and ends the call; None if the call ends now."""
        if type(result) in _FUTURES:
            return result if self._wait_for(result) else None
        later = follow(self, result, references)
        if later is None and self.operation.follow_result:
            # Few programs need it.
            from otel_rollout.record.followed_result import follow_iterator

            later = follow_iterator(self, result)
        if later is not None and self.frame.trajectory is not None:
            # Nobody may ever await it.
            self.frame.trajectory.open_ops.pop(self.span, None)
        return later

    def _wait_for(self, future: Future[Any]) -> bool:
        """Pause until a future of the running event loop is done; return False if it is another loop's."""
        if future.get_loop() is not _get_running_loop():
            return False
        self.pause()
        future.add_done_callback(self._end_with)
        return True

    def _end_with(self, future: Any) -> None:
        if future.cancelled():
            self.fail(CancelledError())
            return
        # `exception()` would mark the exception as seen, and asyncio would not warn of it any more.
        error = future._exception  # noqa: SLF001
        if error is not None:
            self.fail(error)
            return
        try:
            self.succeed(future.result())
        except BaseException as own:
            self.break_off(own, "ending an op")

    def _end(self, span: RolloutSpan) -> None:
        span.end()
        trajectory = self.frame.trajectory
        if trajectory is not None:
            trajectory.open_ops.pop(span, None)

    def _leave(self) -> None:
        token, inner = self.token, self.inner
        if token is not None and inner is not None:
            leave(token, inner)
            self.token = None

    def _describe(self, span: RolloutSpan, answer: Any) -> None:
        attributes = describe_response(self.request, answer)
        if self.yields:
            attributes.update(self.answered)
        if semconv.PROVIDER_NAME in span.attributes:
            # Set by the program or another instrumentation.
            attributes.pop(semconv.PROVIDER_NAME, None)
        if self.is_turn and self.frame.trajectory is not None:
            self.is_turn = False
            if self.frame.role != semconv.USER:
                attributes[semconv.TURN] = self.frame.trajectory.add_turn(
                    attributes.get(semconv.USAGE_INPUT_TOKENS, 0), attributes.get(semconv.USAGE_OUTPUT_TOKENS, 0)
                )
        span.set_attributes(attributes)


def attributes_of(kind: str, name: str) -> dict[str, Any]:
    """Return the attributes of a span that follow from its kind and its name."""
    attributes: dict[str, Any] = {semconv.SPAN_KIND: kind}
    if kind in semconv.OPERATION_NAMES:
        attributes[semconv.OPERATION_NAME] = semconv.OPERATION_NAMES[kind]
    if kind == "TOOL":
        attributes[semconv.TOOL_NAME] = name
        attributes[semconv.TOOL_TYPE] = semconv.FUNCTION_TOOL
    return attributes


def _name(function: Any) -> str:
    while isinstance(function, partial):
        function = function.func
    return getattr(function, "__qualname__", None) or type(function).__qualname__
