"""Recording spans to the standard `ReadableSpan`, on the delivery thread: limits, redaction, token text, tags."""

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
    may_need_cleaning,
    narrow_integers,
)
from otel_rollout.processing.redaction import Redactor
from otel_rollout.processing.run_resource import RunResource
from otel_rollout.processing.span_copies import copy_with_losses, encodable_copy, redacted_copy
from otel_rollout.processing.span_size import attributes_size, rest_size
from otel_rollout.processing.token_text import add_token_text
from otel_rollout.safety.log_once import internal_error
from otel_rollout.spans.finished_span import FinishedSpan, readable_span
from otel_rollout.spans.recording_span import RolloutSpan
from otel_rollout.values.snapshot import Snapshot
from otel_rollout.values.snapshot_json import to_json

__all__ = ["PayloadFinisher", "SpanReader"]

SIZE_OF_SPAN: Final = 400
SIZE_OF_ATTRIBUTE: Final = 72
"""Encoded bytes of a span and of one attribute without payload and long texts, rounded up."""
_OTHER_ATTRIBUTES: Final = 10
"""At most this many attributes beside the span's own: input and output with their MIME types, and the tags."""
_UNSET: Final = Status(StatusCode.UNSET)


class PayloadFinisher:
    """Redacts and cuts the JSON text of a payload.

    Args:
        max_bytes: Bytes that a text may have; longer ones are cut inside the JSON.
        redactor: Replaces secrets.
        max_characters: Characters that a text may have, if OpenTelemetry's limit of attributes is set.
    """

    def __init__(self, max_bytes: int, redactor: Redactor | None, max_characters: int | None = None) -> None:
        self.max_bytes = max_bytes
        self.max_characters = max_characters
        self.redactor = redactor
        self.truncated_bytes = 0

    def __call__(self, taken: Snapshot) -> str:
        """Return the finished text of a snapshot, and count the bytes that were cut."""
        text, cut = self.finish(to_json(taken))
        self.truncated_bytes += taken.left_out + cut
        return text.decode()

    def is_clean(self, json_bytes: bytes) -> bool:
        """Return True if `json_bytes` (one or more JSON texts) needs no change, as is usual."""
        return (
            len(json_bytes) <= self.max_bytes
            and (self.max_characters is None or len(json_bytes) <= self.max_characters)
            and not may_need_cleaning(json_bytes)
            and not (self.redactor is not None and self.redactor.may_find(json_bytes))
        )

    def finish(self, json_bytes: bytes) -> tuple[bytes, int]:
        """Return the finished text and the number of bytes cut from it; on an error, a note in place of the text."""
        try:
            json_bytes = narrow_integers(cut_media(json_bytes))
            if self.redactor is not None:
                json_bytes = self.redactor(json_bytes)
            finished = cut_json(json_bytes, self.max_bytes)
            if self.max_characters is not None:
                finished = cut_json_characters(finished, self.max_characters)
        except Exception:
            # The span is still sent.
            internal_error("finishing a payload")
            finished = orjson.dumps("…[the payload could not be read]")
        return finished, max(0, len(json_bytes) - len(finished))


class SpanReader:
    """Converts recording spans to `ReadableSpan`s; each is finished once, for the first exporter that asks.

    Args:
        resource: The resource of the spans.
        scope: The instrumentation scope.
        finisher: Finishes payloads.
    """

    def __init__(self, resource: Resource, scope: InstrumentationScope, finisher: PayloadFinisher) -> None:
        self._readers = 0
        self.resource = resource
        self._run = RunResource(resource)
        self._scope = scope
        self._finisher = finisher
        self._redactor = finisher.redactor
        self._lock = threading.Lock()

    def after_fork(self) -> None:
        """Replace a lock that a thread of the parent may have held."""
        self._lock = threading.Lock()

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
            return span if self._redactor is None else redacted_copy(span, self._redactor)
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
        cut += others.cut_characters
        self._finisher.truncated_bytes += cut
        if trajectory is not None:
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
        """Return the finished input and output, and the number of bytes cut from them."""
        taken, result, text, output, cut = span.input, span.output, None, None, 0
        if taken is not None:
            text, cut = to_json(taken), taken.left_out
        if result is not None:
            output, cut = to_json(result), cut + result.left_out
        if output is not None and span.tokenizer is not None:
            output = add_token_text(span.tokenizer, text, output)
        # One check of both together costs less than two.
        if not self._finisher.is_clean(b"%b\n%b" % (text or b"", output or b"")):
            if text is not None:
                text, text_cut = self._finisher.finish(text)
                cut += text_cut
            if output is not None:
                output, output_cut = self._finisher.finish(output)
                cut += output_cut
        if self._readers > 1:
            # Another exporter's queue holds them longer. orjson's texts keep a buffer of 4 KiB or more; a copy doesn't.
            text = None if text is None else memoryview(text).tobytes()
            output = None if output is None else memoryview(output).tobytes()
        return text, output, cut


def _first(
    most: int, tags: dict[str, Any], json_bytes: bytes | None, output: bytes | None, attributes: dict[str, Any]
) -> tuple[dict[str, Any], bytes | None, bytes | None, dict[str, Any]]:
    """Return the first `most` attributes: the tags, then input and output (two each), then the span's own."""
    tags = dict(islice(tags.items(), most))
    json_bytes = json_bytes if _count(tags, json_bytes) <= most else None
    output = output if _count(tags, json_bytes, output) <= most else None
    return tags, json_bytes, output, dict(islice(attributes.items(), most - _count(tags, json_bytes, output)))


def _count(*parts: dict[str, Any] | bytes | None) -> int:
    return sum(len(part) if isinstance(part, dict) else 0 if part is None else 2 for part in parts)
