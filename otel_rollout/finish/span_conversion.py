"""Recording spans to the standard `ReadableSpan`, on the delivery thread: limits, redaction, token text, tags."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from itertools import islice
from typing import Any, Final, NamedTuple

from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.util.instrumentation import InstrumentationScope
from opentelemetry.trace import Status, StatusCode

from otel_rollout import semconv
from otel_rollout.finish.chat_writer import ChatWriter, WrittenSide
from otel_rollout.finish.finished_attributes import AttributeFinisher, plain_size
from otel_rollout.finish.payload_finisher import PayloadFinisher, plain_text
from otel_rollout.finish.span_copies import (
    copy_span,
    copy_with_losses,
    encodable_copy,
    is_without_payload,
    redacted_copy,
)
from otel_rollout.finish.span_size import attributes_size, rest_size
from otel_rollout.finish.token_text import add_token_text, numbers_last
from otel_rollout.guard.log_once import internal_error
from otel_rollout.record.finished_span import FinishedSpan, readable_span
from otel_rollout.record.recording_span import RolloutSpan
from otel_rollout.record.trajectory_state import TrajectoryState
from otel_rollout.text.plain_json import value_to_json

SIZE_OF_SPAN: Final = 400
SIZE_OF_ATTRIBUTE: Final = 72
"""Encoded bytes of a span and of one attribute without payload and long texts, rounded up."""
_OTHER_ATTRIBUTES: Final = 13
"""At most this many attributes besides the span's own: input, output, their MIME types, the messages, and the tags."""
_UNSET: Final = Status(StatusCode.UNSET)
_NOTHING: Final = WrittenSide(None, {}, None, 0)


