"""Encodes spans in OTLP's binary form, and copies each payload twice, as bytes.

The SDK's encoder passes each message to the next constructor, which copies it: a payload is copied at six levels, then
serialized in one call that holds the GIL for milliseconds. Here the official classes hold a span without its
attributes, which follow as bytes, mostly cached: a span of 2 KB takes a fifth of the SDK's time, of 50 KB a tenth.
Protobuf parses concatenated fields as one message, and concatenated requests as one request.

Spans keep their order: another group begins with each change of the resource or the scope.

Source: https://opentelemetry.io/docs/specs/otlp/, opentelemetry-proto's trace.proto, and
https://protobuf.dev/programming-guides/encoding/.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from itertools import groupby
from operator import attrgetter
from typing import Any, Final, NamedTuple, TypeAlias, TypeVar, cast

from google.protobuf.message import EncodeError
from opentelemetry.proto.common.v1.common_pb2 import AnyValue
from opentelemetry.proto.trace.v1.trace_pb2 import ResourceSpans, ScopeSpans
from opentelemetry.proto.trace.v1.trace_pb2 import Span as SpanMessage
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import Event, ReadableSpan
from opentelemetry.sdk.util.instrumentation import InstrumentationScope
from opentelemetry.trace import SpanContext, SpanKind

from otel_rollout.guard.gil import GilYielder
from otel_rollout.text.sanitize import fits_int64, replace_surrogates

Additions: TypeAlias = tuple[Mapping[str, Any], Sequence[Event]]
"""Attributes and events that a request has besides a span's own."""
_NOTHING: Final[Additions] = ({}, ())

_HAS_IS_REMOTE: Final = 0x100
_IS_REMOTE: Final = 0x200
# Tags of length-delimited fields: (field number << 3) | 2.
_REQUEST_RESOURCE_SPANS: Final = b"\x0a"
_RESOURCE_SPANS_SCOPE_SPANS: Final = b"\x12"
_SCOPE_SPANS_SPANS: Final = b"\x12"
_SPAN_ATTRIBUTES: Final = b"\x4a"
_PAIR_KEY: Final = b"\x0a"
_PAIR_VALUE: Final = b"\x12"
_VALUE_STRING: Final = b"\x0a"
_SHORT_TEXT: Final = 64
_KINDS: Final[dict[SpanKind, Any]] = {kind: kind.value + 1 for kind in SpanKind}
"""OTLP numbers the kinds from 1, the API from 0."""
# The resource and the scope of a process's spans are always the same.
_encoded_origins: dict[int, tuple[Any, bytes]] = {}
_Origin = TypeVar("_Origin")
_MAX_ORIGINS: Final = 256
_LARGE_BYTES: Final = 2**14


class EncodedSpan(NamedTuple):
    """An encoded span, with its resource and scope.

    Args:
        trace_id: 16 bytes.
        span_id: 8 bytes.
        is_root: True if it has no parent.
        resource: A `ResourceSpans` without its scopes.
        scope: A `ScopeSpans` without its spans.
        data: The span.
        readable: The span for summaries.
    """

    trace_id: bytes
    span_id: bytes
    is_root: bool
    resource: bytes
    scope: bytes
    data: bytes
    readable: ReadableSpan


def encode_spans(spans: Iterable[ReadableSpan], additions: Callable[[ReadableSpan], Additions] | None = None) -> bytes:
    """Return the OTLP request of finished spans.

    Lone surrogates become question marks, and integers beyond 64 bits strings.

    Args:
        spans: The spans, the SDK's or ours.
        additions: Returns attributes and events for a span besides its own.

    Raises:
        OverflowError: An id has too many bits.
        TypeError: A field of a span has another type.
        ValueError: A value is too deep, or a time has too many bits.
    """
    return join_spans(encode_each(spans, additions))


