"""The tracer on an application's provider: payload is finished and redacted before the SDK's span has it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, TypeVar
from weakref import WeakKeyDictionary

from opentelemetry.context import Context
from opentelemetry.trace import Link, Span, SpanContext, Status, StatusCode, Tracer
from opentelemetry.util.types import Attributes, AttributeValue

from otel_rollout import semconv
from otel_rollout.export.genai_additions import tool_call_attributes
from otel_rollout.finish.chat_writer import ChatWriter, WrittenSide
from otel_rollout.finish.known_forms import REDACTED
from otel_rollout.finish.payload_finisher import FinishCounts, plain_text
from otel_rollout.finish.redaction import Redactor
from otel_rollout.finish.span_conversion import SpanReader
from otel_rollout.guard.log_once import internal_error
from otel_rollout.guard.provenance import is_programs
from otel_rollout.guard.signal_safe_lock import renew_locks
from otel_rollout.messages import ChatSide
from otel_rollout.record.context import Frame
from otel_rollout.record.exception_record import ExceptionRecord
from otel_rollout.record.snapshot import Snapshot, to_json
from otel_rollout.record.tracer import RolloutTracer
from otel_rollout.record.trajectory_state import TrajectoryState
from otel_rollout.text.plain_json import on_program_thread, value_to_json

_Value = TypeVar("_Value")

MAX_SEARCHED: Final = 256 * 1024
"""Characters of a text, other than the payload, that are searched on the caller's thread: a few milliseconds."""

_PARTS: Final = ("_attributes", "_events", "_links")
"""The parts of the SDK's span that have a lock of their own."""


