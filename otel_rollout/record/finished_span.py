"""A span that is ready for export, and the `ReadableSpan` that each exporter gets of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple, cast

from opentelemetry.attributes import BoundedAttributes
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import Event, ReadableSpan
from opentelemetry.sdk.util.instrumentation import InstrumentationScope
from opentelemetry.trace import Link, Status

from otel_rollout import semconv

if TYPE_CHECKING:
    from otel_rollout.record.recording_span import RecordedEvent, RecordedLink, RolloutSpan

__all__ = ["CountedSpan", "FinishedSpan", "readable_span"]


class FinishedSpan(NamedTuple):
    """An ended span, finished once for all exporters: cut, redacted, with values that OTLP can encode.

    The payload stays bytes: as Python text it could take four times the bytes that the queue counts for it.

    Args:
        name: The name.
        attributes: The span's own attributes.
        tags: The trajectory's tags.
        input: The input in UTF-8, if there is one: JSON, or a text.
        output: The output in UTF-8, if there is one.
        status: The status.
        events: The events.
        links: The links.
        dropped_attributes: The number of dropped attributes.
        size: An estimate of its encoded size in bytes, rather too high than too low.
        texts: The keys among `input.value` and `output.value` whose value is a text, not JSON.
        messages: The attributes of its messages, as JSON in UTF-8.
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


class CountedSpan(ReadableSpan):
    """A ReadableSpan with explicit dropped counts; the SDK derives them from its bounded containers.

    Every other field is where the SDK keeps it: exporters that mask assign to `_attributes`, `_name` or `_events`,
    and the exporters after them read what was assigned.
    """

    dropped: tuple[int, int, int]
    """The numbers of dropped attributes, events and links."""

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
    """Return a `ReadableSpan` for one exporter, which may change it.

    Args:
        span: An ended span.
        finished: The same span, finished.
        resource: Its resource.
        scope: Its instrumentation scope.
    """
    readable = CountedSpan(
        finished.name,
        span.context,
        span.parent,
        resource,
        _attributes(finished),
        [
            Event(event.name, _counted(event.attributes, event.dropped_attributes), event.timestamp)
            for event in finished.events
        ],
        [Link(link.context, _counted(link.attributes, link.dropped_attributes)) for link in finished.links],
        status=finished.status,
        start_time=span.start_time,
        end_time=span.end_time,
        instrumentation_scope=scope,
    )
    readable.dropped = (finished.dropped_attributes, span.dropped_events, span.dropped_links)
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


def _counted(attributes: dict[str, Any], dropped: int) -> dict[str, Any]:
    """Return a copy of an event's or link's attributes; the SDK reads their dropped count from its own container."""
    if not dropped:
        return dict(attributes)
    counted = BoundedAttributes(attributes=attributes)
    counted.dropped = dropped
    return cast("dict[str, Any]", counted)
