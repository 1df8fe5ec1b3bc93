"""Spans as an OTLP request in protobuf's binary form, with each payload copied as bytes and into the request alone.

The SDK's encoder makes each message on its own and hands it to the next constructor, which copies it: a payload is
copied at six levels, then written out in one call that holds the GIL for milliseconds. Here what every span has is
written directly, from pieces that mostly were encoded before; the rare rest (events, links, status, nested values)
goes through the official classes. Protobuf parses fields that stand one after the other as one message.

Source: https://opentelemetry.io/docs/specs/otlp/, opentelemetry-proto's trace.proto, and
https://protobuf.dev/programming-guides/encoding/.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from typing import Any, Final, cast

from opentelemetry.proto.common.v1.common_pb2 import AnyValue, KeyValue
from opentelemetry.proto.trace.v1.trace_pb2 import ResourceSpans, ScopeSpans
from opentelemetry.proto.trace.v1.trace_pb2 import Span as SpanMessage
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.util.instrumentation import InstrumentationScope
from opentelemetry.trace import SpanContext, SpanKind

from otel_rollout import semconv
from otel_rollout.breather import Breather
from otel_rollout.delivery.finished_span import FinishedSpan

__all__ = ["encode_spans"]

_HAS_IS_REMOTE: Final = 0x100
_IS_REMOTE: Final = 0x200
_INT64_MIN, _INT64_MAX, _UINT64_MAX = -(2**63), 2**63 - 1, 2**64 - 1

# Tags of length-delimited fields: (field number << 3) | 2.
_REQUEST_RESOURCE_SPANS: Final = b"\x0a"
_RESOURCE_SPANS_SCOPE_SPANS: Final = b"\x12"
_SCOPE_SPANS_SPANS: Final = b"\x12"
_SPAN_NAME: Final = b"\x2a"
_SPAN_ATTRIBUTES: Final = b"\x4a"
_PAIR_KEY: Final = b"\x0a"
_PAIR_VALUE: Final = b"\x12"
_VALUE_STRING: Final = b"\x0a"
# The other values: truths and integers (fields 2 and 3, numbers), doubles (field 4, fixed64).
_VALUE_FALSE: Final = b"\x10\x00"
_VALUE_TRUE: Final = b"\x10\x01"
_VALUE_INT: Final = b"\x18"
_VALUE_DOUBLE: Final = struct.Struct("<Bd").pack
# These come with their length, which is always the same.
_SPAN_TRACE_ID: Final = b"\x0a\x10"
_SPAN_SPAN_ID: Final = b"\x12\x08"
_SPAN_PARENT_SPAN_ID: Final = b"\x22\x08"
_SPAN_STATUS_UNSET: Final = b"\x7a\x00"
# Kind (field 6, a number), start and end (fields 7 and 8, fixed64), flags (field 16, fixed32), with their tags.
_SPAN_NUMBERS: Final = struct.Struct("<BBBQBQHI").pack

_SHORT_TEXT: Final = 64
_LARGE_TEXT: Final = 16 * 1024
_MAX_CACHED: Final = 8192
_MAX_KEPT_NUMBER: Final = 0x4000
# Most names and attributes (tags, kinds, MIME types) are the same on thousands of spans.
_encoded_pairs: dict[tuple[str, type, str | int], bytes] = {}
_encoded_names: dict[str, bytes] = {}
_encoded_keys: dict[str, bytes] = {}
_kinds: Final = {kind: kind.value + 1 for kind in SpanKind}
"""OTLP numbers the kinds from 1, the API from 0."""
_INTERNAL: Final = _kinds[SpanKind.INTERNAL]


class _Varints(dict[int, bytes]):
    """Numbers as protobuf writes them; small ones, of which a span has seven, are kept."""

    def __missing__(self, number: int) -> bytes:
        left, parts = number, bytearray()
        while left >= 0x80:
            parts.append(left & 0x7F | 0x80)
            left >>= 7
        parts.append(left)
        encoded = bytes(parts)
        if number < _MAX_KEPT_NUMBER:
            self[number] = encoded
        return encoded


_varint: Final = _Varints().__getitem__


def encode_spans(spans: Sequence[ReadableSpan]) -> bytes:
    """Return the OTLP request that holds `spans`, grouped by resource and scope.

    Args:
        spans: Finished spans, of the SDK or of ours.
    """
    resources: dict[int, tuple[Resource, dict[int, tuple[InstrumentationScope | None, list[bytes]]]]] = {}
    last_resource: Any = None
    last_scope: Any = None
    parts: list[bytes] = []
    breather = Breather()
    for span in spans:
        if not isinstance(span, FinishedSpan) and span.context is None:
            continue
        resource, scope = span.resource, span.instrumentation_scope
        if resource is not last_resource or scope is not last_scope:
            _, scopes = resources.setdefault(id(resource), (resource, {}))
            _, parts = scopes.setdefault(id(scope), (scope, []))
            last_resource, last_scope = resource, scope
        pieces, has_large_text = (
            _encode_finished(span) if isinstance(span, FinishedSpan) and span.is_in_parts else _encode_span(span)
        )
        if has_large_text:
            length = sum(map(len, pieces))
            parts += (_SCOPE_SPANS_SPANS, _varint(length), *pieces)
            breather.worked(length)
        else:
            # A copy of a small span costs less than handling its pieces twice more.
            data = b"".join(pieces)
            parts += (_SCOPE_SPANS_SPANS, _varint(len(data)), data)
    request: list[bytes] = []
    for resource, scopes in resources.values():
        resource_parts = [_encode_resource(resource)]
        for scope, parts in scopes.values():
            scope_message = _encode_scope(scope)
            size = len(scope_message) + sum(map(len, parts))
            resource_parts += (_RESOURCE_SPANS_SCOPE_SPANS, _varint(size), scope_message, *parts)
        request += (_REQUEST_RESOURCE_SPANS, _varint(sum(map(len, resource_parts))), *resource_parts)
    return b"".join(request)


def _encode_resource(resource: Resource) -> bytes:
    """Return a `ResourceSpans` that has everything but spans."""
    message = ResourceSpans(schema_url=resource.schema_url or "")
    # Present even where it has no attributes.
    message.resource.SetInParent()
    _fill_attributes(message.resource.attributes, resource.attributes)
    return message.SerializeToString()


def _encode_scope(scope: InstrumentationScope | None) -> bytes:
    """Return a `ScopeSpans` that has everything but spans."""
    message = ScopeSpans()
    if scope is not None:
        message.scope.name = _text(scope.name)
        message.scope.version = _text(scope.version or "")
        message.schema_url = scope.schema_url or ""
        _fill_attributes(message.scope.attributes, scope.attributes or {})
    return message.SerializeToString()


def _encode_finished(span: FinishedSpan) -> tuple[list[bytes], bool]:
    """Return a span of ours in pieces; the same as `_encode_span`, from what the span is made of."""
    light = span.light
    parent, ids = light.parent, light.ids
    if isinstance(ids, int):
        # One that nothing ran inside has its parent's ids but for its own.
        trace, span_id = cast("SpanContext", parent), ids
    else:
        trace, span_id = ids, ids.span_id
    parts = _encode_head(light.name, trace, span_id, parent, _INTERNAL, light.start_time, light.end_time)
    payload, input_bytes = span.payload, span.input_bytes
    has_large_text = len(payload) > _LARGE_TEXT
    if input_bytes >= 0:
        parts += _encode_text(semconv.INPUT_VALUE, payload[:input_bytes])
        parts.append(_INPUT_MIME_TYPE)
    if span.has_output:
        parts += _encode_text(semconv.OUTPUT_VALUE, payload[max(input_bytes, 0) + 1 :])
        parts.append(_OUTPUT_MIME_TYPE)
    has_large_text = _encode_attributes(parts, light.attributes) or has_large_text
    trajectory = light.trajectory
    if trajectory is not None:
        tags = trajectory.encoded_tags
        if tags is None:
            tags = trajectory.encoded_tags = _encode_tags(trajectory.tags)
        parts.append(tags)
    if span.has_rest or trace.trace_state:
        parts.append(_encode_rest(span, trace))
    else:
        parts.append(_SPAN_STATUS_UNSET)
    return parts, has_large_text


def _encode_span(span: ReadableSpan) -> tuple[list[bytes], bool]:
    """Return any span in pieces, and whether one is so large that it should not be copied before all are joined."""
    context = cast("SpanContext", span.context)
    parts = _encode_head(
        span.name, context, context.span_id, span.parent, _kinds[span.kind], span.start_time, span.end_time
    )
    has_large_text = _encode_attributes(parts, span.attributes or {})
    if (
        span.events
        or span.links
        or span.status.status_code.value
        or context.trace_state
        or span.dropped_attributes
        # Without any kept: a limit of none, or a span that was made smaller.
        or span.dropped_events
        or span.dropped_links
    ):
        parts.append(_encode_rest(span, context))
    else:
        parts.append(_SPAN_STATUS_UNSET)
    return parts, has_large_text


def _encode_head(
    name: str,
    trace: SpanContext,
    span_id: int,
    parent: SpanContext | None,
    kind: int,
    start_time: int | None,
    end_time: int | None,
) -> list[bytes]:
    flags = _HAS_IS_REMOTE | (trace.trace_flags & 0xFF)
    parts = [
        _SPAN_TRACE_ID,
        trace.trace_id.to_bytes(16, "big"),
        _SPAN_SPAN_ID,
        span_id.to_bytes(8, "big"),
        _encoded_names.get(name) or _encode_name(name),
    ]
    if parent is not None:
        if parent.is_remote:
            flags |= _IS_REMOTE
        parts += (_SPAN_PARENT_SPAN_ID, parent.span_id.to_bytes(8, "big"))
    parts.append(_SPAN_NUMBERS(0x30, kind, 0x39, start_time or 0, 0x41, end_time or 0, 0x0185, flags))
    return parts


def _encode_attributes(parts: list[bytes], attributes: Mapping[str, Any]) -> bool:
    """Add attributes of a span to its pieces; whether one is large."""
    has_large_text = False
    value: Any
    for key, value in attributes.items():
        kind = type(value)
        if kind is str:
            if len(value) > _SHORT_TEXT:
                has_large_text = has_large_text or len(value) > _LARGE_TEXT
                parts += _encode_long_text(key, value)
                continue
            name = key, kind, value
        elif kind is bool or kind is int:
            name = key, kind, value
        elif kind is tuple and len(value) == 1 and type(value[0]) is str and len(value[0]) <= _SHORT_TEXT:
            name = key, kind, value[0]
        else:
            parts.append(_encode_pair(key, value))
            continue
        pair = _encoded_pairs.get(name)
        if pair is None:
            pair = _encode_pair(key, value)
            if len(_encoded_pairs) >= _MAX_CACHED:
                _encoded_pairs.clear()
            _encoded_pairs[name] = pair
        parts.append(pair)
    return has_large_text


def _encode_tags(tags: Mapping[str, Any]) -> bytes:
    parts: list[bytes] = []
    _encode_attributes(parts, tags)
    return b"".join(parts)


def _encode_name(name: str) -> bytes:
    text = _text(name).encode()
    encoded = _SPAN_NAME + _varint(len(text)) + text
    if len(_encoded_names) >= _MAX_CACHED:
        _encoded_names.clear()
    if len(text) <= _SHORT_TEXT:
        _encoded_names[name] = encoded
    return encoded


def _encode_long_text(key: str, value: str) -> tuple[bytes, ...]:
    """Return a text attribute of a span in pieces."""
    try:
        text = value.encode()
    except UnicodeEncodeError:
        text = _text(value).encode()
    return _encode_text(key, text)


def _encode_text(key: str, text: bytes) -> tuple[bytes, ...]:
    """Return a text attribute of a span in pieces.

    Args:
        key: Its name.
        text: The text in UTF-8.
    """
    length = len(text)
    size = _varint(length)
    value_length = 1 + len(size) + length
    start, value_size = _encoded_keys.get(key) or _encode_key(key), _varint(value_length)
    pair_size = _varint(len(start) + len(value_size) + value_length)
    return _SPAN_ATTRIBUTES, pair_size, start, value_size, _VALUE_STRING, size, text


def _encode_key(key: str) -> bytes:
    """Return the beginning of a pair: its key, and the tag of its value."""
    name = _text(key).encode()
    encoded = _PAIR_KEY + _varint(len(name)) + name + _PAIR_VALUE
    if len(_encoded_keys) >= _MAX_CACHED:
        _encoded_keys.clear()
    _encoded_keys[key] = encoded
    return encoded


def _encode_pair(key: str, value: Any) -> bytes:
    """Return the bytes of a span message that has this attribute and nothing else."""
    kind = type(value)
    if kind is str:
        return b"".join(_encode_long_text(key, value))
    if kind is bool:
        number = _VALUE_TRUE if value else _VALUE_FALSE
    elif kind is float:
        number = _VALUE_DOUBLE(0x21, value)
    elif kind is int and _INT64_MIN <= value <= _INT64_MAX:
        number = _VALUE_INT + _varint(value & _UINT64_MAX)
    else:
        message = SpanMessage()
        _fill_attributes(message.attributes, {key: value})
        return message.SerializeToString()
    start = _encoded_keys.get(key) or _encode_key(key)
    return b"".join((_SPAN_ATTRIBUTES, _varint(len(start) + 1 + len(number)), start, _varint(len(number)), number))


def _encode_rest(span: ReadableSpan, context: SpanContext) -> bytes:
    """Return the bytes of a span message that has what few spans have."""
    message = SpanMessage()
    if context.trace_state:
        message.trace_state = context.trace_state.to_header()
    message.dropped_attributes_count = span.dropped_attributes
    for event in span.events:
        event_message = message.events.add(
            name=_text(event.name),
            time_unix_nano=event.timestamp,
            dropped_attributes_count=getattr(event, "dropped_attributes", 0),
        )
        _fill_attributes(event_message.attributes, event.attributes or {})
    message.dropped_events_count = span.dropped_events
    for link in span.links:
        link_message = message.links.add(
            trace_id=link.context.trace_id.to_bytes(16, "big"),
            span_id=link.context.span_id.to_bytes(8, "big"),
            flags=_HAS_IS_REMOTE | (_IS_REMOTE if link.context.is_remote else 0) | (link.context.trace_flags & 0xFF),
            dropped_attributes_count=getattr(link, "dropped_attributes", 0),
        )
        _fill_attributes(link_message.attributes, link.attributes or {})
    message.dropped_links_count = span.dropped_links
    message.status.code = span.status.status_code.value  # type: ignore[assignment]  # an enum number of protobuf
    if span.status.description:
        message.status.message = _text(span.status.description)
    return message.SerializeToString()


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


_INPUT_MIME_TYPE: Final = _encode_pair(semconv.INPUT_MIME_TYPE, semconv.JSON_MIME_TYPE)
_OUTPUT_MIME_TYPE: Final = _encode_pair(semconv.OUTPUT_MIME_TYPE, semconv.JSON_MIME_TYPE)