class ProviderTracer(RolloutTracer):
    """Starts spans with an application's provider, which samples, limits and exports them in its own way.

    Args:
        tracer: The provider's tracer.
        reader: Has what redacts and cuts a payload before the span ends, writes its messages, and counts.
        on_start: Called with each span and its trajectory, if our queues get them too.
        on_end: Called with each of these spans at its end.
    """

    def __init__(
        self,
        tracer: Tracer,
        reader: SpanReader,
        on_start: Callable[[Span, TrajectoryState | None], None] | None = None,
        *,
        on_end: Callable[[Span], None] | None = None,
    ) -> None:
        self._tracer = tracer
        self._finisher = reader.finisher
        self._counts = reader.counts
        self._on_start = on_start
        self._on_end = on_end
        self._redactor = reader.finisher.redactor
        self._chat = reader.chat
        self._asked: WeakKeyDictionary[Span, tuple[ChatSide | None, Any]] = WeakKeyDictionary()
        """The messages and arguments of running LLM ops; if one fails, they go with its span."""
        self._depths: WeakKeyDictionary[Span, int] = WeakKeyDictionary()
        """The numbers of agents, tools and evaluators that ops are inside, except for 0."""

    def start_root(
        self, name: str, trajectory: TrajectoryState, links: Sequence[Link], start_time: int | None = None
    ) -> Span | None:
        """Start the root of a new trace; None if the provider's sampler drops it."""
        return self._start(name, Context(), trajectory.tags, trajectory, start_time, links)

    def start_op(
        self,
        name: str,
        context: Context,
        frame: Frame | None,
        attributes: dict[str, Any],
        start_time: int | None = None,
    ) -> Span | None:
        """Start a span under the current one."""
        trajectory = frame.trajectory if frame is not None else None
        tags = trajectory.tags if trajectory is not None else {semconv.OUTSIDE_TRAJECTORY: True}
        span = self._start(name, context, {**attributes, **tags}, trajectory, start_time)
        if span is not None and frame is not None and frame.depth:
            self._depths[span] = frame.depth
        return span

    def depth_of(self, span: Span) -> int:
        """Return the number of agents, tools and evaluators that an op is inside; 0 of a root."""
        return self._depths.get(span, 0)

    def end(self, span: Span, end_time: int | None = None) -> None:
        """End a span that has not ended."""
        try:
            if span.is_recording():
                span.end(end_time)
        finally:
            if self._on_end is not None:
                # An exception of the program may have come before the provider notified our queues of the end.
                self._on_end(span)

    def set_input(self, span: Span, taken: Snapshot) -> None:
        """Set the input immediately: the provider's span can't be changed after its end."""
        value, written = taken.load(), None
        with on_program_thread():
            if self._chat is not None and _kind_of(span) == "LLM":
                written = self._written(span, self._chat.write_arguments, value)
            self._set_payload(span, semconv.INPUT_VALUE, semconv.INPUT_MIME_TYPE, taken, value, written)
        if written is not None:
            self._asked[span] = written.side, value

    def set_output(self, span: Span, taken: Snapshot) -> None:
        """Set the output immediately."""
        value, written = taken.load(), None
        with on_program_thread():
            if self._chat is not None and _kind_of(span) == "LLM":
                asked, arguments = self._asked.pop(span, (None, None))
                write_result = self._chat.write_result
                written = self._written(
                    span, lambda value: write_result(value, arguments, is_stream=taken.is_stream), value
                )
                if written is not None and semconv.TURN in _attributes_of(span):
                    trace_id = span.get_span_context().trace_id
                    self._chat.conversations.add(trace_id, asked, written.side, self.depth_of(span))
            self._set_payload(span, semconv.OUTPUT_VALUE, semconv.OUTPUT_MIME_TYPE, taken, value, written)

    def set_tokenizer(self, span: Span, tokenizer: Any) -> None:
        """Do nothing: decoding takes too long on the caller's thread."""

    def set_annotations(self, root: Span, own: dict[str, Any], others: dict[str, Any]) -> None:
        """Set our own last: at its limit, the SDK drops the oldest attributes, which are the tags and the payload."""
        with on_program_thread():
            if self._chat is not None:
                self._set_conversation(root, self._chat)
            own = {key: to_json(value).decode() if type(value) is Snapshot else value for key, value in own.items()}
        before = {key: value for key, value in _attributes_of(root).items() if key not in others}
        root.set_attributes(others)
        _bare(root).set_attributes(before)
        root.set_attributes(own)
        if isinstance(root, RedactingSpan) and root.trajectory is not None and root.trajectory.redacted:
            _bare(root).set_attribute(semconv.REDACTED, root.trajectory.redacted)

    def _set_conversation(self, root: Span, chat: ChatWriter) -> None:
        """Set the final conversation; what the program annotated stays as it is."""
        known = _attributes_of(root)
        try:
            conversation = chat.conversations.take(root.get_span_context().trace_id)
            sides = chat.write_root(conversation, None, None)
        except BaseException as error:
            if is_programs(error):
                raise
            internal_error("writing messages")
            return
        keys = ((semconv.INPUT_VALUE, semconv.INPUT_MIME_TYPE), (semconv.OUTPUT_VALUE, semconv.OUTPUT_MIME_TYPE))
        for (key, mime_key), side in zip(keys, sides, strict=True):
            self._counts.add(_trajectory_of(root), side.cut, 0)
            _bare(root).set_attributes({name: text.decode() for name, text in side.attributes.items()})
            if side.payload is not None and key not in known:
                _bare(root).set_attributes(self._finished(root, key, mime_key, side.payload))

    def _set_payload(
        self, span: Span, key: str, mime_key: str, taken: Snapshot, value: Any, written: WrittenSide | None
    ) -> None:
        json_bytes = value_to_json(value) if written is None or written.payload is None else written.payload
        attributes = self._finished(span, key, mime_key, json_bytes)
        self._counts.add(_trajectory_of(span), taken.left_out + (0 if written is None else written.cut), 0)
        if written is not None:
            attributes.update({name: text.decode() for name, text in written.attributes.items()})
        if _kind_of(span) == "TOOL":
            attributes.update(tool_call_attributes(attributes))
        _bare(span).set_attributes(attributes)

    def _finished(self, span: Span, key: str, mime_key: str, json_bytes: bytes) -> dict[str, str]:
        finished = self._finisher.finish(json_bytes)
        self._counts.add(_trajectory_of(span), finished.cut, finished.redacted)
        plain = plain_text(finished.json_bytes)
        if plain is None:
            return {key: finished.json_bytes.decode(), mime_key: semconv.JSON_MIME_TYPE}
        return {key: plain.decode(), mime_key: semconv.TEXT_MIME_TYPE}

    def _written(self, span: Span, write: Callable[[Any], WrittenSide], value: Any) -> WrittenSide | None:
        try:
            return write(self._clean_value(span, value))
        except BaseException as error:
            if is_programs(error):
                raise
            # The payload is set as it is.
            internal_error("writing messages")
            return None

    def _clean_value(self, span: Span, value: Any) -> Any:
        json_bytes = value_to_json(value)
        if self._finisher.is_clean(json_bytes):
            return value
        clean, redacted = self._finisher.clean(json_bytes)
        self._counts.add(_trajectory_of(span), 0, redacted)
        return clean

    def _start(
        self,
        name: str,
        context: Context,
        attributes: Mapping[str, Any],
        trajectory: TrajectoryState | None,
        start_time: int | None,
        links: Sequence[Link] = (),
    ) -> Span | None:
        redactor = self._redactor
        if redactor is not None:
            name, in_name = redactor.label(name)
            attributes, in_attributes = redactor.attributes(attributes)
            self._counts.add(trajectory, 0, in_name + in_attributes)
        span = self._tracer.start_span(name, context=context, attributes=attributes, links=links, start_time=start_time)
        if not span.is_recording():
            return None
        # This thread would wait for ever for a lock that a handler's exception left held.
        renew_locks(span, *(getattr(span, part, None) for part in _PARTS))
        ours = span if redactor is None else RedactingSpan(span, redactor, trajectory, self._counts)
        if self._on_start is not None:
            self._on_start(ours, trajectory)
        return ours


