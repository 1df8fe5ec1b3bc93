"""How many bytes a standard span takes, about: what queues and batches are bounded by."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from opentelemetry.sdk.trace import ReadableSpan

__all__ = ["readable_size"]

BASE_BYTES: Final = 300
PER_ATTRIBUTE_BYTES: Final = 24


def readable_size(span: ReadableSpan) -> int:
    """Return the bytes that `span` takes when it is encoded, about; a little more rather than less."""
    size = BASE_BYTES + len(span.name) + _attributes_size(span.attributes or {})
    for event in span.events:
        size += 64 + _attributes_size(event.attributes or {})
    return size + 64 * len(span.links) + len(span.status.description or "")


def _attributes_size(attributes: Mapping[str, Any]) -> int:
    size = 0
    for key, value in attributes.items():
        size += len(key) + PER_ATTRIBUTE_BYTES
        if isinstance(value, str):
            # UTF-8 takes up to four bytes for a character; CJK takes three.
            size += len(value) if value.isascii() else 3 * len(value)
        elif isinstance(value, (bytes, list, tuple)):
            size += 12 * len(value) if not isinstance(value, bytes) else len(value)
    return size