class SpanReader:
    """Converts recording spans to `ReadableSpan`s; each is finished once, for the first exporter that asks.

    Args:
        resource: The resource of the spans.
        scope: The instrumentation scope.
        finisher: Finishes payloads.
        chat: Writes messages; None if a setting turns them off.
    """

    def __init__(
        self, resource: Resource, scope: InstrumentationScope, finisher: PayloadFinisher, chat: ChatWriter | None = None
    ) -> None:
        self._readers = 0
        self.resource = resource
        self._run = RunResource(resource)
        self._scope = scope
        self._finisher = finisher
        self.redactor = finisher.redactor
        self.chat = chat
        self._lock = threading.Lock()

    def after_fork(self) -> None:
        """Replace a lock that a thread of the parent may have held."""
        self._lock = threading.Lock()
        if self.chat is not None:
            self.chat.conversations.after_fork()

    def register(self) -> None:
        """Count one more exporter; called before the first span."""
        self._readers += 1

    def release(self, span: RolloutSpan | ReadableSpan) -> None:
        """Free a span's payload once every exporter has called this for it."""
        if isinstance(span, RolloutSpan):
            span.release(self._readers)

    def read(self, span: RolloutSpan | ReadableSpan, exporter: str) -> ReadableSpan:
        """Return the standard form of an ended span, in which the exporter may change what it likes.

        Args:
            span: An ended span, ours or the SDK's.
            exporter: The exporter's name; a root counts the spans of its trajectory that this exporter's queue dropped.
        """
        if not isinstance(span, RolloutSpan):
            span = self._named(encodable_copy(span))
            return span if self.redactor is None else redacted_copy(span, self.redactor)
        if span.readable is not None:
            # A provider's span: its payload was finished when it was set.
            readable = self._named(encodable_copy(span.readable))
        else:
            finished = span.finished
            if finished is None:
                with self._lock:
                    finished = span.finished or span.finish(self._finish(span))
            readable = readable_span(span, finished, self.resource, self._scope)
        return copy_with_losses(readable, span, exporter)

    def _named(self, span: ReadableSpan) -> ReadableSpan:
        """Return a provider's span with our project in its resource: exporters file it by that."""
        run = self._run
        if run.resource is not self.resource:
            self._run = run = RunResource(self.resource)
        return run.named(span)

    def _finish(self, span: RolloutSpan) -> FinishedSpan:
        record = _Record(span)
        before = 0 if self.redactor is None else self.redactor.redacted_here
        for step in (
            _load,
            _encode,
            self._write_messages,
            self._finish_payload,
            self._show_texts,
            self._finish_attributes,
            self._finish_rest,
        ):
            step(record)
        self._count(record, 0 if self.redactor is None else self.redactor.redacted_here - before)
        return _finished(record)

    def _write_messages(self, record: _Record) -> None:
        """Take the messages of an LLM op or a root out of its payload; they are redacted and within the limits."""
        span, text, output = record.span, record.input, record.output
        # One check of both together costs less than two.
        record.is_clean = self._finisher.is_clean(b"%b\n%b" % (text or b"", output or b""))
        is_root = span.parent is None and span.trajectory is not None
        # Another exporter has the same span whole, and its conversation is not to change with this copy.
        is_copy = self._readers > 1 and is_without_payload(span)
        if self.chat is None or is_copy or not (is_root or span.attributes.get(semconv.SPAN_KIND) == "LLM"):
            return
        try:
            if not record.is_clean:
                clean = self._finisher.clean
                record.arguments = None if text is None else clean(text)
                record.answer = None if output is None else clean(output)
            asked, answered = self._written(record, self.chat, is_root=is_root)
        except Exception:
            # The payload is sent as it is.
            internal_error("writing messages")
            return
        record.input, record.output = asked.payload, answered.payload
        record.messages = {**asked.attributes, **answered.attributes}
        record.cut += asked.cut + answered.cut
        # Redacted already; a root's text may be new.
        record.is_clean = max(len(record.input or b""), len(record.output or b"")) <= self._finisher.limit

    @staticmethod
    def _written(record: _Record, chat: ChatWriter, *, is_root: bool) -> tuple[WrittenSide, WrittenSide]:
        span, text, output = record.span, record.input, record.output
        trace_id = span.context.trace_id
        if is_root:
            return chat.write_root(
                trace_id, None if text is None else (record.arguments,), None if output is None else (record.answer,)
            )
        asked = _NOTHING if text is None else chat.write_arguments(record.arguments)
        answered = _NOTHING if output is None else chat.write_result(record.answer, record.arguments)
        if semconv.TURN in span.attributes:
            chat.conversations.add(trace_id, asked.side, answered.side)
        return asked, answered

    def _finish_payload(self, record: _Record) -> None:
        """Redact and cut what is left of the payload."""
        if record.is_clean:
            return
        if record.input is not None:
            record.input, cut = self._finisher.finish(record.input)
            record.cut += cut
        if record.output is not None:
            record.output, cut = self._finisher.finish(record.output)
            record.cut += cut

    def _show_texts(self, record: _Record) -> None:
        """Write a payload that is one text as backends show it, without its quotes."""
        plain_input = None if record.input is None else plain_text(record.input)
        plain_output = None if record.output is None else plain_text(record.output)
        if plain_input is not None:
            record.input, record.texts = plain_input, frozenset((semconv.INPUT_VALUE,))
        if plain_output is not None:
            record.output, record.texts = plain_output, record.texts | {semconv.OUTPUT_VALUE}
        if self._readers > 1:
            # Another exporter's queue holds them longer. orjson's texts keep a buffer of 4 KiB or more; a copy doesn't.
            record.input = None if record.input is None else memoryview(record.input).tobytes()
            record.output = None if record.output is None else memoryview(record.output).tobytes()

    def _finish_attributes(self, record: _Record) -> None:
        """Redact and cut the attributes, and the tags of the trajectory once."""
        span, redactor = record.span, self.redactor
        record.others = others = AttributeFinisher(span.bounds, redactor)
        text_bytes = plain_size(span.attributes, span.bounds.characters)
        if text_bytes is None:
            record.attributes = others.attributes(span.attributes)
            text_bytes = attributes_size(record.attributes)
        elif redactor is not None:
            record.attributes = redactor.attributes(span.attributes)
        trajectory = span.trajectory
        if trajectory is not None:
            if redactor is not None and not trajectory.has_clean_tags:
                trajectory.tags = redactor.attributes(trajectory.tags)
                trajectory.has_clean_tags = True
            text_bytes += trajectory.tag_bytes
            record.tags = trajectory.tags if span.bounds.characters is None else others.attributes(trajectory.tags)
        record.text_bytes = text_bytes

    @staticmethod
    def _finish_rest(record: _Record) -> None:
        """Redact and cut the name, the status, the events and the links."""
        span, others = record.span, record.others
        record.name = others.name(span.name)
        if span.status_code is not StatusCode.UNSET:
            description = span.status_description
            record.status = Status(span.status_code, others.description(description) if description else None)
        record.events = [others.event(event) for event in span.events] if span.events else ()
        record.links = [others.link(link) for link in span.links] if span.links else ()
        record.cut += others.cut_characters

    def _count(self, record: _Record, redacted: int) -> None:
        """Count what was cut and replaced; the root reports it."""
        self._finisher.truncated_bytes += record.cut
        trajectory = record.span.trajectory
        if trajectory is not None:
            trajectory.truncated_bytes += record.cut
            trajectory.redacted += redacted
            if record.span.parent is None:
                record.attributes = {**_losses(trajectory), **record.attributes}


def _losses(trajectory: TrajectoryState) -> dict[str, Any]:
    """Return the attributes of a root with the counts of what was cut and replaced, if anything was."""
    counts = {semconv.TRUNCATED_BYTES: trajectory.truncated_bytes, semconv.REDACTED: trajectory.redacted}
    return {key: count for key, count in counts.items() if count}


class _Record:
    """A span on its way through the steps; each fills in or replaces some of the fields.

    Args:
        span: The span as it was recorded.
    """

    arguments: Any = None
    answer: Any = None
    input: bytes | None = None
    output: bytes | None = None
    is_clean = False
    """True if input and output need no redaction and no cut."""
    texts: frozenset[str] = frozenset()
    status = _UNSET
    events: Sequence[Any] = ()
    links: Sequence[Any] = ()
    cut = 0
    """The bytes, items and characters that were cut."""
    text_bytes: int
    name: str
    others: AttributeFinisher

    def __init__(self, span: RolloutSpan) -> None:
        self.span = span
        self.attributes: dict[str, Any] = span.attributes
        self.messages: dict[str, bytes] = {}
        self.tags: dict[str, Any] = {}


