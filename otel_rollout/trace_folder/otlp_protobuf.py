"""Spans of an OTLP request in protobuf as OTLP JSON, without a `ReadableSpan` between: that takes a third of the time.

Source: https://opentelemetry.io/docs/specs/otlp/ and opentelemetry-proto's trace.proto.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache
from typing import Any, Final

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.common.v1.common_pb2 import AnyValue, KeyValue
from opentelemetry.proto.trace.v1.trace_pb2 import ResourceSpans, ScopeSpans
from opentelemetry.proto.trace.v1.trace_pb2 import Span as SpanMessage
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.util.instrumentation import InstrumentationScope
from opentelemetry.trace import SpanContext, Status, StatusCode

from otel_rollout.trace_folder.otlp_json import EncodedSpan, encode_resource, encode_scope
from otel_rollout.trace_folder.otlp_json_reading import LazySpan
from otel_rollout.trace_folder.otlp_json_values import add_attributes, dumps, encode_attributes, remember, span_head
from otel_rollout.values.sanitize import INT64_MAX

__all__ = ["encode_request"]

_FLAGS: Final = 0x3FF
"""W3C's flags, and those that tell a remote parent."""
_STATUS_CODES: Final = (1, 2)
_UNSET: Final = Status(StatusCode.UNSET)
_NO_TRACE: Final = bytes(16)
_NO_SPAN: Final = bytes(8)
_MAX_CACHED: Final = 256
_resources: dict[bytes, tuple[Resource, bytes]] = {}
_scopes: dict[bytes, tuple[InstrumentationScope, bytes]] = {}


def encode_request(request: ExportTraceServiceRequest, on_refused: Callable[[str], object]) -> Iterator[EncodedSpan]:
    """Yield the spans of a request, each by itself, as JSON.

    Args:
        request: The request.
        on_refused: Called with the reason for each span that can't be encoded.
    """
    for resource_spans in request.resource_spans:
        resource = _read_resource(resource_spans)
        for scope_spans in resource_spans.scope_spans:
            scope = _read_scope(scope_spans)
            for span in scope_spans.spans:
                encoded = _try_encode(span, resource, scope, on_refused)
                if encoded is not None:
                    yield encoded


def _try_encode(
    span: SpanMessage,
    resource: tuple[Resource, bytes],
    scope: tuple[InstrumentationScope, bytes],
    on_refused: Callable[[str], object],
) -> EncodedSpan | None:
    try:
        return _encode_span(span, resource, scope)
    except (ArithmeticError, RecursionError, TypeError, ValueError) as error:
        on_refused(str(error))
        return None


def _read_resource(message: ResourceSpans) -> tuple[Resource, bytes]:
    key = message.resource.SerializeToString() + b"\0" + message.schema_url.encode()
    if (known := _resources.get(key)) is None:
        resource = Resource(_values(message.resource.attributes), message.schema_url)
        known = remember(_resources, key, (resource, encode_resource(resource)), _MAX_CACHED)
    return known


def _read_scope(message: ScopeSpans) -> tuple[InstrumentationScope, bytes]:
    key = message.scope.SerializeToString() + b"\0" + message.schema_url.encode()
    if (known := _scopes.get(key)) is None:
        inner = message.scope
        scope = InstrumentationScope(
            inner.name, inner.version or None, message.schema_url or None, _values(inner.attributes) or None
        )
        known = remember(_scopes, key, (scope, encode_scope(scope)), _MAX_CACHED)
    return known


