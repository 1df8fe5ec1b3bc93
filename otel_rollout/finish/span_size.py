"""Estimated bytes of a span, by which queues and batches are bounded."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from opentelemetry.sdk.trace import Event, ReadableSpan
from opentelemetry.trace import Link

from otel_rollout.record.recording_span import RecordedEvent, RecordedLink, RolloutSpan

BASE_BYTES: Final = 300
PER_ATTRIBUTE_BYTES: Final = 24


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
    if span.readable is not None:
        return max(span.size, readable_size(span.readable))
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
