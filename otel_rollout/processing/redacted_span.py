"""Secrets in spans of the SDK's: in their names, attributes, status, events and links."""

from __future__ import annotations

from typing import Any

from opentelemetry.sdk.trace import Event, ReadableSpan
from opentelemetry.trace import Link, Status

from otel_rollout.processing.redaction import Redactor
from otel_rollout.spans.finished_span import CountedSpan

__all__ = ["redact_span"]


def redact_span(span: ReadableSpan, redactor: Redactor) -> ReadableSpan:
    """Return another instrumentation's span with its secrets replaced; the span itself where it has none.

    Args:
        span: A span of the SDK's.
        redactor: Replaces secrets.
    """
    before = redactor.redacted
    attributes = redactor.attributes(span.attributes or {})
    events = [
        Event(redactor.label(event.name), redactor.attributes(event.attributes or {}), event.timestamp)
        for event in span.events
    ]
    links = [_link(link, redactor) for link in span.links]
    status = span.status
    if status.description:
        status = Status(status.status_code, redactor.text(status.description))
    name = redactor.label(span.name)
    if redactor.redacted == before:
        return span
    copy = CountedSpan(
        name=name,
        context=span.get_span_context(),
        parent=span.parent,
        resource=span.resource,
        attributes=attributes,
        events=events,
        links=links,
        kind=span.kind,
        status=status,
        start_time=span.start_time,
        end_time=span.end_time,
        instrumentation_scope=span.instrumentation_scope,
    )
    copy.dropped = (span.dropped_attributes, span.dropped_events, span.dropped_links)
    return copy


def _link(link: Link, redactor: Redactor) -> Link:
    attributes: Any = redactor.attributes(link.attributes) if link.attributes else None
    return link if attributes is link.attributes or not attributes else Link(link.context, attributes)
