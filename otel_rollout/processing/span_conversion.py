"""A recording span as the standard `ReadableSpan`, on the delivery thread: limits, redaction, token text, tags."""

from __future__ import annotations

import threading
from itertools import islice
from typing import Any, Final

import orjson
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.util.instrumentation import InstrumentationScope
from opentelemetry.trace import Status, StatusCode

from otel_rollout import semconv
from otel_rollout.processing.finished_attributes import AttributeFinisher, plain_size
from otel_rollout.processing.payload_limits import (
    cut_json,
    cut_json_characters,
    cut_media,
    may_need_mending,
    narrow_integers,
)
from otel_rollout.processing.redacted_span import redact_span
from otel_rollout.processing.redaction import Redactor
from otel_rollout.processing.shrink import replace_attributes, sound_span
from otel_rollout.processing.span_size import attributes_size, rest_size
from otel_rollout.processing.token_text import add_token_text
from otel_rollout.safety.log_once import internal_error
from otel_rollout.spans.finished_span import FinishedSpan, readable_span
from otel_rollout.spans.recording_span import RolloutSpan
from otel_rollout.values.snapshot import Snapshot
from otel_rollout.values.snapshot_json import to_json

__all__ = ["PayloadFinisher", "SpanReader", "without_payload"]

SMALL_PAYLOAD: Final = 256
"""A payload up to this size is not worth a note in its place."""

SIZE_OF_SPAN: Final = 400
SIZE_OF_ATTRIBUTE: Final = 72
"""What a span and one of its attributes take beside payload and long texts, about; a little more rather than less."""

_UNSET: Final = Status(StatusCode.UNSET)

_OTHER_ATTRIBUTES: Final = 10
"""How many attributes a span has beside its own, at most: input and output with their MIME types, and the tags."""


class PayloadFinisher:
    """Makes a payload's JSON text fit to leave the process.

    Args:
        max_bytes: The longest text that leaves; longer ones are cut inside the JSON.
        redactor: Replaces secrets.
        max_characters: How many characters it may have, if OpenTelemetry's limit of attributes is set.
    """

    def __init__(self, max_bytes: int, redactor: Redactor | None, max_characters: int | None = None) -> None:
        self.max_bytes = max_bytes
        self.max_characters = max_characters
        self.redactor = redactor
        self.truncated_bytes = 0

    def __call__(self, taken: Snapshot) -> str:
        """Return the finished text of a snapshot; what was cut is added to `truncated_bytes`."""
        self.truncated_bytes += cut_before(taken)
        return self.finish(to_json(taken))[0].decode()

    def is_clean(self, text: bytes) -> bool:
        """Return whether `text` is fit as it is: most payloads are, and a look at both sides of a span says so.

        Args:
            text: JSON in UTF-8, or several such texts one after the other, shorter than the limit together.
        """
        return (
            len(text) <= self.max_bytes
            and (self.max_characters is None or len(text) <= self.max_characters)
            and not may_need_mending(text)
            and not (self.redactor is not None and self.redactor.may_find(text))
        )

    def finish(self, text: bytes) -> tuple[bytes, int]:
        """Return the finished text, and how many bytes were cut from it; what can't be finished does not leave."""
        try:
            text = narrow_integers(cut_media(text))
            if self.redactor is not None:
                text = self.redactor(text)
            finished = cut_json(text, self.max_bytes)
            if self.max_characters is not None:
                finished = cut_json_characters(finished, self.max_characters)
        except Exception:  # the span still counts
            internal_error("finishing a payload")
            finished = orjson.dumps("…[the payload could not be read]")
        cut = max(0, len(text) - len(finished))
        self.truncated_bytes += cut
        return finished, cut


def cut_before(taken: Snapshot | None) -> int:
    """Return how many bytes the budget of a snapshot kept out of it, at least."""
    return 0 if taken is None else taken.left_out


