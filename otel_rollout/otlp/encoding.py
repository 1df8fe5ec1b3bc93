"""Encodes spans in OTLP's binary form, and copies each payload twice, as bytes.

The SDK's encoder passes each message to the next constructor, which copies it: a payload is copied at six levels, then
serialized in one call that holds the GIL for milliseconds. Here the fields of every span are written directly, mostly
from cached pieces; rare ones (events, links, status, nested values) go through the official classes. Protobuf parses
concatenated fields as one message, and concatenated requests as one request.

Spans keep their order: another group begins with each change of the resource or the scope.

Source: https://opentelemetry.io/docs/specs/otlp/, opentelemetry-proto's trace.proto, and
https://protobuf.dev/programming-guides/encoding/.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple, TypeAlias, cast

from google.protobuf.message import EncodeError
from opentelemetry.proto.trace.v1.trace_pb2 import ResourceSpans, ScopeSpans
from opentelemetry.proto.trace.v1.trace_pb2 import Span as SpanMessage
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import Event, ReadableSpan
from opentelemetry.sdk.util.instrumentation import InstrumentationScope
from opentelemetry.trace import SpanContext, SpanKind, TraceState

from otel_rollout.guard.gil import GilYielder
from otel_rollout.otlp.attributes import (
    MAX_CACHED,
    SHORT_TEXT,
    encode_attributes,
    fill_attributes,
    plain_text,
    varint,
)

Additions: TypeAlias = tuple[Mapping[str, Any], Sequence[Event]]
"""Attributes and events that a request has besides a span's own."""
_NOTHING: Final[Additions] = ({}, ())

_HAS_IS_REMOTE: Final = 0x100
_IS_REMOTE: Final = 0x200

# Tags of length-delimited fields: (field number << 3) | 2.
_REQUEST_RESOURCE_SPANS: Final = b"\x0a"
_RESOURCE_SPANS_SCOPE_SPANS: Final = b"\x12"
_SCOPE_SPANS_SPANS: Final = b"\x12"
_SPAN_NAME: Final = b"\x2a"
# With their lengths, which are constant.
_SPAN_TRACE_ID: Final = b"\x0a\x10"
_SPAN_SPAN_ID: Final = b"\x12\x08"
_SPAN_PARENT_SPAN_ID: Final = b"\x22\x08"
_SPAN_STATUS_UNSET: Final = b"\x7a\x00"
# Kind (field 6, a number), start and end (fields 7 and 8, fixed64), flags (field 16, fixed32), with their tags.
_SPAN_NUMBERS: Final = struct.Struct("<BBBQBQHI").pack
_SPAN_NUMBERS_WITHOUT_TIMES: Final = struct.Struct("<BBHI").pack
_SPAN_TIME: Final = struct.Struct("<BQ").pack

