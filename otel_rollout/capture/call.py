"""One call of an op, from its start to its end, and what is known of the op before it is called."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from contextvars import Token
from functools import partial
from typing import TYPE_CHECKING, Any, Final, cast

from opentelemetry import context as context_api
from opentelemetry.context import Context
from opentelemetry.trace import Span

from otel_rollout import semconv
from otel_rollout.capture.exceptions import record_failure
from otel_rollout.capture.llm import describe_llm_call
from otel_rollout.capture.signature import compile_binder
from otel_rollout.safety.guard import guarded
from otel_rollout.safety.log_once import call_user_function
from otel_rollout.spans.context import SILENCE, Frame, attach, current_frame, enter, enter_silence, leave, restore
from otel_rollout.values.snapshot import Snapshot, snapshot

if TYPE_CHECKING:
    from otel_rollout.spans.runtime import RunningPipeline

__all__ = ["Call", "Operation"]

MAX_YIELDED_ITEMS: Final = 10_000
MAX_YIELDED_BYTES: Final = 4 * 1024 * 1024
"""How much of what a generator yields is kept as its output."""


Capture = bool | Callable[[Any], Any]
"""Whether a side of a call is recorded, or what returns the value to record in its place."""


class Operation:
    """What is known of a decorated function before it is called.

    Args:
        function: The function.
        name: The span's name, or None for the function's qualified name.
        kind: Its OpenInference span kind.
        capture_inputs: Whether arguments are recorded; or what returns, given the arguments by name, what to record.
        capture_output: Whether the result is recorded; or what returns, given the result, what to record.
    """

    __slots__ = ("attributes", "binder", "capture_inputs", "capture_output", "has_receiver", "is_llm", "name")

    def __init__(
        self,
        function: Callable[..., Any],
        name: str | None,
        kind: str,
        *,
        capture_inputs: Capture,
        capture_output: Capture,
    ) -> None:
        self.name = name or _name(function)
        self.is_llm = kind == "LLM"
        self.capture_inputs = capture_inputs
        self.capture_output = capture_output
        self.binder = compile_binder(function)
        self.has_receiver = _first_parameter(function) in ("self", "cls")
        self.attributes: dict[str, Any] = {semconv.SPAN_KIND: kind}
        if kind in semconv.OPERATION_NAMES:
            self.attributes[semconv.OPERATION_NAME] = semconv.OPERATION_NAMES[kind]
        if kind == "TOOL":
            self.attributes[semconv.TOOL_NAME] = self.name

    @guarded("starting a span")
    def start(self, pipeline: RunningPipeline, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Call | None:
        """Start the span of one call; None where nothing is traced here."""
        context: Context | None = None
        try:
            context = context_api.get_current()
            frame = current_frame(context)
            if frame is SILENCE:
                return None
            tracer = pipeline.tracer
            shown: Snapshot | None = None
            request: Any = None
            if self.capture_inputs or self.is_llm:
                arguments = self._bind(args, kwargs)
                if self.capture_inputs:
                    shown = self.capture("capture_inputs", self.capture_inputs, arguments, pipeline)
                if self.is_llm:
                    # Taken before the call, which may extend the lists that it was given.
                    taken = shown if shown is not None and self.capture_inputs is True else snapshot(arguments)
                    request = taken.value
            span = tracer.start_op(self.name, context, frame, self.attributes)
            if span is None:
                call = Call(self, pipeline, None, SILENCE)
                call.token = enter_silence(context)
                return call
            if shown is not None:
                tracer.set_input(span, shown)
            if frame is None:
                call = Call(self, pipeline, span, Frame(None, span, self.is_llm))
            else:
                call = Call(self, pipeline, span, Frame(frame.trajectory, span, self.is_llm or frame.is_llm))
            if self.is_llm:
                call.request = request
                call.is_turn = frame is not None and frame.trajectory is not None and not frame.is_llm
            if pipeline.token2text and self.has_receiver and args:
                tracer.set_tokenizer(span, pipeline.tokenizer_of(args[0]))
            call.token = enter(context, call.frame)
            return call
        except BaseException:
            restore(context)
            raise

    def capture(self, name: str, capture: Capture, value: Any, pipeline: RunningPipeline) -> Snapshot:
        """Return a snapshot of a side of a call.

        Args:
            name: The option that says how it is captured.
            capture: The option's value.
            value: The arguments by name, or the result.
            pipeline: What the call is traced with.
        """
        if capture is not True:
            value = call_user_function(f"{self.name}: {name}", cast("Callable[[Any], Any]", capture), value)
        return snapshot(value, pipeline.snapshot_budget)

    def _bind(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Any]:
        try:
            return self.binder(*args, **kwargs)
        except TypeError:
            # The function will raise the same and its span shows with what, unless a decorator changed what it takes.
            return {"args": args[1:] if self.has_receiver else args, "kwargs": kwargs}


class Call:
    """One traced call, from its start to its end.

    Args:
        operation: What is called.
        pipeline: What it is traced with.
        span: Its span; None where the sampler left it out, and with it all that runs inside.
        frame: What is current while it runs.
    """

    __slots__ = (
        "context",
        "frame",
        "is_turn",
        "operation",
        "pipeline",
        "request",
        "span",
        "token",
        "yielded",
        "yielded_bytes",
        "yields",
    )

    def __init__(self, operation: Operation, pipeline: RunningPipeline, span: Span | None, frame: Frame) -> None:
        self.operation = operation
        self.pipeline = pipeline
        self.span = span
        self.frame = frame
        self.token: Token[Context] | None = None
        self.context: Context | None = None
        self.request: Any = None
        self.is_turn = False
        self.yielded: list[Any] | None = None
        self.yielded_bytes = 0
        self.yields = 0

    @guarded("ending a span")
    def succeed(self, result: Any) -> None:
        """End the span with the result of the call."""
        self._leave()
        span = self.span
        if span is not None:
            try:
                operation = self.operation
                capture = operation.capture_output
                shown: Snapshot | None = None
                if capture:
                    shown = operation.capture("capture_output", capture, result, self.pipeline)
                    self.pipeline.tracer.set_output(span, shown)
                if operation.is_llm:
                    taken = shown if shown is not None and capture is True else snapshot(result)
                    self._describe(span, taken.value, result)
            finally:
                span.end()

    @guarded("ending a span")
    def fail(self, error: BaseException) -> None:
        """End the span with the exception that left the call."""
        self._leave()
        span = self.span
        if span is not None:
            try:
                record_failure(span, error)
                if self.operation.is_llm:
                    self._describe(span, None, error)
                if self.yields:
                    self._set_yielded(span)
            finally:
                span.end()

    @guarded("ending a span")
    def exhaust(self) -> None:
        """End the span of a generator that has come to its end."""
        self._leave()
        span = self.span
        if span is not None:
            try:
                if self.operation.is_llm:
                    self._describe(span, None, None)
                self._set_yielded(span)
            finally:
                span.end()

    @guarded("pausing a span")
    def pause(self) -> None:
        """Make what was current before the call current again, and remember what its body had made current."""
        self.context = context_api.get_current()
        self._leave()

    @guarded("resuming a span")
    def resume(self) -> None:
        """Make what the body of the call had made current, current again."""
        if self.token is None and self.context is not None:
            before = context_api.get_current()
            try:
                self.token = attach(self.context)
            except BaseException:
                restore(before)
                raise

    @guarded("recording what was yielded")
    def add_yielded(self, item: Any) -> None:
        """Note an item that a generator yields, as it is now."""
        self.yields += 1
        if self.span is None or not self.operation.capture_output:
            return
        if self.yielded is None:
            self.yielded = []
        if len(self.yielded) >= MAX_YIELDED_ITEMS or self.yielded_bytes >= MAX_YIELDED_BYTES:
            return
        capture = self.operation.capture_output
        taken = self.operation.capture("capture_output", capture, item, self.pipeline)
        self.yielded.append(taken.value)
        self.yielded_bytes += taken.size

    @guarded("ending a span")
    def interrupted(self) -> None:
        """Undo what is left of a call whose end was interrupted by an exception of a signal handler."""
        self._leave()
        if self.span is not None:
            self.span.end()

    def _leave(self) -> None:
        if self.token is not None:
            leave(self.token)
            self.token = None

    def _set_yielded(self, span: Span) -> None:
        if self.operation.capture_output:
            kept = self.yielded or []
            cut = self.yields - len(kept)
            if cut:
                kept.append(f"…[{cut:,} items cut]")
            self.pipeline.tracer.set_output(span, Snapshot(kept, self.yielded_bytes, cut))

    def _describe(self, span: Span, response: Any, answer: Any) -> None:
        attributes = describe_llm_call(self.request, response, answer)
        if semconv.PROVIDER_NAME in (getattr(span, "attributes", None) or ()):
            # The program, or another instrumentation, knows better.
            attributes.pop(semconv.PROVIDER_NAME, None)
        span.set_attributes(attributes)
        if self.is_turn and self.frame.trajectory is not None:
            self.frame.trajectory.add_turn(
                attributes.get(semconv.USAGE_INPUT_TOKENS, 0), attributes.get(semconv.USAGE_OUTPUT_TOKENS, 0)
            )


def _name(function: Any) -> str:
    while isinstance(function, partial):
        function = function.func
    return getattr(function, "__qualname__", None) or type(function).__qualname__


def _first_parameter(function: Callable[..., Any]) -> str | None:
    try:
        return next(iter(inspect.signature(function).parameters), None)
    except (NameError, TypeError, ValueError):
        # NameError: an annotation that only a type checker can resolve.
        return None