def encode_each(
    spans: Iterable[ReadableSpan], additions: Callable[[ReadableSpan], Additions] | None = None
) -> Iterator[EncodedSpan]:
    """Yield finished spans of this process, each encoded; one with a parent in another process is a root, too.

    Takes and raises what `encode_spans` does.
    """
    yielder = GilYielder()
    for span in spans:
        context, scope = span.context, span.instrumentation_scope
        if context is None:
            continue
        resource_data = _cached(span.resource, _encode_resource)
        scope_data = _cached(scope, _encode_scope) if scope is not None else b""
        # Unpacked as a tuple: each property of a context is a Python call.
        trace_id, span_id, *_ = context
        ids = trace_id.to_bytes(16, "big"), span_id.to_bytes(8, "big")
        is_root = span.parent is None or span.parent.is_remote
        try:
            data = _encode_span(span, *ids, additions(span) if additions is not None else _NOTHING)
        except EncodeError as error:
            raise ValueError(f"values within values without end: {error}") from error
        if len(data) > _LARGE_BYTES:
            yielder.worked(len(data))
        yield EncodedSpan(*ids, is_root, resource_data, scope_data, data, span)


def join_spans(spans: Iterable[EncodedSpan]) -> bytes:
    """Return the OTLP request of encoded spans."""
    request: list[bytes] = []
    for resource, of_resource in groupby(spans, attrgetter("resource")):
        resource_parts = [resource]
        for scope, of_scope in groupby(of_resource, attrgetter("scope")):
            parts = [scope]
            for span in of_scope:
                parts += (_SCOPE_SPANS_SPANS, varint(len(span.data)), span.data)
            resource_parts += (_RESOURCE_SPANS_SCOPE_SPANS, varint(sum(map(len, parts))), *parts)
        request += (_REQUEST_RESOURCE_SPANS, varint(sum(map(len, resource_parts))), *resource_parts)
    return b"".join(request)


def _encode_resource(resource: Resource) -> bytes:
    """Return a `ResourceSpans` without its spans."""
    message = ResourceSpans(schema_url=resource.schema_url or "")
    # Present even without attributes.
    message.resource.SetInParent()
    fill_attributes(message.resource.attributes, resource.attributes)
    return message.SerializeToString()


def _encode_scope(scope: InstrumentationScope) -> bytes:
    """Return a `ScopeSpans` without its spans."""
    message = ScopeSpans(schema_url=scope.schema_url or "")
    message.scope.name = plain_text(scope.name)
    message.scope.version = plain_text(scope.version or "")
    fill_attributes(message.scope.attributes, scope.attributes or {})
    return message.SerializeToString()


def _cached(origin: _Origin, encode: Callable[[_Origin], bytes]) -> bytes:
    """Return an encoded resource or scope; at most one that is large is kept."""
    known = _encoded_origins.get(id(origin))
    if known is None or known[0] is not origin:
        # With the object itself: its id is unique only while it lives.
        known = origin, encode(origin)
        if len(_encoded_origins) >= _MAX_ORIGINS or len(known[1]) > _LARGE_BYTES:
            _encoded_origins.clear()
        _encoded_origins[id(origin)] = known
    return known[1]


def _encode_span(span: ReadableSpan, trace_id: bytes, span_id: bytes, additions: Additions) -> bytes:
    _, _, _, trace_flags, trace_state, _ = cast("SpanContext", span.context)
    parent, status = span.parent, span.status
    more_attributes, more_events = additions
    message = SpanMessage(
        trace_id=trace_id,
        span_id=span_id,
        name=plain_text(span.name),
        kind=_KINDS[span.kind],
        start_time_unix_nano=span.start_time or 0,
        end_time_unix_nano=span.end_time or 0,
        flags=_flags_of(trace_flags, parent),
        # Counts without kept events: a limit of 0, or a shrunk span.
        dropped_attributes_count=span.dropped_attributes,
        dropped_events_count=span.dropped_events,
        dropped_links_count=span.dropped_links,
    )
    if parent is not None:
        message.parent_span_id = parent.span_id.to_bytes(8, "big")
    if trace_state:
        message.trace_state = trace_state.to_header()
    for event in (*span.events, *more_events):
        event_message = message.events.add(
            name=plain_text(event.name),
            time_unix_nano=event.timestamp,
            dropped_attributes_count=getattr(event, "dropped_attributes", 0),
        )
        fill_attributes(event_message.attributes, event.attributes or {})
    for link in span.links:
        context = link.context
        link_message = message.links.add(
            trace_id=context.trace_id.to_bytes(16, "big"),
            span_id=context.span_id.to_bytes(8, "big"),
            trace_state=context.trace_state.to_header() if context.trace_state else "",
            flags=_flags_of(context.trace_flags, context),
            dropped_attributes_count=getattr(link, "dropped_attributes", 0),
        )
        fill_attributes(link_message.attributes, link.attributes or {})
    message.status.code = status.status_code.value  # type: ignore[assignment]  # an enum number of protobuf
    if status.description:
        message.status.message = plain_text(status.description)
    parts = [message.SerializeToString()]
    _add_attributes(parts, span.attributes or {})
    _add_attributes(parts, more_attributes)
    return b"".join(parts)


