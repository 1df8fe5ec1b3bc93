"""Reads spans in OTLP's binary form, each when it is first used.

Known attributes come from a cache, and nothing is parsed that isn't asked for: that takes half the time of protobuf's
own parser, which makes an object of each value.

Source: https://protobuf.dev/programming-guides/encoding/ and opentelemetry-proto's trace.proto.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import Any, Final

from google.protobuf.message import Error as ProtobufError
from opentelemetry.proto.common.v1.common_pb2 import AnyValue, KeyValue
from opentelemetry.proto.trace.v1.trace_pb2 import ResourceSpans, ScopeSpans
from opentelemetry.proto.trace.v1.trace_pb2 import Span as SpanMessage
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import Event, ReadableSpan
from opentelemetry.sdk.util.instrumentation import InstrumentationScope
from opentelemetry.trace import Link, SpanContext, SpanKind, Status, StatusCode, TraceFlags, TraceState

from otel_rollout.errors import UnreadableTraceError
from otel_rollout.facts.shapes import OUTLINED, Outline
from otel_rollout.facts.span_values import times_of
from otel_rollout.otlp.pieces import LARGE_BYTES, cut_request, fields_of, has_too_many_fields, number_at, spans_of
from otel_rollout.record.finished_span import CountedSpan
from otel_rollout.text.sanitize import INT64_MAX

MALFORMED: Final = (ArithmeticError, AttributeError, LookupError, ProtobufError, RecursionError, TypeError, ValueError)
"""The errors that bytes of another form cause."""
MAX_FIELDS: Final = 2**21
"""The limit on the spans, scopes and resources of a request together."""
MAX_VALUES: Final = 2**21
"""The limit on the values of a span; as Python objects they take a multiple of their bytes."""
TOO_MANY_VALUES: Final = f"a span of more than {MAX_VALUES:,} values, which is the limit"
_IS_REMOTE: Final = 0x200
_MAX_CACHED: Final = 256
_MAX_PAIRS: Final = 8192
_SHORT_PAIR: Final = 128
_MAX_CACHED_BYTES: Final = 2**14
_IDS_AT_FRONT: Final = b"\x0a\x10"
_SPAN_ID_NEXT: Final = b"\x12\x08"
_NO_SPAN: Final = bytes(8)

# The tags of a span's fields: (field number << 3) | wire type.
_TRACE_ID, _SPAN_ID, _TRACE_STATE, _PARENT_ID, _NAME, _ATTRIBUTE, _STATUS = 0x0A, 0x12, 0x1A, 0x22, 0x2A, 0x4A, 0x7A
_KIND, _START, _END, _FLAGS = 0x30, 0x39, 0x41, 0x85
_STRING_VALUE: Final = 0x0A

_UNSET: Final = Status(StatusCode.UNSET)
_kinds: Final = {kind.value + 1: kind for kind in SpanKind}
_codes: Final = {code.value: code for code in StatusCode}
_trace_flags: Final = [TraceFlags(flags) for flags in range(0x100)]

# Most attributes (tags, kinds, MIME types) are the same on thousands of spans.
_pairs: dict[bytes, tuple[str, Any]] = {}


class _WithDropped:
    dropped_attributes = 0


class _RecordedEvent(_WithDropped, Event):
    """An event with an explicit count of dropped attributes."""


class _RecordedLink(_WithDropped, Link):
    """A link with an explicit count of dropped attributes."""


class StoredSpan(CountedSpan):
    """A span that is decoded on first use, its attributes apart from the rest.

    Args:
        data: The span.
        resource: Its resource.
        scope: Its scope.
    """

    def __init__(self, data: bytes, resource: Resource, scope: InstrumentationScope | None) -> None:
        # The SDK's is not called: the attributes that it sets must be missing until they are asked for.
        self._undecoded = (data, resource, scope)

    @property
    def data(self) -> bytes:
        """The span as it was read; empty once it is decoded."""
        undecoded = vars(self).get("_undecoded")
        return b"" if undecoded is None else undecoded[0]

    def decode(self) -> None:
        """Decode all of it.

        Raises:
            UnreadableTraceError: It is malformed.
        """
        _ = self.name, self.attributes

    def __getattr__(self, name: str) -> Any:
        fields = vars(self)
        try:
            if (undecoded := fields.get("_undecoded")) is not None:
                decoded = _decode(*undecoded)
                for field, value in decoded.items():
                    # An exporter may have assigned to a field before anything was read.
                    fields.setdefault(field, value)
                fields.pop("_undecoded", None)
            if name == "_attributes" and (pieces := fields.get("_pieces")) is not None:
                fields.setdefault(name, _decode_attributes(pieces))
                fields.pop("_pieces", None)
        except MALFORMED as error:
            raise UnreadableTraceError(f"not a span of OTLP: {error or type(error).__name__}") from error
        if name not in fields:
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
        # Set, if another thread has decoded it meanwhile.
        return fields[name]


def traces_of(request: bytes) -> dict[bytes, list[StoredSpan]]:
    """Return the spans of a request by the ids of their traces, undecoded.

    Raises:
        ValueError: It is no such request, or has a span without an id.
    """
    traces: dict[bytes, list[StoredSpan]] = {}
    for span in lazy_spans(request):
        trace_id = ids_of(span.data)[0]
        if len(trace_id) != 16:
            raise ValueError("a span without an id")
        traces.setdefault(trace_id, []).append(span)
    return traces


def decode_spans(request: bytes) -> list[ReadableSpan]:
    """Return the spans of a request in order, all decoded.

    Raises:
        ValueError: It is no such request, or a span in it is malformed.
    """
    spans = lazy_spans(request)
    for span in spans:
        span.decode()
    return [*spans]


def lazy_spans(data: bytes) -> list[StoredSpan]:
    """Return the spans of an `ExportTraceServiceRequest`, or of several that are concatenated, in order.

    Raises:
        ValueError: It is no such request; a span that is malformed raises it when it is used.
    """
    spans: list[StoredSpan] = []
    try:
        for inner in cut_request(data, MAX_FIELDS):
            resource, scope = resource_of(inner.resource), scope_of(inner.scope)
            for piece in inner.pieces:
                spans += [StoredSpan(data[start:end], resource, scope) for start, end in spans_of(data, piece)]
    except MALFORMED as error:
        raise ValueError(f"no OTLP request ({error or type(error).__name__}): {data[:20]!r}") from error
    return spans


def outline_of(span: ReadableSpan) -> Outline:
    """Return a span without its payload; for one that isn't decoded this takes a third of the time.

    Raises:
        UnreadableTraceError: It is malformed.
    """
    data = span.data if isinstance(span, StoredSpan) else b""
    if not data or len(data) > LARGE_BYTES:
        context, parent = span.get_span_context(), span.parent
        ids = (context.span_id if context else 0), (parent.span_id if parent else 0)
        return Outline(*times_of(span), *ids, span.name, span.attributes or {}, span.status.status_code.value)
    try:
        message = SpanMessage.FromString(data)
    except ProtobufError as error:
        raise UnreadableTraceError(f"not a span of OTLP: {error}") from error
    end = min(message.end_time_unix_nano, INT64_MAX)
    return Outline(
        min(message.start_time_unix_nano, INT64_MAX) or end,
        end,
        int.from_bytes(message.span_id, "big"),
        int.from_bytes(message.parent_span_id, "big"),
        message.name,
        {pair.key: pair.value.string_value for pair in message.attributes if pair.key in OUTLINED},
        message.status.code,
    )


def ids_of(span: bytes) -> tuple[bytes, bytes]:
    """Return the ids of a span's trace and of itself; empty ones if it has none.

    Raises:
        ValueError: It is no span.
    """
    if span.startswith(_IDS_AT_FRONT) and span.startswith(_SPAN_ID_NEXT, 18):
        return span[2:18], span[20:28]
    ids = {1: b"", 2: b""}
    for number, _, value, end in fields_of(span, 0, len(span)):
        if number in ids:
            ids[number] = span[value:end]
    return ids[1], ids[2]


def resource_of(message: bytes) -> Resource:
    """Return the resource of a `ResourceSpans` without its scopes.

    Exporters cache by its identity: one object stands for all spans of a process.

    Raises:
        DecodeError: It is no such message.
    """
    return _make_resource(message) if len(message) > _MAX_CACHED_BYTES else _cached_resource(message)


def scope_of(message: bytes) -> InstrumentationScope | None:
    """Return the scope of a `ScopeSpans` without its spans; None if it has none.

    Raises:
        DecodeError: It is no such message.
    """
    return _make_scope(message) if len(message) > _MAX_CACHED_BYTES else _cached_scope(message)


def _make_resource(message: bytes) -> Resource:
    parsed = ResourceSpans.FromString(message)
    return Resource(_values_of(parsed.resource.attributes), parsed.schema_url)


def _make_scope(message: bytes) -> InstrumentationScope | None:
    parsed = ScopeSpans.FromString(message)
    if not parsed.HasField("scope"):
        return None
    scope = parsed.scope
    return InstrumentationScope(scope.name, scope.version, parsed.schema_url, _values_of(scope.attributes) or None)


_cached_resource: Final = lru_cache(_MAX_CACHED)(_make_resource)
_cached_scope: Final = lru_cache(_MAX_CACHED)(_make_scope)


def _decode(  # noqa: PLR0915 - a call for each field would cost as much as the field
    data: bytes, resource: Resource, scope: InstrumentationScope | None
) -> dict[str, Any]:
    """Return the fields of a span as the SDK has them, its attributes in pieces; raise one of `MALFORMED`."""
    trace_id = span_id = parent_id = b""
    name, trace_state = "", b""
    kind, flags = 0, 1
    start_time: int | None = None
    end_time: int | None = None
    pieces: list[bytes] = []
    rest: list[bytes] = []
    place, end = 0, len(data)
    if end > LARGE_BYTES and has_too_many_fields(data, 0, end, MAX_VALUES):
        raise ValueError(TOO_MANY_VALUES)
    while place < end:
        begin = place
        tag = data[place]
        place += 1
        wire_type = tag & 7
        if tag >= 0x80:
            tag, place = number_at(data, begin)
            wire_type = tag & 7
        if wire_type == 2:
            size = data[place]
            place += 1
            if size >= 0x80:
                size, place = number_at(data, place - 1)
            value, place = place, place + size
            if tag == _ATTRIBUTE:
                pieces.append(data[value:place])
            elif tag == _TRACE_ID:
                trace_id = data[value:place]
            elif tag == _SPAN_ID:
                span_id = data[value:place]
            elif tag == _PARENT_ID:
                parent_id = data[value:place]
            elif tag == _NAME:
                name = data[value:place].decode()
            elif tag == _TRACE_STATE:
                trace_state = data[value:place]
            elif size or tag != _STATUS:
                rest.append(data[begin:place])
        elif wire_type == 1:
            place += 8
            if tag == _START:
                start_time = min(int.from_bytes(data[place - 8 : place], "little"), INT64_MAX)
            elif tag == _END:
                end_time = min(int.from_bytes(data[place - 8 : place], "little"), INT64_MAX)
        elif wire_type == 0:
            number, place = number_at(data, place)
            if tag == _KIND:
                kind = number
            else:
                rest.append(data[begin:place])
        elif wire_type == 5:
            place += 4
            if tag == _FLAGS:
                flags = int.from_bytes(data[place - 4 : place], "little")
        else:
            raise ValueError(f"a field of kind {wire_type} at byte {begin}")
    if place > end:
        raise ValueError("a field is cut off")
    if len(trace_id) != 16 or len(span_id) != 8:
        raise ValueError("an id of another length than 16 bytes (trace) or 8 bytes (span)")
    trace_number, trace_flags = int.from_bytes(trace_id, "big"), flags & 0xFF
    parent = None
    if parent_id and parent_id != _NO_SPAN:
        parent = _parent(trace_number, parent_id, flags & (0xFF | _IS_REMOTE), trace_state)
    span = CountedSpan(
        name,
        SpanContext(
            trace_number, int.from_bytes(span_id, "big"), False, _trace_flags[trace_flags], _state_of(trace_state)
        ),
        parent,
        resource,
        kind=_kinds.get(kind, SpanKind.INTERNAL),
        status=_UNSET,
        start_time=start_time,
        end_time=end_time,
        instrumentation_scope=scope,
    )
    span.dropped = (0, 0, 0)
    fields = vars(span)
    if rest:
        fields |= _rest_of(SpanMessage.FromString(b"".join(rest)))
    del fields["_attributes"]
    fields["_pieces"] = pieces
    return fields


@lru_cache(_MAX_CACHED)
def _parent(trace_id: int, span_id: bytes, flags: int, trace_state: bytes) -> SpanContext:
    """Return the context of a parent; most spans of a trajectory have the same."""
    if len(span_id) != 8:
        raise ValueError("an id of a parent of another length than 8 bytes")
    is_remote = bool(flags & _IS_REMOTE)
    return SpanContext(
        trace_id, int.from_bytes(span_id, "big"), is_remote, _trace_flags[flags & 0xFF], _state_of(trace_state)
    )


def _state_of(header: bytes) -> TraceState | None:
    return TraceState.from_header([header.decode()]) if header else None


def _rest_of(message: SpanMessage) -> dict[str, Any]:
    """Return the fields that few spans have."""
    code = _codes.get(message.status.code, StatusCode.UNSET)
    return {
        "_status": Status(code, message.status.message or None if code is StatusCode.ERROR else None),
        "_events": [_event_of(event) for event in message.events],
        "_links": [_link_of(link) for link in message.links],
        "dropped": (message.dropped_attributes_count, message.dropped_events_count, message.dropped_links_count),
    }


def _event_of(message: SpanMessage.Event) -> Event:
    event = _RecordedEvent(message.name, _values_of(message.attributes), min(message.time_unix_nano, INT64_MAX))
    if message.dropped_attributes_count:
        event.dropped_attributes = message.dropped_attributes_count
    return event


def _link_of(message: SpanMessage.Link) -> Link:
    if len(message.trace_id) > 16 or len(message.span_id) > 8:
        raise ValueError("an id of a link is too long")
    flags, state = message.flags, message.trace_state
    context = SpanContext(
        int.from_bytes(message.trace_id, "big"),
        int.from_bytes(message.span_id, "big"),
        bool(flags & _IS_REMOTE),
        _trace_flags[flags & 0xFF],
        TraceState.from_header([state]) if state else None,
    )
    link = _RecordedLink(context, _values_of(message.attributes))
    if message.dropped_attributes_count:
        link.dropped_attributes = message.dropped_attributes_count
    return link


def _decode_attributes(pieces: Iterable[bytes]) -> dict[str, Any]:
    """Return attributes, each given as a `KeyValue`; raise one of `MALFORMED`."""
    attributes: dict[str, Any] = {}
    get = _pairs.get
    for piece in pieces:
        key, value = get(piece) or _decode_pair(piece)
        attributes[key] = value
    return attributes


def _decode_pair(piece: bytes) -> tuple[str, Any]:
    # A string, in the order in which it is written: all others are parsed.
    pair: tuple[str, Any]
    if len(piece) > _SHORT_PAIR and (text := _text_pair(piece)) is not None:
        return text
    message = KeyValue.FromString(piece)
    value = message.value
    kind = value.WhichOneof("value")
    pair = message.key, _value_of(value, kind)
    if len(piece) <= _SHORT_PAIR and kind != "kvlist_value":
        if len(_pairs) >= _MAX_PAIRS:
            _pairs.clear()
        _pairs[piece] = pair
    return pair


def _text_pair(piece: bytes) -> tuple[str, str] | None:
    """Return a key and its text, which protobuf's parser would copy twice; None if it is another form."""
    if piece[0] != 0x0A:
        return None
    size, key = number_at(piece, 1)
    key_end = key + size
    if piece[key_end : key_end + 1] != b"\x12":
        return None
    size, value = number_at(piece, key_end + 1)
    if value + size != len(piece) or piece[value] != _STRING_VALUE:
        return None
    size, text = number_at(piece, value + 1)
    if text + size != len(piece):
        return None
    return piece[key:key_end].decode(), piece[text:].decode()


def _values_of(attributes: Sequence[KeyValue]) -> dict[str, Any]:
    return {pair.key: _value_of(pair.value, pair.value.WhichOneof("value")) for pair in attributes}


def _value_of(value: AnyValue, kind: str | None) -> Any:
    if kind == "array_value":
        return tuple(_value_of(item, item.WhichOneof("value")) for item in value.array_value.values)
    if kind == "kvlist_value":
        return _values_of(value.kvlist_value.values)
    return getattr(value, kind) if kind else None