# Most names are the same on thousands of spans, and the resource and the scope of a process's spans always.
_encoded_names: dict[str, bytes] = {}
_encoded_origins: dict[int, tuple[Resource | InstrumentationScope, bytes]] = {}
_kinds: Final = {kind: kind.value + 1 for kind in SpanKind}
"""OTLP numbers the kinds from 1, the API from 0."""
_MAX_ORIGINS: Final = 256
_LARGE_ORIGIN_BYTES: Final = 2**14
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
        OverflowError: An id or a time has too many bits.
        TypeError: A field of a span has another type.
        ValueError: A value is too deep.
    """
    return join_spans(encode_each(spans, additions))


def encode_each(
    spans: Iterable[ReadableSpan], additions: Callable[[ReadableSpan], Additions] | None = None
) -> Iterator[EncodedSpan]:
    """Yield finished spans of this process, each encoded; one with a parent in another process is a root, too.

    Takes and raises what `encode_spans` does.
    """
    last_resource: Any = None
    last_scope: Any = None
    resource_data = scope_data = b""
    yielder = GilYielder()
    for span in spans:
        context = span.context
        if context is None:
            continue
        resource, scope = span.resource, span.instrumentation_scope
        if resource is not last_resource or scope is not last_scope:
            resource_data, scope_data = _encode_resource(resource), _encode_scope(scope)
            last_resource, last_scope = resource, scope
        # Unpacked as a tuple: each property of a context is a Python call.
        trace_id, span_id, *_ = context
        ids = trace_id.to_bytes(16, "big"), span_id.to_bytes(8, "big")
        is_root = span.parent is None or span.parent.is_remote
        try:
            data = _encode_span(span, *ids, *(additions(span) if additions is not None else _NOTHING))
        except struct.error as error:
            raise OverflowError(f"a time beyond 64 bits: {error}") from error
        except EncodeError as error:
            raise ValueError(f"values within values without end: {error}") from error
        if len(data) > _LARGE_BYTES:
            yielder.worked(len(data))
        yield EncodedSpan(*ids, is_root, resource_data, scope_data, data, span)


def join_spans(spans: Iterable[EncodedSpan]) -> bytes:
    """Return the OTLP request of encoded spans."""
    resources: list[tuple[bytes, list[tuple[bytes, list[bytes]]]]] = []
    last_resource: bytes | None = None
    last_scope: bytes | None = None
    scopes: list[tuple[bytes, list[bytes]]] = []
    parts: list[bytes] = []
    for _, _, _, resource, scope, data, _ in spans:
        if resource is not last_resource and resource != last_resource:
            scopes, last_scope = [], None
            resources.append((resource, scopes))
            last_resource = resource
        if last_scope is None or (scope is not last_scope and scope != last_scope):
            parts = []
            scopes.append((scope, parts))
            last_scope = scope
        parts += (_SCOPE_SPANS_SPANS, varint(len(data)), data)
    request: list[bytes] = []
    for resource, scopes in resources:
        resource_parts = [resource]
        for scope, parts in scopes:
            size = len(scope) + sum(map(len, parts))
            resource_parts += (_RESOURCE_SPANS_SCOPE_SPANS, varint(size), scope, *parts)
        request += (_REQUEST_RESOURCE_SPANS, varint(sum(map(len, resource_parts))), *resource_parts)
    return b"".join(request)


def _encode_resource(resource: Resource) -> bytes:
    """Return a `ResourceSpans` without its spans."""
    known = _encoded_origins.get(id(resource))
    if known is not None and known[0] is resource:
        return known[1]
    message = ResourceSpans(schema_url=resource.schema_url or "")
    # Present even without attributes.
    message.resource.SetInParent()
    fill_attributes(message.resource.attributes, resource.attributes)
    return _remember(resource, message.SerializeToString())


def _encode_scope(scope: InstrumentationScope | None) -> bytes:
    """Return a `ScopeSpans` without its spans."""
    if scope is None:
        return b""
    known = _encoded_origins.get(id(scope))
    if known is not None and known[0] is scope:
        return known[1]
    message = ScopeSpans(schema_url=scope.schema_url or "")
    message.scope.name = plain_text(scope.name)
    message.scope.version = plain_text(scope.version or "")
    fill_attributes(message.scope.attributes, scope.attributes or {})
    return _remember(scope, message.SerializeToString())


def _remember(origin: Resource | InstrumentationScope, encoded: bytes) -> bytes:
    """Keep an encoded resource or scope, at most one that is large, and return it."""
    if len(_encoded_origins) >= _MAX_ORIGINS or len(encoded) > _LARGE_ORIGIN_BYTES:
        _encoded_origins.clear()
    # With the object itself: its id is unique only while it lives.
    _encoded_origins[id(origin)] = origin, encoded
    return encoded


def _encode_span(
    span: ReadableSpan,
    trace_id: bytes,
    span_id: bytes,
    more_attributes: Mapping[str, Any],
    more_events: Sequence[Event],
) -> bytes:
    _, _, _, trace_flags, trace_state, _ = cast("SpanContext", span.context)
    parent = span.parent
    flags = _HAS_IS_REMOTE | (trace_flags & 0xFF)
    name = span.name
    parts = [
        _SPAN_TRACE_ID,
        trace_id,
        _SPAN_SPAN_ID,
        span_id,
        _encoded_names.get(name) or _encode_name(name),
    ]
    if parent is not None:
        _, parent_id, is_remote, *_ = parent
        if is_remote:
            flags |= _IS_REMOTE
        parts += (_SPAN_PARENT_SPAN_ID, parent_id.to_bytes(8, "big"))
    kind, start, end = _kinds[span.kind], span.start_time, span.end_time
    if start is not None and end is not None:
        parts.append(_SPAN_NUMBERS(0x30, kind, 0x39, start, 0x41, end, 0x0185, flags))
    else:
        times = [_SPAN_TIME(tag, time) for tag, time in ((0x39, start), (0x41, end)) if time is not None]
        parts += (*times, _SPAN_NUMBERS_WITHOUT_TIMES(0x30, kind, 0x0185, flags))
    encode_attributes(parts, span.attributes or {})
    encode_attributes(parts, more_attributes)
    if (
        span.events
        or more_events
        or span.links
        or span.status.status_code.value
        or trace_state
        or span.dropped_attributes
        # Counts without kept events: a limit of 0, or a shrunk span.
        or span.dropped_events
        or span.dropped_links
    ):
        parts.append(_encode_rest(span, trace_state, more_events))
    else:
        parts.append(_SPAN_STATUS_UNSET)
    return b"".join(parts)


def _encode_name(name: str) -> bytes:
    text = plain_text(name).encode()
    encoded = _SPAN_NAME + varint(len(text)) + text
    if len(_encoded_names) >= MAX_CACHED:
        _encoded_names.clear()
    if len(text) <= SHORT_TEXT:
        _encoded_names[name] = encoded
    return encoded


def _encode_rest(span: ReadableSpan, trace_state: TraceState | None, more_events: Sequence[Event]) -> bytes:
    """Return a span message with only the rare fields."""
    message = SpanMessage()
    if trace_state:
        message.trace_state = trace_state.to_header()
    message.dropped_attributes_count = span.dropped_attributes
    for event in (*span.events, *more_events):
        event_message = message.events.add(
            name=plain_text(event.name),
            time_unix_nano=event.timestamp,
            dropped_attributes_count=getattr(event, "dropped_attributes", 0),
        )
        fill_attributes(event_message.attributes, event.attributes or {})
    message.dropped_events_count = span.dropped_events
    for link in span.links:
        link_message = message.links.add(
            trace_id=link.context.trace_id.to_bytes(16, "big"),
            span_id=link.context.span_id.to_bytes(8, "big"),
            trace_state=link.context.trace_state.to_header() if link.context.trace_state else "",
            flags=_HAS_IS_REMOTE | (_IS_REMOTE if link.context.is_remote else 0) | (link.context.trace_flags & 0xFF),
            dropped_attributes_count=getattr(link, "dropped_attributes", 0),
        )
        fill_attributes(link_message.attributes, link.attributes or {})
    message.dropped_links_count = span.dropped_links
    message.status.code = span.status.status_code.value  # type: ignore[assignment]  # an enum number of protobuf
    if span.status.description:
        message.status.message = plain_text(span.status.description)
    return message.SerializeToString()
