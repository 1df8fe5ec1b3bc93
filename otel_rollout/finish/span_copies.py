"""Changed copies of ended spans: shrunk, redacted, encodable, without payload. No function changes its argument."""

from __future__ import annotations

from typing import Any, Final

import orjson
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import Event, ReadableSpan
from opentelemetry.trace import Link, Status
from opentelemetry.util.types import AnyValue

from otel_rollout import semconv
from otel_rollout.finish.conversations import encode_messages
from otel_rollout.finish.payload_limits import cut_json
from otel_rollout.finish.span_draft import SpanDraft
from otel_rollout.record.finished_span import CountedSpan, counted_attributes
from otel_rollout.record.recording_span import RolloutSpan
from otel_rollout.record.snapshot import Snapshot
from otel_rollout.text.plain_text import cut_text
from otel_rollout.text.sanitize import INT64_MAX, replace_surrogates

SHRUNK_PAYLOAD_BYTES: Final = 4096
SHRUNK_ATTRIBUTE_CHARACTERS: Final = 1024
SMALL_PAYLOAD: Final = 256
"""A payload up to this size is not worth a note in its place."""

_PAYLOAD: Final = {
    semconv.INPUT_VALUE: semconv.INPUT_MIME_TYPE,
    semconv.OUTPUT_VALUE: semconv.OUTPUT_MIME_TYPE,
}
_DROPPED: Final = "bytes dropped: the export queue was full]"
_MESSAGES: Final = (semconv.INPUT_MESSAGES, semconv.OUTPUT_MESSAGES, semconv.TOOL_DEFINITIONS)
_WITHOUT_NOTE: Final = (*_MESSAGES, semconv.TOOL_CALL_ARGUMENTS, semconv.TOOL_CALL_RESULT)
"""Attributes that leave with the payload."""


def copy_span(
    span: ReadableSpan, attributes: dict[str, AnyValue], *, dropped: tuple[int, int, int] | None = None, **changes: Any
) -> ReadableSpan:
    """Return a copy of `span` with other attributes.

    Args:
        span: The span to copy.
        attributes: The attributes of the copy.
        dropped: The dropped attributes, events and links; the same as in `span` if None.
        changes: Other arguments of ReadableSpan that differ.
    """
    fields: dict[str, Any] = {
        "name": span.name,
        "context": span.get_span_context(),
        "parent": span.parent,
        "resource": span.resource,
        "events": span.events,
        "links": span.links,
        "kind": span.kind,
        "status": span.status,
        "start_time": span.start_time,
        "end_time": span.end_time,
        "instrumentation_scope": span.instrumentation_scope,
    }
    copy = CountedSpan(**{**fields, **changes}, attributes=attributes)
    copy.dropped = dropped or (span.dropped_attributes, span.dropped_events, span.dropped_links)
    copy.start_context = span.start_context if isinstance(span, CountedSpan) else None
    return copy


def copy_with_losses(span: ReadableSpan, recording: RolloutSpan | None, exporter: str) -> ReadableSpan:
    """Return a copy of a root with the number of spans that its trajectory lost; `span` itself if there are none.

    Args:
        span: The standard form of `recording`.
        recording: The span as it was recorded, if it is ours.
        exporter: The exporter whose losses count.
    """
    if span.parent is not None or recording is None or recording.trajectory is None:
        return span
    dropped = recording.trajectory.dropped_spans.get(exporter, 0)
    return copy_span(span, {**(span.attributes or {}), semconv.DROPPED_SPANS: dropped}) if dropped else span


def shrunk_copy(span: ReadableSpan) -> ReadableSpan:
    """Return a copy of a few kilobytes: texts are cut, events and links are dropped and counted."""
    attributes: dict[str, AnyValue] = {}
    for key, value in (span.attributes or {}).items():
        if key in _MESSAGES and isinstance(value, str):
            attributes[key] = _shrunk_messages(value)
        elif key in _PAYLOAD and isinstance(value, str) and _is_text(span, key):
            text = replace_surrogates(value)
            attributes[key] = text if len(text) <= SHRUNK_PAYLOAD_BYTES else cut_text(text, SHRUNK_PAYLOAD_BYTES)
        elif isinstance(value, str) and (key in _PAYLOAD or value[:1] in ("{", "[")):
            limit = SHRUNK_PAYLOAD_BYTES if key in _PAYLOAD else SHRUNK_ATTRIBUTE_CHARACTERS
            attributes[key] = cut_json(value.encode("utf-8", "replace"), limit).decode()
        elif isinstance(value, (bool, int, float)):
            attributes[key] = value
        else:
            attributes[key] = str(value)[:SHRUNK_ATTRIBUTE_CHARACTERS]
    description = span.status.description
    return copy_span(
        span,
        attributes,
        dropped=(
            span.dropped_attributes,
            span.dropped_events + len(span.events),
            span.dropped_links + len(span.links),
        ),
        name=span.name[:SHRUNK_ATTRIBUTE_CHARACTERS],
        events=(),
        links=(),
        status=Status(span.status.status_code, description[:SHRUNK_ATTRIBUTE_CHARACTERS])
        if description
        else span.status,
    )


