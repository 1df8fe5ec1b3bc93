"""A span that is fit to leave the process, and the standard span that each exporter gets of it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, cast

from opentelemetry.attributes import BoundedAttributes
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import Event
from opentelemetry.sdk.util.instrumentation import InstrumentationScope
from opentelemetry.trace import Link, Status

from otel_rollout import semconv
from otel_rollout.spans.counted_span import CountedSpan

if TYPE_CHECKING:
    from otel_rollout.spans.recording_span import RecordedEvent, RecordedLink, RolloutSpan

__all__ = ["FinishedSpan", "readable_span"]


class FinishedSpan(NamedTuple):
    """What is made of an ended span once, for all exporters: cut, redacted, with nothing that OTLP can't say.

    The payload stays bytes, so that a span in the queue of a slow exporter takes no more than it is counted for: as
    Python text it would take up to four times as much.

    Args:
        name: The name.
        attributes: The span's own attributes.
        tags: The trajectory's tags.
        input: The input as JSON in UTF-8; None where there is none.
        output: The output as JSON in UTF-8; None where there is none.
        status: The status.
        events: The events.
        links: The links.
        dropped_attributes: How many attributes were dropped.
        size: The bytes that it takes when it is encoded, about; a little more rather than less.
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


def readable_span(
    span: RolloutSpan, finished: FinishedSpan, resource: Resource, scope: InstrumentationScope
) -> CountedSpan:
    """Return the span in its standard form, for one exporter to do with as it likes.

    Args:
        span: An ended span.
        finished: What was made of it.
        resource: What it was made by.
        scope: The instrumentation scope.
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
        ]
        if finished.events
        else (),
        [Link(link.context, _counted(link.attributes, link.dropped_attributes)) for link in finished.links]
        if finished.links
        else (),
        status=finished.status,
        start_time=span.start_time,
        end_time=span.end_time,
        instrumentation_scope=scope,
    )
    if finished.dropped_attributes or span.dropped_events or span.dropped_links:
        readable.dropped = (finished.dropped_attributes, span.dropped_events, span.dropped_links)
    return readable


def _attributes(finished: FinishedSpan) -> dict[str, Any]:
    attributes: dict[str, Any] = {}
    if finished.input is not None:
        attributes[semconv.INPUT_VALUE] = finished.input.decode()
        attributes[semconv.INPUT_MIME_TYPE] = semconv.JSON_MIME_TYPE
    if finished.output is not None:
        attributes[semconv.OUTPUT_VALUE] = finished.output.decode()
        attributes[semconv.OUTPUT_MIME_TYPE] = semconv.JSON_MIME_TYPE
    attributes.update(finished.attributes)
    attributes.update(finished.tags)
    return attributes


def _counted(attributes: dict[str, Any], dropped: int) -> dict[str, Any]:
    """Return a copy of the attributes of an event or link, in the form from which the SDK reads what was dropped."""
    if not dropped:
        return dict(attributes)
    counted = BoundedAttributes(attributes=attributes)
    counted.dropped = dropped
    return cast("dict[str, Any]", counted)