class RedactingSpan(Span):
    """Redacts whatever is set on a provider's span, on the caller's thread, since the provider exports it as it is.

    It is the current span while an op runs, so that other code's attributes are redacted too.

    Args:
        span: The provider's span.
        redactor: Replaces secrets.
        trajectory: Its trajectory, whose replaced secrets are counted.
        counts: Counts the secrets, and the texts that are too long to be searched.
    """

    def __init__(
        self, span: Span, redactor: Redactor, trajectory: TrajectoryState | None, counts: FinishCounts
    ) -> None:
        self.span = span
        self.trajectory = trajectory
        self._redactor = redactor
        self._counts = counts

    def get_span_context(self) -> SpanContext:
        """Return the span's ids."""
        return self.span.get_span_context()

    def is_recording(self) -> bool:
        """Return True until the span has ended."""
        return self.span.is_recording()

    def set_attribute(self, key: str, value: AttributeValue) -> None:
        """Set one attribute."""
        self.set_attributes({key: value})

    def set_attributes(self, attributes: Mapping[str, AttributeValue]) -> None:
        """Set several attributes."""
        self.span.set_attributes(self._clean(self._attributes, attributes, {}))

    def add_event(self, name: str, attributes: Attributes = None, timestamp: int | None = None) -> None:
        """Add an event."""
        clean = self._clean(self._attributes, attributes, {}) if attributes else attributes
        self.span.add_event(self._clean(self._label, name, REDACTED), clean, timestamp)

    def add_link(self, context: SpanContext, attributes: Attributes = None) -> None:
        """Add a link to another span."""
        self.span.add_link(context, self._clean(self._attributes, attributes, {}) if attributes else attributes)

    def update_name(self, name: str) -> None:
        """Change the span's name."""
        self.span.update_name(self._clean(self._label, name, REDACTED))

    def set_status(self, status: Status | StatusCode, description: str | None = None) -> None:
        """Set the status."""
        if isinstance(status, Status):
            if status.description:
                status = Status(status.status_code, self._clean(self._label, status.description, REDACTED))
        elif description:
            description = self._clean(self._label, description, REDACTED)
        self.span.set_status(status, description)

    def record_exception(
        self,
        exception: BaseException,
        attributes: Attributes = None,
        timestamp: int | None = None,
        escaped: bool = False,
    ) -> None:
        """Record an exception."""
        described = {
            **ExceptionRecord(exception).attributes(),
            semconv.EXCEPTION_ESCAPED: str(escaped),
            **(attributes or {}),
        }
        self.add_event(semconv.EXCEPTION_EVENT, described, timestamp)

    def end(self, end_time: int | None = None) -> None:
        """End the span."""
        self.span.end(end_time)

    def __getattr__(self, name: str) -> Any:
        """Return an attribute of the provider's span that the API doesn't have, such as its name."""
        return getattr(self.span, name)

    def _attributes(self, attributes: Mapping[str, Any]) -> tuple[dict[str, Any], int]:
        return self._redactor.attributes({key: self._short(value) for key, value in attributes.items()})

    def _label(self, text: str) -> tuple[str, int]:
        return self._redactor.label(self._short(text))

    def _short(self, value: Any) -> Any:
        """Return the value, or a note in place of a text that takes the caller too long to search."""
        if isinstance(value, (list, tuple)):
            return type(value)(map(self._short, value)) if any(map(_is_long, value)) else value
        if not _is_long(value):
            return value
        self._counts.add(self.trajectory, len(value), 0)
        return f"…[{len(value):,} characters, too many to search for secrets]"

    def _clean(self, replace: Callable[[Any], tuple[Any, int]], value: _Value, instead: Any) -> _Value:
        try:
            clean, redacted = replace(value)
        except BaseException as error:
            if is_programs(error):
                raise
            # A value that can't be searched must not be exported.
            internal_error("replacing secrets")
            return instead  # type: ignore[no-any-return]
        self._counts.add(self.trajectory, 0, redacted)
        return clean  # type: ignore[no-any-return]  # of the kind that it was given


def _trajectory_of(span: Span) -> TrajectoryState | None:
    return span.trajectory if isinstance(span, RedactingSpan) else None


def _is_long(value: object) -> bool:
    return isinstance(value, str) and len(value) > MAX_SEARCHED


def _attributes_of(span: Span) -> Mapping[str, Any]:
    """Return the attributes of the SDK's spans; other providers' can't be read."""
    return getattr(span, "attributes", None) or {}


def _kind_of(span: Span) -> Any:
    return _attributes_of(span).get(semconv.SPAN_KIND)


def _bare(span: Span) -> Span:
    """Return the provider's own span, for values that are redacted already."""
    return span.span if isinstance(span, RedactingSpan) else span
