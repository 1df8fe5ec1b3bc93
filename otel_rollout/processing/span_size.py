"""How many bytes a span takes, about: what queues and batches are bounded by."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from opentelemetry.sdk.trace import Event, ReadableSpan
from opentelemetry.trace import Link

from otel_rollout.spans.recording_span import RecordedEvent, RecordedLink, RolloutSpan

__all__ = ["attributes_size", "encoded_size", "queued_size", "readable_size", "rest_size"]

BASE_BYTES: Final = 300
PER_ATTRIBUTE_BYTES: Final = 24


def readable_size(span: ReadableSpan) -> int:
    """Return the bytes that `span` takes when it is encoded, about; a little more rather than less."""
    # The SDK takes any name.
    size = BASE_BYTES + len(str(span.name)) + attributes_size(span.attributes or {})
    return size + rest_size(span.events, span.links, span.status.description)


def encoded_size(span: RolloutSpan | ReadableSpan, readable: ReadableSpan) -> int:
    """Return the bytes that a span takes when it is encoded, about: as they were counted when it was finished.

    Args:
        span: The span as it was queued.
        readable: Its standard form.
    """
    finished = span.finished if isinstance(span, RolloutSpan) else None
    return readable_size(readable) if finished is None else finished.size


def rest_size(
    events: Sequence[Event | RecordedEvent], links: Sequence[Link | RecordedLink], description: str | None
) -> int:
    """Return the bytes that what few spans have takes when it is encoded, about.

    Args:
        events: The events.
        links: The links.
        description: What the status says.
    """
    size = sum(64 + attributes_size(each.attributes or {}) for each in (*events, *links))
    return size + _value_size(description or "")


def queued_size(span: RolloutSpan | ReadableSpan) -> int:
    """Return the bytes that `span` holds while it is queued, about."""
    if not isinstance(span, RolloutSpan):
        return readable_size(span)
    if span.readable is not None:
        return max(span.size, readable_size(span.readable))
    # Another exporter's thread may have finished the span already: its payload is there then, and no longer in it.
    finished = span.finished
    return span.size if finished is None else max(span.size, finished.size)


def attributes_size(attributes: Mapping[str, Any]) -> int:
    """Return the bytes that attributes take when they are encoded, about."""
    size = 0
    for key, value in attributes.items():
        size += len(key) + PER_ATTRIBUTE_BYTES
        if isinstance(value, (list, tuple)):
            size += sum(_value_size(item) for item in value)
        else:
            size += _value_size(value)
    return size


def _value_size(value: Any) -> int:
    if isinstance(value, str):
        return 4 + (len(value) if value.isascii() else len(value.encode("utf-8", "surrogatepass")))
    return 4 + len(value) if isinstance(value, bytes) else 12