def _encode_span(
    span: SpanMessage, resource: tuple[Resource, bytes], scope: tuple[InstrumentationScope, bytes]
) -> EncodedSpan:
    trace_id, span_id, parent_id = span.trace_id, span.span_id, span.parent_span_id
    if len(trace_id) != 16 or len(span_id) != 8 or len(parent_id) not in (0, 8):
        raise ValueError("an id of another length than 16 bytes (trace) or 8 bytes (span)")
    if trace_id == _NO_TRACE or span_id == _NO_SPAN:
        raise ValueError("an id of zeros")
    if parent_id == _NO_SPAN:
        parent_id = b""
    start, end = span.start_time_unix_nano, span.end_time_unix_nano
    if start > INT64_MAX or end > INT64_MAX:
        raise ValueError("a time beyond 64 bits")
    name, attributes = span.name, _values(span.attributes)
    trace_hex, span_hex, parent_hex = trace_id.hex(), span_id.hex(), parent_id.hex()
    pieces = [
        span_head(trace_hex, span_hex, parent_hex, span.flags & _FLAGS, name, span.kind, start or None, end or None)
    ]
    if attributes:
        pieces.append(b',"attributes":[')
        first = len(pieces)
        add_attributes(pieces, attributes.items())
        pieces[first] = pieces[first][1:]
        pieces.append(b"]")
    rest = _rest(span)
    pieces += (b",", dumps(rest)[1:])
    json = b"".join(pieces)
    # Summaries read these fields; for any other the JSON is parsed.
    readable = LazySpan(json, resource[0], scope[0])
    fields = vars(readable)
    fields["_name"], fields["_resource"], fields["_attributes"] = name, resource[0], attributes
    fields["_start_time"], fields["_end_time"] = start or None, end or None
    trace_number = int.from_bytes(trace_id, "big")
    fields["_context"] = SpanContext(trace_number, int.from_bytes(span_id, "big"), False)
    fields["_parent"] = _parent(trace_number, parent_id) if parent_id else None
    if not rest["status"]:
        fields["_status"] = _UNSET
    return EncodedSpan(trace_id, span_id, not parent_id, resource[1], scope[1], json, readable)


@lru_cache(_MAX_CACHED)
def _parent(trace_id: int, span_id: bytes) -> SpanContext:
    return SpanContext(trace_id, int.from_bytes(span_id, "big"), False)


def _rest(span: SpanMessage) -> dict[str, Any]:
    """Return the fields that few spans have, and the status."""
    message: dict[str, Any] = {}
    if span.trace_state:
        message["traceState"] = span.trace_state
    start, end = span.start_time_unix_nano, span.end_time_unix_nano
    if not start or not end:
        times = {"startTimeUnixNano": start, "endTimeUnixNano": end}
        message |= {key: str(time) for key, time in times.items() if time}
    if dropped := span.dropped_attributes_count:
        message["droppedAttributesCount"] = dropped
    if events := span.events:
        message["events"] = [
            _with_attributes({"timeUnixNano": str(_check_time(event.time_unix_nano)), "name": event.name}, event)
            for event in events
        ]
    if dropped := span.dropped_events_count:
        message["droppedEventsCount"] = dropped
    if links := span.links:
        message["links"] = [_with_attributes(_link(link), link) for link in links]
    if dropped := span.dropped_links_count:
        message["droppedLinksCount"] = dropped
    status: dict[str, Any] = {}
    message["status"] = status
    if (code := span.status.code) in _STATUS_CODES:
        status["code"] = code
        if span.status.message:
            status["message"] = span.status.message
    return message


def _check_time(time: int) -> int:
    if time > INT64_MAX:
        raise ValueError("a time beyond 64 bits")
    return time


def _link(link: SpanMessage.Link) -> dict[str, Any]:
    trace_id, span_id = link.trace_id.hex().zfill(32), link.span_id.hex().zfill(16)
    if len(trace_id) > 32 or len(span_id) > 16:
        raise ValueError("an id of a link is too long")
    message = {"traceId": trace_id, "spanId": span_id, "flags": link.flags & _FLAGS}
    if link.trace_state:
        message["traceState"] = link.trace_state
    return message


def _with_attributes(message: dict[str, Any], of: Any) -> dict[str, Any]:
    if of.attributes:
        message["attributes"] = encode_attributes(_values(of.attributes))
    if dropped := of.dropped_attributes_count:
        message["droppedAttributesCount"] = dropped
    return message


def _values(attributes: Sequence[KeyValue]) -> dict[str, Any]:
    values: dict[str, Any] = {}
    for pair in attributes:
        value = pair.value
        # Strings first: they are the most frequent. An empty one may be of any kind.
        values[pair.key] = value.string_value or _value(value, value.WhichOneof("value"))
    return values


def _value(value: AnyValue, kind: str | None) -> Any:
    if kind == "array_value":
        return [_value(item, item.WhichOneof("value")) for item in value.array_value.values]
    if kind == "kvlist_value":
        return {pair.key: _value(pair.value, pair.value.WhichOneof("value")) for pair in value.kvlist_value.values}
    return getattr(value, kind) if kind else None