def _flags_of(trace_flags: int, sender: SpanContext | None) -> int:
    """Return OTLP's flags, with the one for a `sender` in another process."""
    return _HAS_IS_REMOTE | (_IS_REMOTE if sender is not None and sender.is_remote else 0) | (trace_flags & 0xFF)


def _add_attributes(parts: list[bytes], attributes: Mapping[str, Any]) -> None:
    """Add the attributes of a span to its pieces; tags and kinds are cached: thousands of spans have the same."""
    for key, value in attributes.items():
        kind = type(value)
        # Such as `gen_ai.response.finish_reasons`.
        text = value[0] if kind is tuple and len(value) == 1 else value
        if (type(text) is str and len(text) <= _SHORT_TEXT) or kind is int or kind is bool:
            parts.append(_cached_pair(key, value))
        elif kind is str:
            parts += _long_text(key, value)
        else:
            parts.append(_encode_pair(key, value))


def _long_text(key: str, value: str) -> tuple[bytes, ...]:
    """Return the pieces of an attribute, of which one is the text."""
    name, text = plain_text(key).encode(), value.encode("utf-8", "replace")
    tag = _VALUE_STRING + varint(len(text))
    start = b"".join((_PAIR_KEY, varint(len(name)), name, _PAIR_VALUE, varint(len(tag) + len(text)), tag))
    return _SPAN_ATTRIBUTES, varint(len(start) + len(text)), start, text


def _encode_pair(key: str, value: Any) -> bytes:
    """Return a span message with only this attribute."""
    message = SpanMessage()
    fill_attributes(message.attributes, {key: value})
    return message.SerializeToString()


_cached_pair: Final = lru_cache(8192, typed=True)(_encode_pair)


def fill_attributes(field: Any, attributes: Mapping[str, Any]) -> None:
    """Add attributes to a repeated field of protobuf's classes."""
    add = field.add
    for key, value in attributes.items():
        if value is not None:
            _fill_value(add(key=plain_text(key)).value, value)


def _fill_value(message: AnyValue, value: Any) -> None:
    if isinstance(value, str):
        message.string_value = plain_text(value)
    elif isinstance(value, bool):
        message.bool_value = value
    elif isinstance(value, int):
        if fits_int64(value):
            message.int_value = value
        else:
            message.string_value = str(value)
    elif isinstance(value, float):
        message.double_value = value
    elif isinstance(value, (bytes, bytearray)):
        message.bytes_value = bytes(value)
    elif isinstance(value, Mapping):
        message.kvlist_value.SetInParent()
        for key, item in value.items():
            pair = message.kvlist_value.values.add(key=plain_text(key))
            pair.value.SetInParent()
            _fill_value(pair.value, item)
    elif isinstance(value, Sequence):
        message.array_value.SetInParent()
        add = message.array_value.values.add
        for item in value:
            _fill_value(add(), item)
    elif value is not None:
        message.string_value = plain_text(str(value))


def plain_text(value: Any) -> str:
    """Return a value as text that protobuf accepts."""
    text = value if isinstance(value, str) else str(value)
    return text if text.isascii() else replace_surrogates(text)


@lru_cache(2**14)
def varint(number: int) -> bytes:
    """Return a number as protobuf writes it."""
    parts = bytearray()
    while number >= 0x80:
        parts.append(number & 0x7F | 0x80)
        number >>= 7
    parts.append(number)
    return bytes(parts)
