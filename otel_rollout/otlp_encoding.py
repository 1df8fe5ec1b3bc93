"""Spans as an OTLP request, built in place.

The SDK's encoder makes each message on its own and hands it to the next constructor, which copies it: a payload is
copied at six levels. Here every message is made inside its parent, so a payload is copied once.

Source: https://opentelemetry.io/docs/specs/otlp/ and opentelemetry-proto's trace.proto.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from typing import Any

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.common.v1.common_pb2 import AnyValue, KeyValue
from opentelemetry.proto.trace.v1.trace_pb2 import ScopeSpans
from opentelemetry.proto.trace.v1.trace_pb2 import Span as SpanMessage
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.util.instrumentation import InstrumentationScope
from opentelemetry.trace import SpanContext

from otel_rollout import semconv

__all__ = ["encode_spans", "serialize_spans"]

_logger = logging.getLogger(__name__)

_HAS_IS_REMOTE = 0x100
_IS_REMOTE = 0x200
_INT64_MIN, _INT64_MAX = -(2**63), 2**63 - 1

_PART_CHARACTERS = 512 * 1024
_SHORT_TEXT = 64
_MAX_ENCODED_PAIRS = 8192
# Most attributes of a span (tags, kinds, MIME types) are the same on thousands of spans.
_encoded_pairs: dict[tuple[str, type, str | int], bytes] = {}


def serialize_spans(spans: Sequence[ReadableSpan]) -> bytes:
    """Return the OTLP request that holds `spans`, in protobuf's binary form.

    Protobuf writes a message in one call, which holds the GIL for milliseconds where it is megabytes long: every event
    loop of the process stands still. So a large request is written in parts; one after the other they parse as one.

    Args:
        spans: Finished spans, of the SDK or of ours.
    """
    parts: list[bytes] = []
    start = characters = 0
    for position, span in enumerate(spans, 1):
        attributes = span.attributes or {}
        for key in (semconv.INPUT_VALUE, semconv.OUTPUT_VALUE):
            text = attributes.get(key)
            if isinstance(text, str):
                characters += len(text)
        if characters >= _PART_CHARACTERS:
            parts.append(encode_spans(spans[start:position]).SerializeToString())
            start, characters = position, 0
    if start < len(spans):
        parts.append(encode_spans(spans[start:]).SerializeToString())
    return b"".join(parts)


def encode_spans(spans: Sequence[ReadableSpan]) -> ExportTraceServiceRequest:
    """Return the OTLP request that holds `spans`, grouped by resource and scope.

    Args:
        spans: Finished spans, of the SDK or of ours.
    """
    request = ExportTraceServiceRequest()
    groups: dict[tuple[int, int], ScopeSpans] = {}
    resources: dict[int, Any] = {}
    for span in spans:
        resource = span.resource
        scope = span.instrumentation_scope
        key = (id(resource), id(scope))
        group = groups.get(key)
        if group is None:
            resource_spans = resources.get(id(resource))
            if resource_spans is None:
                resource_spans = resources[id(resource)] = request.resource_spans.add()
                _fill_resource(resource_spans, resource)
            group = groups[key] = resource_spans.scope_spans.add()
            _fill_scope(group, scope)
        _fill_span(group.spans.add(), span)
    return request


def _fill_resource(message: Any, resource: Resource) -> None:
    _fill_attributes(message.resource.attributes, resource.attributes)
    message.schema_url = resource.schema_url or ""


def _fill_scope(message: ScopeSpans, scope: InstrumentationScope | None) -> None:
    if scope is None:
        return
    message.scope.name = scope.name
    message.scope.version = scope.version or ""
    message.schema_url = scope.schema_url or ""
    if scope.attributes:
        _fill_attributes(message.scope.attributes, scope.attributes)


def _fill_span(message: SpanMessage, span: ReadableSpan) -> None:
    context = span.get_span_context()
    if context is None:
        return
    message.trace_id = context.trace_id.to_bytes(16, "big")
    message.span_id = context.span_id.to_bytes(8, "big")
    if context.trace_state:
        message.trace_state = context.trace_state.to_header()
    parent = span.parent
    message.flags = _flags(parent) | (context.trace_flags & 0xFF)
    if parent is not None:
        message.parent_span_id = parent.span_id.to_bytes(8, "big")
    message.name = _text(span.name)
    # OTLP numbers the kinds from 1, the API from 0.
    message.kind = span.kind.value + 1  # type: ignore[assignment]  # an enum number of protobuf
    message.start_time_unix_nano = span.start_time or 0
    message.end_time_unix_nano = span.end_time or 0
    _fill_span_attributes(message, span.attributes or {})
    message.dropped_attributes_count = span.dropped_attributes
    for event in span.events:
        event_message = message.events.add(name=_text(event.name), time_unix_nano=event.timestamp)
        _fill_attributes(event_message.attributes, event.attributes or {})
    message.dropped_events_count = span.dropped_events
    for link in span.links:
        link_message = message.links.add(
            trace_id=link.context.trace_id.to_bytes(16, "big"),
            span_id=link.context.span_id.to_bytes(8, "big"),
            flags=_flags(link.context) | (link.context.trace_flags & 0xFF),
        )
        _fill_attributes(link_message.attributes, link.attributes or {})
    message.dropped_links_count = span.dropped_links
    message.status.code = span.status.status_code.value  # type: ignore[assignment]  # an enum number of protobuf
    if span.status.description:
        message.status.message = _text(span.status.description)


def _flags(context: SpanContext | None) -> int:
    return _HAS_IS_REMOTE | (_IS_REMOTE if context is not None and context.is_remote else 0)


def _fill_span_attributes(message: SpanMessage, attributes: Mapping[str, Any]) -> None:
    """Add the attributes, in order: those that recur as bytes that were encoded once, the others in place."""
    recurring: list[bytes] = []
    for key, value in attributes.items():
        kind = type(value)
        if kind is bool or kind is int or (kind is str and len(value) <= _SHORT_TEXT):
            recurring.append(_encoded_pairs.get((key, kind, value)) or _encode_pair(key, value))
        else:
            if recurring:
                # Parsing appends to what a repeated field has.
                message.MergeFromString(b"".join(recurring))
                recurring = []
            _fill_attributes(message.attributes, {key: value})
    if recurring:
        message.MergeFromString(b"".join(recurring))


def _encode_pair(key: str, value: str | int) -> bytes:
    """Return the bytes of a span message that has this attribute and nothing else."""
    message = SpanMessage()
    _fill_attributes(message.attributes, {key: value})
    encoded = message.SerializeToString()
    if len(_encoded_pairs) >= _MAX_ENCODED_PAIRS:
        _encoded_pairs.clear()
    _encoded_pairs[key, type(value), value] = encoded
    return encoded


def _fill_attributes(message: Any, attributes: Mapping[str, Any]) -> None:
    add = message.add
    for key, value in attributes.items():
        if value is None:
            continue
        pair: KeyValue = add()
        pair.key = _text(key)
        _fill_value(pair.value, value)


def _fill_value(message: AnyValue, value: Any) -> None:
    if isinstance(value, str):
        try:
            message.string_value = value
        except (UnicodeEncodeError, ValueError):
            message.string_value = _text(value)
    elif isinstance(value, bool):
        message.bool_value = value
    elif isinstance(value, int):
        if _INT64_MIN <= value <= _INT64_MAX:
            message.int_value = value
        else:
            message.string_value = str(value)
    elif isinstance(value, float):
        message.double_value = value
    elif isinstance(value, bytes):
        message.bytes_value = value
    elif isinstance(value, Mapping):
        message.kvlist_value.SetInParent()
        for key, item in value.items():
            pair = message.kvlist_value.values.add(key=_text(key))
            pair.value.SetInParent()
            _fill_value(pair.value, item)
    elif isinstance(value, Sequence):
        message.array_value.SetInParent()
        add = message.array_value.values.add
        for item in value:
            _fill_value(add(), item)
    elif value is not None:
        message.string_value = _text(str(value))


def _text(value: Any) -> str:
    text = value if isinstance(value, str) else str(value)
    # Protobuf refuses lone surrogates, which reach us through file names and model output.
    return text if text.isascii() else text.encode("utf-8", "replace").decode()
