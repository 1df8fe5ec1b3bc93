"""Copies of spans in which something is changed: attributes, what a backend refused, what no encoder can say."""

from __future__ import annotations

from typing import Any, Final

from opentelemetry.sdk.trace import Event, ReadableSpan
from opentelemetry.trace import Status
from opentelemetry.util.types import AnyValue

from otel_rollout import semconv
from otel_rollout.processing.payload_limits import cut_json
from otel_rollout.spans.finished_span import CountedSpan
from otel_rollout.values.attribute_values import read_name
from otel_rollout.values.sanitize import INT64_MAX

__all__ = ["replace_attributes", "shrink_span", "sound_span"]

SHRUNK_PAYLOAD_BYTES: Final = 4096
SHRUNK_ATTRIBUTE_CHARACTERS: Final = 1024

_PAYLOAD: Final = (semconv.INPUT_VALUE, semconv.OUTPUT_VALUE)


def shrink_span(span: ReadableSpan) -> ReadableSpan:
    """Return a copy of `span` with its payload, attributes, events and links cut to a few kilobytes."""
    attributes: dict[str, AnyValue] = {}
    for key, value in (span.attributes or {}).items():
        if isinstance(value, str) and (key in _PAYLOAD or value[:1] in ("{", "[")):
            limit = SHRUNK_PAYLOAD_BYTES if key in _PAYLOAD else SHRUNK_ATTRIBUTE_CHARACTERS
            attributes[key] = cut_json(value.encode("utf-8", "replace"), limit).decode()
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
        keep_events: Whether events, links and long texts are kept; what is not kept is counted as dropped.
    """
    status = span.status
    dropped = (span.dropped_attributes, span.dropped_events, span.dropped_links)
    if not keep_events and status.description:
        status = Status(status.status_code, status.description[:SHRUNK_ATTRIBUTE_CHARACTERS])
    if not keep_events:
        dropped = (dropped[0], dropped[1] + len(span.events), dropped[2] + len(span.links))
    copy = CountedSpan(
        name=span.name if keep_events else span.name[:SHRUNK_ATTRIBUTE_CHARACTERS],
        context=span.get_span_context(),
        parent=span.parent,
        resource=span.resource,
        attributes=attributes,
        events=span.events if keep_events else (),
        links=span.links if keep_events else (),
        kind=span.kind,
        status=status,
        start_time=span.start_time,
        end_time=span.end_time,
        instrumentation_scope=span.instrumentation_scope,
    )
    copy.dropped = dropped
    return copy


def sound_span(span: ReadableSpan) -> ReadableSpan:
    """Return a span of the SDK's that can be encoded: the SDK takes anything as a name or a time, and OTLP doesn't.

    Args:
        span: The span; returned itself if nothing is odd, as is usual.
    """
    events = span.events
    if (
        type(span.name) is str
        and _is_time(span.start_time)
        and _is_time(span.end_time)
        and all(type(event.name) is str and _is_time(event.timestamp) for event in events)
    ):
        return span
    copy: Any = replace_attributes(span, dict(span.attributes or {}))
    copy._name = read_name(span.name)  # noqa: SLF001 - a copy of ours
    copy._start_time, copy._end_time = (  # noqa: SLF001 - likewise
        time if _is_time(time) else None for time in (span.start_time, span.end_time)
    )
    copy._events = [  # noqa: SLF001 - likewise
        Event(read_name(event.name), event.attributes, event.timestamp if _is_time(event.timestamp) else 0)
        for event in events
    ]
    return copy  # type: ignore[no-any-return]  # of our own class


def _is_time(time: object) -> bool:
    return time is None or (type(time) is int and 0 <= time <= INT64_MAX)
