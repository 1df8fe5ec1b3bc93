"""Recording spans to the standard `ReadableSpan`, on the delivery thread: limits, redaction, token text, tags."""

from __future__ import annotations

import threading
from itertools import islice
from typing import Any, Final, NamedTuple, cast

from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.util.instrumentation import InstrumentationScope
from opentelemetry.trace import Status, StatusCode

from otel_rollout import semconv
from otel_rollout.finish.chat_writer import ChatWriter, WrittenSide
from otel_rollout.finish.finished_attributes import AttributeFinisher, plain_size
from otel_rollout.finish.payload_finisher import PayloadFinisher, plain_text
from otel_rollout.finish.run_resource import RunResource
from otel_rollout.finish.span_copies import copy_with_losses, encodable_copy, is_without_payload, redacted_copy
from otel_rollout.finish.span_size import attributes_size, rest_size
from otel_rollout.finish.token_text import add_token_text, numbers_last
from otel_rollout.guard.log_once import internal_error
from otel_rollout.record.finished_span import FinishedSpan, readable_span
from otel_rollout.record.recording_span import RolloutSpan
from otel_rollout.record.trajectory_state import TrajectoryState
from otel_rollout.text.plain_json import value_to_json

__all__ = ["SpanReader"]

SIZE_OF_SPAN: Final = 400
SIZE_OF_ATTRIBUTE: Final = 72
"""Encoded bytes of a span and of one attribute without payload and long texts, rounded up."""
_OTHER_ATTRIBUTES: Final = 13
"""At most this many attributes beside the span's own: input, output, their MIME types, the messages, and the tags."""
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
            exporter: The exporter's name; a root says how many spans of its trajectory that exporter's queue dropped.
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
        before = 0 if self.redactor is None else self.redactor.redacted_here
        payload = self._finish_payload(span)
        cut = payload.cut
        trajectory = span.trajectory
        bounds, attributes = span.bounds, span.attributes
        redactor = self.redactor
        others = AttributeFinisher(bounds, redactor)
        text_bytes = plain_size(attributes, bounds.characters)
        if text_bytes is None:
            attributes = others.attributes(attributes)
            text_bytes = attributes_size(attributes)
        elif redactor is not None:
            attributes = redactor.attributes(attributes)
        tags: dict[str, Any] = {}
        if trajectory is not None:
            if redactor is not None and not trajectory.has_clean_tags:
                trajectory.tags = redactor.attributes(trajectory.tags)
                trajectory.has_clean_tags = True
            text_bytes += trajectory.tag_bytes
            tags = trajectory.tags if bounds.characters is None else others.attributes(trajectory.tags)
        name = others.name(span.name)
        status = _UNSET
        if span.status_code is not StatusCode.UNSET:
            description = span.status_description
            status = Status(span.status_code, others.description(description) if description else None)
        events = [others.event(event) for event in span.events] if span.events else ()
        links = [others.link(link) for link in span.links] if span.links else ()
        cut += others.cut_characters
        self._finisher.truncated_bytes += cut
        if trajectory is not None:
            trajectory.truncated_bytes += cut
            if redactor is not None:
                trajectory.redacted += redactor.redacted_here - before
            if span.parent is None:
                attributes = {**_losses(trajectory), **attributes}
        dropped = span.dropped_attributes
        if len(attributes) + _OTHER_ATTRIBUTES > bounds.attributes:
            given = _count(tags, payload, attributes)
            tags, payload, attributes = _first(bounds.attributes, tags, payload, attributes)
            dropped += given - _count(tags, payload, attributes)
        size = SIZE_OF_SPAN + 4 * len(name) + text_bytes + payload.size
        size += SIZE_OF_ATTRIBUTE * (len(attributes) + _OTHER_ATTRIBUTES)
        if events or links or status.description:
            size += rest_size(events, links, status.description)
        return FinishedSpan(
            name,
            attributes,
            tags,
            payload.input,
            payload.output,
            status,
            events,
            links,
            dropped,
            size,
            payload.texts,
            payload.messages,
        )

    def _finish_payload(self, span: RolloutSpan) -> _Payload:
        """Return the finished input, output and messages, and the number of bytes cut from them."""
        taken, result = span.input, span.output
        arguments, answer, cut = None, None, 0
        if taken is not None:
            arguments, cut = taken.load(), taken.left_out
        if result is not None:
            answer, cut = result.load(), cut + result.left_out
        if span.tokenizer is not None:
            arguments, answer = add_token_text(span.tokenizer, arguments, answer)
        arguments, answer = numbers_last(arguments), numbers_last(answer)
        text = None if taken is None else value_to_json(arguments)
        output = None if result is None else value_to_json(answer)
        messages: dict[str, bytes] = {}
        # One check of both together costs less than two.
        is_clean = self._finisher.is_clean(b"%b\n%b" % (text or b"", output or b""))
        is_root = span.parent is None and span.trajectory is not None
        # Another exporter has the same span whole, and its conversation is not to change with this copy.
        is_copy = self._readers > 1 and is_without_payload(span)
        if self.chat is not None and not is_copy and (is_root or span.attributes.get(semconv.SPAN_KIND) == "LLM"):
            written = self._write_messages(
                span, text, output, (arguments, answer) if is_clean else None, is_root=is_root
            )
            if written is not None:
                asked, answered = written
                text, output = asked.payload, answered.payload
                messages = {**asked.attributes, **answered.attributes}
                cut += asked.cut + answered.cut
                # Redacted already; a root's text may be new.
                is_clean = max(len(text or b""), len(output or b"")) <= self._finisher.limit
        if not is_clean:
            if text is not None:
                text, text_cut = self._finisher.finish(text)
                cut += text_cut
            if output is not None:
                output, output_cut = self._finisher.finish(output)
                cut += output_cut
        plain_input = None if text is None else plain_text(text)
        plain_output = None if output is None else plain_text(output)
        texts = frozenset(
            key
            for key, plain in ((semconv.INPUT_VALUE, plain_input), (semconv.OUTPUT_VALUE, plain_output))
            if plain is not None
        )
        text = text if plain_input is None else plain_input
        output = output if plain_output is None else plain_output
        if self._readers > 1:
            # Another exporter's queue holds them longer. orjson's texts keep a buffer of 4 KiB or more; a copy doesn't.
            text = None if text is None else memoryview(text).tobytes()
            output = None if output is None else memoryview(output).tobytes()
        return _Payload(text, output, texts, messages, cut)

    def _write_messages(
        self,
        span: RolloutSpan,
        text: bytes | None,
        output: bytes | None,
        values: tuple[Any, Any] | None,
        *,
        is_root: bool,
    ) -> tuple[WrittenSide, WrittenSide] | None:
        """Return both sides with messages; None if they can't be written.

        Args:
            span: An LLM op, or a trajectory's root.
            text: The input as JSON, if there is one.
            output: The output as JSON, if there is one.
            values: The values of both; None if they need cleaning.
            is_root: True for a root.
        """
        chat = cast("ChatWriter", self.chat)
        try:
            if values is None:
                clean = self._finisher.clean
                values = None if text is None else clean(text), None if output is None else clean(output)
            arguments, answer = values
            trace_id = span.context.trace_id
            if is_root:
                return chat.write_root(
                    trace_id, None if text is None else (arguments,), None if output is None else (answer,)
                )
            asked = answered = _NOTHING
            if text is not None:
                asked = chat.write_arguments(arguments)
            if output is not None:
                answered = chat.write_result(answer, arguments)
            if semconv.TURN in span.attributes:
                chat.conversations.add(trace_id, asked.side, answered.side)
        except Exception:
            # The payload is sent as it is.
            internal_error("writing messages")
            return None
        return asked, answered


def _losses(trajectory: TrajectoryState) -> dict[str, Any]:
    """Return the attributes of a root that say what was cut and replaced, if anything was."""
    counts = {semconv.TRUNCATED_BYTES: trajectory.truncated_bytes, semconv.REDACTED: trajectory.redacted}
    return {key: count for key, count in counts.items() if count}


class _Payload(NamedTuple):
    """The finished payload of a span; see FinishedSpan."""

    input: bytes | None
    output: bytes | None
    texts: frozenset[str]
    messages: dict[str, bytes]
    cut: int

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
    payload = payload if _count(tags, payload) <= most else payload._replace(input=None)
    with_output = payload._replace(output=given.output)
    payload = with_output if _count(tags, with_output) <= most else payload
    kept = dict(islice(given.messages.items(), most - _count(tags, payload)))
    payload = payload._replace(messages=kept)
    return tags, payload, dict(islice(attributes.items(), most - _count(tags, payload)))


def _count(tags: dict[str, Any], payload: _Payload, attributes: dict[str, Any] | None = None) -> int:
    sides = (payload.input is not None) + (payload.output is not None)
    return len(tags) + 2 * sides + len(payload.messages) + len(attributes or ())