class SpanReader:
    """Turns recording spans into `ReadableSpan`s; each is finished once, whichever exporter asks first.

    Args:
        resource: What the spans were made by.
        scope: The instrumentation scope.
        finisher: Finishes payloads.
    """

    def __init__(self, resource: Resource, scope: InstrumentationScope, finisher: PayloadFinisher) -> None:
        self._readers = 0
        self.resource = resource
        self._scope = scope
        self._finisher = finisher
        self._redactor = finisher.redactor
        self._lock = threading.Lock()

    def after_fork(self) -> None:
        """Forget a lock that a thread of the parent may have held."""
        self._lock = threading.Lock()

    def register(self) -> None:
        """Count one more exporter that every span goes to, before the first span."""
        self._readers += 1

    def release(self, span: RolloutSpan | ReadableSpan) -> None:
        """Give back what a span holds once every exporter is done with it; called once by each."""
        if isinstance(span, RolloutSpan):
            span.release(self._readers)

    def read(self, span: RolloutSpan | ReadableSpan, exporter: str) -> ReadableSpan:
        """Return the span in its standard form, for this exporter alone: what it changes there no other one sees.

        Args:
            span: An ended span, ours or the SDK's.
            exporter: Whose queue asks; a root says what that queue lost of its trajectory.
        """
        if not isinstance(span, RolloutSpan):
            span = sound_span(span)
            return span if self._redactor is None else redact_span(span, self._redactor)
        if span.readable is not None:
            # Of a provider that is not ours: its payload was finished when it was set.
            readable = sound_span(span.readable)
        else:
            finished = span.finished
            if finished is None:
                with self._lock:
                    finished = span.finished or span.finish(self._finish(span))
            readable = readable_span(span, finished, self.resource, self._scope)
        if span.parent is None and span.trajectory is not None:
            dropped = span.trajectory.dropped_spans[exporter]
            if dropped:
                readable = replace_attributes(readable, {**(readable.attributes or {}), semconv.DROPPED_SPANS: dropped})
        return readable

    def _finish(self, span: RolloutSpan) -> FinishedSpan:
        text, output, cut = self._finish_payload(span)
        trajectory = span.trajectory
        bounds, attributes = span.bounds, span.attributes
        redactor = self._redactor
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
        if others.cut_characters:
            self._finisher.truncated_bytes += others.cut_characters
            cut += others.cut_characters
        if trajectory is not None:
            if cut:
                trajectory.truncated_bytes += cut
            if span.parent is None and trajectory.truncated_bytes:
                attributes = {semconv.TRUNCATED_BYTES: trajectory.truncated_bytes, **attributes}
        dropped = span.dropped_attributes
        if len(attributes) + _OTHER_ATTRIBUTES > bounds.attributes:
            given = _count(tags, text, output, attributes)
            tags, text, output, attributes = _first(bounds.attributes, tags, text, output, attributes)
            dropped += given - _count(tags, text, output, attributes)
        size = SIZE_OF_SPAN + 4 * len(name) + text_bytes + len(text or b"") + len(output or b"")
        size += SIZE_OF_ATTRIBUTE * (len(attributes) + _OTHER_ATTRIBUTES)
        if events or links or status.description:
            size += rest_size(events, links, status.description)
        return FinishedSpan(name, attributes, tags, text, output, status, events, links, dropped, size)

    def _finish_payload(self, span: RolloutSpan) -> tuple[bytes | None, bytes | None, int]:
        """Return input and output as they leave the process, and how many bytes were cut from them."""
        cut = cut_before(span.input) + cut_before(span.output)
        self._finisher.truncated_bytes += cut
        text = None if span.input is None else to_json(span.input)
        output = None if span.output is None else to_json(span.output)
        if output is not None and span.tokenizer is not None:
            output = add_token_text(span.tokenizer, text, output)
        # In one piece: one look sees both.
        if not self._finisher.is_clean(b"%b\n%b" % (text or b"", output or b"")):
            if text is not None:
                text, text_cut = self._finisher.finish(text)
                cut += text_cut
            if output is not None:
                output, output_cut = self._finisher.finish(output)
                cut += output_cut
        if self._readers > 1:
            # Another exporter's queue holds them longer: as copies, they take no more memory than they say. A text of
            # orjson keeps its buffer, of 4 KiB and more.
            text = None if text is None else memoryview(text).tobytes()
            output = None if output is None else memoryview(output).tobytes()
        return text, output, cut


def _first(
    most: int, tags: dict[str, Any], text: bytes | None, output: bytes | None, attributes: dict[str, Any]
) -> tuple[dict[str, Any], bytes | None, bytes | None, dict[str, Any]]:
    """Return what is kept of a span's attributes: the tags, then the payload, then what was set first.

    Args:
        most: How many attributes.
        tags: The trajectory's tags.
        text: The input, which takes two with its MIME type.
        output: The output, likewise.
        attributes: The span's own attributes.
    """
    tags = dict(islice(tags.items(), most))
    text = text if _count(tags, text) <= most else None
    output = output if _count(tags, text, output) <= most else None
    return tags, text, output, dict(islice(attributes.items(), most - _count(tags, text, output)))


def _count(*parts: dict[str, Any] | bytes | None) -> int:
    return sum(len(part) if isinstance(part, dict) else 0 if part is None else 2 for part in parts)


def without_payload(span: RolloutSpan | ReadableSpan) -> RolloutSpan | ReadableSpan:
    """Return a copy of a finished span that says how large its payload was; the span itself where that is small."""
    if not isinstance(span, RolloutSpan):
        return _without_payload(span)
    # One after the other: what another exporter's thread has finished by now is no longer in the span.
    taken, finished, readable = (span.input, span.output), span.finished, span.readable
    if readable is not None:
        shorter = _without_payload(readable)
        return span if shorter is readable else span.copy(readable=shorter)
    if finished is not None:
        if len(finished.input or b"") + len(finished.output or b"") <= SMALL_PAYLOAD:
            return span
        noted = finished._replace(
            input=None if finished.input is None else orjson.dumps(_note(len(finished.input))),
            output=None if finished.output is None else orjson.dumps(_note(len(finished.output))),
        )
        return span.copy(finished=noted)
    if sum(side.size for side in taken if side is not None) <= SMALL_PAYLOAD:
        return span
    noted_input, noted_output = (None if side is None else _dropped(side) for side in taken)
    return span.copy(input=noted_input, output=noted_output)


def _without_payload(span: ReadableSpan) -> ReadableSpan:
    attributes = dict(span.attributes or {})
    payload = [(key, attributes.get(key)) for key in (semconv.INPUT_VALUE, semconv.OUTPUT_VALUE)]
    notes = {key: f'"{_note(len(value))}"' for key, value in payload if isinstance(value, str)}
    size = sum(len(value) for _, value in payload if isinstance(value, str))
    return span if size <= SMALL_PAYLOAD else replace_attributes(span, {**attributes, **notes})


def _dropped(taken: Snapshot) -> Snapshot:
    return Snapshot(_note(taken.size), SMALL_PAYLOAD // 2)


def _note(size: int) -> str:
    return f"…[{size:,} bytes dropped: the export queue was full]"
