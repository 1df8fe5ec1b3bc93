"""A span that is ready for export, the `ReadableSpan` that each exporter gets, and the sizes that bound queues."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final, NamedTuple, cast

from opentelemetry.attributes import BoundedAttributes
from opentelemetry.context import Context
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import Event, ReadableSpan
from opentelemetry.sdk.util.instrumentation import InstrumentationScope
from opentelemetry.trace import Link, Status

from otel_rollout import semconv
from otel_rollout.record.recording_span import RecordedEvent, RecordedLink, RolloutSpan

if TYPE_CHECKING:
    from otel_rollout.facts.span_record import SpanRecord

BASE_BYTES: Final = 300
PER_ATTRIBUTE_BYTES: Final = 24


class FinishedSpan(NamedTuple):
    """An ended span, finished once for all exporters: cut, redacted, with values that OTLP can encode.

    The payload stays bytes: as Python text it could take four times the bytes that the queue counts for it.

    Args:
        input: The input in UTF-8, if there is one: JSON, or a text.
        size: An estimate of its encoded size in bytes, rather too high than too low.
        texts: The keys among `input.value` and `output.value` whose value is a text, not JSON.
        messages: The attributes of its messages, as JSON in UTF-8.
        record: The facts that its payload shows by itself, if an exporter needs them.
    """

    name: str
    attributes: dict[str, Any]
    tags: dict[str, Any]
    input: bytes | None
    output: bytes | None
    status: Status
    events: Sequence[RecordedEvent]
    links: Sequence[RecordedLink]
    dropped_attributes: int
    size: int
    texts: frozenset[str] = frozenset()
    messages: Mapping[str, bytes] = MappingProxyType({})
    record: SpanRecord | None = None


class CountedSpan(ReadableSpan):
    """A ReadableSpan with explicit dropped counts; the SDK derives them from its bounded containers.

    Every other field is where the SDK keeps it: exporters that mask assign to `_attributes`, `_name` or `_events`,
    and the exporters after them read what was assigned.
    """

    dropped: tuple[int, int, int]
    """The numbers of dropped attributes, events and links."""
    record: SpanRecord | None = None
    """The facts that its payload shows by itself, for an exporter that takes them."""
    start_context: Context | None = None
    """The context that the span started in, for an application's provider."""

    @property
    def dropped_attributes(self) -> int:
        """The number of dropped attributes."""
        return self.dropped[0]

    @property
    def dropped_events(self) -> int:
        """The number of dropped events."""
        return self.dropped[1]

    @property
    def dropped_links(self) -> int:
        """The number of dropped links."""
        return self.dropped[2]


def readable_span(
    span: RolloutSpan, finished: FinishedSpan, resource: Resource, scope: InstrumentationScope
) -> CountedSpan:
    """Return a `ReadableSpan` for one exporter, which may change it."""
    readable = CountedSpan(
        finished.name,
        span.context,
        span.parent,
        resource,
        _attributes(finished),
        [
            Event(event.name, counted_attributes(event.attributes, event.dropped_attributes), event.timestamp)
            for event in finished.events
        ],
        [Link(link.context, counted_attributes(link.attributes, link.dropped_attributes)) for link in finished.links],
        status=finished.status,
        start_time=span.start_time,
        end_time=span.end_time,
        instrumentation_scope=scope,
    )
    readable.dropped = (finished.dropped_attributes, span.dropped_events, span.dropped_links)
    readable.start_context = span.start_context
    return readable


def _attributes(finished: FinishedSpan) -> dict[str, Any]:
    attributes: dict[str, Any] = {}
    for key, mime_key, payload in (
        (semconv.INPUT_VALUE, semconv.INPUT_MIME_TYPE, finished.input),
        (semconv.OUTPUT_VALUE, semconv.OUTPUT_MIME_TYPE, finished.output),
    ):
        if payload is not None:
            attributes[key] = payload.decode()
            attributes[mime_key] = semconv.TEXT_MIME_TYPE if key in finished.texts else semconv.JSON_MIME_TYPE
    for key, payload in finished.messages.items():
        attributes[key] = payload.decode()
    attributes.update(finished.attributes)
    attributes.update(finished.tags)
    return attributes


def counted_attributes(attributes: dict[str, Any], dropped: int) -> dict[str, Any]:
    """Return a copy of an event's or link's attributes; the SDK reads their dropped count from its own container."""
    if not dropped:
        return dict(attributes)
    counted = BoundedAttributes(attributes=attributes)
    counted.dropped = dropped
    return cast("dict[str, Any]", counted)


def readable_size(span: ReadableSpan) -> int:
    """Return the encoded bytes of `span`, rounded up."""
    # The SDK accepts any object as a name.
    size = BASE_BYTES + len(str(span.name)) + attributes_size(span.attributes or {})
    return size + rest_size(span.events, span.links, span.status.description)


def encoded_size(span: RolloutSpan | ReadableSpan, readable: ReadableSpan) -> int:
    """Return the encoded bytes of a span: as counted when it was finished, else of `readable`, its standard form."""
    finished = span.finished if isinstance(span, RolloutSpan) else None
    return readable_size(readable) if finished is None else finished.size


def rest_size(
    events: Sequence[Event | RecordedEvent], links: Sequence[Link | RecordedLink], description: str | None
) -> int:
    """Return the encoded bytes of events, links and the status's description, which few spans have."""
    size = sum(64 + attributes_size(each.attributes or {}) for each in (*events, *links))
    return size + _value_size(description or "")


def queued_size(span: RolloutSpan | ReadableSpan) -> int:
    """Return the bytes that `span` holds in memory while it is queued."""
    if not isinstance(span, RolloutSpan):
        return readable_size(span)
    # If another exporter's thread has finished the span, its payload is there, and no longer in `span.input`.
    finished = span.finished
    return span.size if finished is None else max(span.size, finished.size)


def attributes_size(attributes: Mapping[str, Any]) -> int:
    """Return the encoded bytes of attributes."""
    size = 0
    for key, value in attributes.items():
        size += len(key) + PER_ATTRIBUTE_BYTES
        size += sum(map(_value_size, value)) if isinstance(value, (list, tuple)) else _value_size(value)
    return size


def _value_size(value: Any) -> int:
    if isinstance(value, str):
        return 4 + (len(value) if value.isascii() else len(value.encode("utf-8", "surrogatepass")))
    return 4 + len(value) if isinstance(value, bytes) else 12
