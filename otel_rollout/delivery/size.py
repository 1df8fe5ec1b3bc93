"""How many bytes a span takes, about: what queues and batches are bounded by."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from opentelemetry.sdk.trace import Event, ReadableSpan
from opentelemetry.trace import Link

from otel_rollout.delivery.finished_span import FinishedSpan
from otel_rollout.span import RolloutSpan

__all__ = ["queued_size", "readable_size", "rest_size"]

BASE_BYTES: Final = 300
PER_ATTRIBUTE_BYTES: Final = 24


def readable_size(span: ReadableSpan) -> int:
    """Return the bytes that `span` takes when it is encoded, about; a little more rather than less."""
    if isinstance(span, FinishedSpan):
        return span.size
    # The SDK takes any name.
    size = BASE_BYTES + len(str(span.name)) + _attributes_size(span.attributes or {})
    return size + rest_size(span.events, span.links, span.status.description)


def rest_size(events: Sequence[Event], links: Sequence[Link], description: str | None) -> int:
    """Return the bytes that what few spans have takes when it is encoded, about.

    Args:
        events: The events.
        links: The links.
        description: What the status says.
    """
    size = sum(64 + _attributes_size(event.attributes or {}) for event in events)
    return size + 64 * len(links) + _value_size(description or "")


def queued_size(span: RolloutSpan | ReadableSpan) -> int:
    """Return the bytes that `span` holds while it is queued, about."""
    if not isinstance(span, RolloutSpan):
        return readable_size(span)
    size = span.size
    # Another exporter's thread may have read the span already: its payload is there then, and no longer in the span.
    return size if span.readable is None else max(size, readable_size(span.readable))


def _attributes_size(attributes: Mapping[str, Any]) -> int:
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