def _is_text(span: ReadableSpan, key: str) -> bool:
    return (span.attributes or {}).get(_PAYLOAD[key]) == semconv.TEXT_MIME_TYPE


def _shrunk_messages(text: str) -> str:
    try:
        items = [orjson.dumps(item) for item in orjson.loads(text)]
        return encode_messages(items, SHRUNK_PAYLOAD_BYTES)[0].decode()
    except (ValueError, TypeError, KeyError):
        # Another instrumentation's, in another form.
        return cut_json(text.encode("utf-8", "replace"), SHRUNK_ATTRIBUTE_CHARACTERS).decode()


def changed_copy(span: ReadableSpan, draft: SpanDraft, resource: Resource) -> ReadableSpan:
    """Return a copy of another instrumentation's span with what its draft has, and times that OTLP can encode.

    The SDK accepts any object as a time.
    """
    events = [
        Event(
            event.name,
            counted_attributes(event.attributes, event.dropped_attributes),
            event.timestamp if _is_time(event.timestamp) else 0,
        )
        for event in draft.events
    ]
    links = [Link(link.context, counted_attributes(link.attributes, link.dropped_attributes)) for link in draft.links]
    return copy_span(
        span,
        draft.attributes,
        name=draft.name,
        events=events,
        links=links,
        status=draft.status,
        resource=resource,
        start_time=span.start_time if _is_time(span.start_time) else None,
        end_time=span.end_time if _is_time(span.end_time) else None,
    )


def _is_time(time: object) -> bool:
    return type(time) is int and 0 <= time <= INT64_MAX


def copy_without_payload(span: RolloutSpan | ReadableSpan) -> RolloutSpan | ReadableSpan:
    """Return a copy of an ended span with the size of its payload in its place; `span` itself if that is small."""
    if not isinstance(span, RolloutSpan):
        return _readable_without_payload(span)
    # In this order: once another exporter's thread has finished the span, it no longer has the snapshots.
    taken, finished = (span.input, span.output), span.finished
    if finished is not None:
        messages = sum(map(len, finished.messages.values()))
        if len(finished.input or b"") + len(finished.output or b"") + messages <= SMALL_PAYLOAD:
            return span
        noted = finished._replace(
            input=None if finished.input is None else _note(len(finished.input)).encode(),
            output=None if finished.output is None else _note(len(finished.output)).encode(),
            texts=frozenset(_PAYLOAD),
            messages={},
        )
        return span.copy(finished=noted)
    if sum(side.size for side in taken if side is not None) <= SMALL_PAYLOAD:
        return span
    noted_input, noted_output = (None if side is None else Snapshot.of_note(_note(side.size)) for side in taken)
    return span.copy(input=noted_input, output=noted_output)


def _readable_without_payload(span: ReadableSpan) -> ReadableSpan:
    attributes = dict(span.attributes or {})
    sizes = {key: len(value) for key in (*_PAYLOAD, *_WITHOUT_NOTE) if isinstance(value := attributes.get(key), str)}
    if sum(sizes.values()) <= SMALL_PAYLOAD:
        return span
    noted: dict[str, AnyValue] = {key: value for key, value in attributes.items() if key not in _WITHOUT_NOTE}
    for key, mime_key in _PAYLOAD.items():
        if key in sizes:
            noted |= {key: _note(sizes[key]), mime_key: semconv.TEXT_MIME_TYPE}
    return copy_span(span, noted)


def is_without_payload(span: RolloutSpan) -> bool:
    """Return True for a copy that `copy_without_payload` made of a span that wasn't finished."""
    sides = (span.input, span.output)
    return any(side is not None and side.is_note for side in sides)


def _note(size: int) -> str:
    return f"…[{size:,} {_DROPPED}"