def _load(record: _Record) -> None:
    """Load the snapshots; write the text of token ids before them, and long lists of numbers last."""
    span, arguments, answer, cut = record.span, None, None, 0
    if span.input is not None:
        arguments, cut = span.input.load(), span.input.left_out
    if span.output is not None:
        answer, cut = span.output.load(), cut + span.output.left_out
    if span.tokenizer is not None:
        arguments, answer = add_token_text(span.tokenizer, arguments, answer)
    record.arguments, record.answer, record.cut = numbers_last(arguments), numbers_last(answer), cut


def _encode(record: _Record) -> None:
    """Write both sides as JSON."""
    if record.span.input is not None:
        record.input = value_to_json(record.arguments)
    if record.span.output is not None:
        record.output = value_to_json(record.answer)


def _finished(record: _Record) -> FinishedSpan:
    """Return the finished span within the limit of attributes, with its size."""
    bounds, dropped = record.span.bounds, record.span.dropped_attributes
    payload = _Payload(record.input, record.output, record.messages)
    tags, attributes, status = record.tags, record.attributes, record.status
    if len(attributes) + _OTHER_ATTRIBUTES > bounds.attributes:
        given = _number(tags, payload, attributes)
        tags, payload, attributes = _first(bounds.attributes, tags, payload, attributes)
        dropped += given - _number(tags, payload, attributes)
    size = SIZE_OF_SPAN + 4 * len(record.name) + record.text_bytes + payload.size
    size += SIZE_OF_ATTRIBUTE * (len(attributes) + _OTHER_ATTRIBUTES)
    if record.events or record.links or status.description:
        size += rest_size(record.events, record.links, status.description)
    return FinishedSpan(
        record.name,
        attributes,
        tags,
        payload.input,
        payload.output,
        status,
        record.events,
        record.links,
        dropped,
        size,
        record.texts,
        payload.messages,
    )


class _Payload(NamedTuple):
    """The finished payload of a span; see FinishedSpan."""

    input: bytes | None
    output: bytes | None
    messages: dict[str, bytes]

    @property
    def size(self) -> int:
        return len(self.input or b"") + len(self.output or b"") + sum(map(len, self.messages.values()))


def _first(
    most: int, tags: dict[str, Any], payload: _Payload, attributes: dict[str, Any]
) -> tuple[dict[str, Any], _Payload, dict[str, Any]]:
    """Return the first `most` attributes: the tags, input and output (two each), the messages, the span's own."""
    tags = dict(islice(tags.items(), most))
    given = payload
    payload = given._replace(output=None, messages={})
    payload = payload if _number(tags, payload) <= most else payload._replace(input=None)
    with_output = payload._replace(output=given.output)
    payload = with_output if _number(tags, with_output) <= most else payload
    kept = dict(islice(given.messages.items(), most - _number(tags, payload)))
    payload = payload._replace(messages=kept)
    return tags, payload, dict(islice(attributes.items(), most - _number(tags, payload)))


def _number(tags: dict[str, Any], payload: _Payload, attributes: dict[str, Any] | None = None) -> int:
    sides = (payload.input is not None) + (payload.output is not None)
    return len(tags) + 2 * sides + len(payload.messages) + len(attributes or ())


_UNNAMED: Final = "unknown_service"
"""The start of the SDK's default for `service.name`."""
_OF_THE_RUN: Final = (semconv.PROJECT_NAME, semconv.RUN_ID, semconv.OPENINFERENCE_PROJECT)


class RunResource:
    """Names the run in resources that don't, and keeps everything else of them.

    Args:
        resource: The resource of the run's own spans.
    """

    def __init__(self, resource: Resource) -> None:
        self.resource = resource
        # A process has one resource in general, and equal resources in a batch should be one object.
        self._last: tuple[Resource, Resource] | None = None

    def named(self, span: ReadableSpan) -> ReadableSpan:
        """Return a copy of a span with the run in its resource; `span` itself if the run is there."""
        theirs = span.resource
        if theirs is self.resource:
            return span
        last = self._last
        if last is None or last[0] is not theirs:
            self._last = last = theirs, self._merge(theirs)
        return copy_span(span, dict(span.attributes or {}), resource=last[1])

    def _merge(self, theirs: Resource) -> Resource:
        ours = self.resource.attributes
        replaced = {*_OF_THE_RUN, *([semconv.SERVICE_NAME] if is_unnamed(theirs) else [])}
        attributes: dict[str, Any] = {
            key: value for key, value in ours.items() if key in replaced or key not in theirs.attributes
        }
        return theirs.merge(Resource(attributes))


def is_unnamed(resource: Resource) -> bool:
    """Return True if nobody has named the resource's service."""
    return str(resource.attributes.get(semconv.SERVICE_NAME, _UNNAMED)).startswith(_UNNAMED)
