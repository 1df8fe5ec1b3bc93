"""A span whose payload a backend refused, made small enough that its structure at least arrives."""

from __future__ import annotations

from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.util.types import AnyValue

from otel_rollout import semconv
from otel_rollout.payload_limits import cut_json

__all__ = ["replace_attributes", "shrink_span"]

SHRUNK_PAYLOAD_BYTES = 4096
SHRUNK_ATTRIBUTE_CHARACTERS = 1024


def shrink_span(span: ReadableSpan) -> ReadableSpan:
    """Return a copy of `span` with its payload, attributes, events and links cut to a few kilobytes."""
    attributes: dict[str, AnyValue] = {}
    for key, value in (span.attributes or {}).items():
        if key in (semconv.INPUT_VALUE, semconv.OUTPUT_VALUE) and isinstance(value, str):
            attributes[key] = cut_json(value.encode("utf-8", "replace"), SHRUNK_PAYLOAD_BYTES).decode()
        elif isinstance(value, str):
            attributes[key] = value[:SHRUNK_ATTRIBUTE_CHARACTERS]
        elif isinstance(value, (bool, int, float)):
            attributes[key] = value
        else:
            attributes[key] = str(value)[:SHRUNK_ATTRIBUTE_CHARACTERS]
    return replace_attributes(span, attributes, keep_events=False)


def replace_attributes(
    span: ReadableSpan, attributes: dict[str, AnyValue], *, keep_events: bool = True
) -> ReadableSpan:
    """Return a copy of `span` with other attributes.

    Args:
        span: The span to copy.
        attributes: The attributes of the copy.
        keep_events: Whether events and links are kept; both can be large.
    """
    return ReadableSpan(
        name=span.name[:SHRUNK_ATTRIBUTE_CHARACTERS] if not keep_events else span.name,
        context=span.get_span_context(),
        parent=span.parent,
        resource=span.resource,
        attributes=attributes,
        events=span.events if keep_events else (),
        links=span.links if keep_events else (),
        kind=span.kind,
        status=span.status,
        start_time=span.start_time,
        end_time=span.end_time,
        instrumentation_scope=span.instrumentation_scope,
    )
