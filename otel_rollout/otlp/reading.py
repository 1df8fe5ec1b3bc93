"""Reads spans in OTLP's binary form, each when it is first used.

Source: opentelemetry-proto's trace.proto.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import lru_cache
from sys import intern
from typing import Any, Final, TypeVar

from google.protobuf.message import Error as ProtobufError
from opentelemetry.proto.common.v1.common_pb2 import AnyValue, KeyValue
from opentelemetry.proto.trace.v1.trace_pb2 import ResourceSpans, ScopeSpans
from opentelemetry.proto.trace.v1.trace_pb2 import Span as SpanMessage
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import Event, ReadableSpan
from opentelemetry.sdk.util.instrumentation import InstrumentationScope
from opentelemetry.trace import Link, SpanContext, SpanKind, Status, StatusCode, TraceFlags, TraceState

from otel_rollout.errors import UnreadableTraceError
from otel_rollout.otlp.cutting import ScopePart, TooManySpansError, check_fields, cut_request
from otel_rollout.otlp.encoding import EncodedSpan
from otel_rollout.record.finished_span import CountedSpan
from otel_rollout.text.sanitize import INT64_MAX

MALFORMED: Final = (ArithmeticError, AttributeError, LookupError, ProtobufError, RecursionError, TypeError, ValueError)
"""The errors that bytes of another form cause."""
MAX_FIELDS: Final = 2**21
"""The limit on the spans, scopes and resources of a request together."""
MAX_VALUES: Final = 2**21
"""The limit on the values of a span; as Python objects they take a multiple of their bytes."""
LARGE_BYTES: Final = 2**20
"""The values of smaller spans are not counted."""
_MAX_SLICED: Final = 1024
_IS_REMOTE: Final = 0x200
_MAX_CACHED: Final = 256
_MAX_CACHED_BYTES: Final = 2**14
_ID_AT_FRONT: Final = b"\x0a\x10"
_NO_SPAN: Final = (b"", bytes(8))
MAX_ORIGIN_BYTES: Final = 2**20
"""Each record of the journal repeats its resource and scope."""
LARGE_ORIGIN: Final = f"a resource and scope of more than {MAX_ORIGIN_BYTES:,} bytes, which is the limit"

_UNSET: Final = Status(StatusCode.UNSET)
_kinds: Final = {kind.value + 1: kind for kind in SpanKind}
_codes: Final = {code.value: code for code in StatusCode}
_trace_flags: Final = [TraceFlags(flags) for flags in range(0x100)]
_Item = TypeVar("_Item")
_SCALARS: Final = frozenset(("string_value", "int_value", "bool_value", "double_value", "bytes_value"))


class _RecordedEvent(Event):
    """An event with an explicit count of dropped attributes."""

    dropped_attributes = 0


class _RecordedLink(Link):
    """A link with an explicit count of dropped attributes."""

    dropped_attributes = 0


class StoredSpan(CountedSpan):
    """A span that is decoded on first use.

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
        """Decode it.

        Raises:
            UnreadableTraceError: It is malformed.
        """
        _ = self.name

    def __getattr__(self, name: str) -> Any:
        fields = vars(self)
        if (undecoded := fields.get("_undecoded")) is not None:
            try:
                decoded = _decode(*undecoded)
            except MALFORMED as error:
                raise UnreadableTraceError(f"not a span of OTLP: {error or type(error).__name__}") from error
            # An exporter may have assigned to a field before anything was read.
            fields.update(decoded | fields)
            fields.pop("_undecoded", None)
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
        traces.setdefault(_trace_id_of(span.data), []).append(span)
    return traces


def _trace_id_of(span: bytes) -> bytes:
    if span.startswith(_ID_AT_FRONT) and len(span) > 18:
        return span[2:18]
    try:
        trace_id = SpanMessage.FromString(span).trace_id
    except ProtobufError:
        trace_id = b""
    if len(trace_id) != 16:
        raise ValueError("a span without an id")
    return trace_id


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
        for part in cut_request(data, MAX_FIELDS):
            resource, scope = resource_of(part.resource), scope_of(part.scope)
            spans += [StoredSpan(data[start:end], resource, scope) for start, end in part.spans]
    except MALFORMED as error:
        raise ValueError(f"no OTLP request ({error or type(error).__name__}): {data[:20]!r}") from error
    return spans


def split_request(body: bytes, on_refused: Callable[[str], object], max_spans: int) -> Iterator[EncodedSpan]:
    """Return the spans of a request that any program made, checked one by one, as the bytes that came.

    Args:
        body: An `ExportTraceServiceRequest`.
        on_refused: Called with the reason for each span that is malformed.
        max_spans: The limit on its spans, scopes and resources together.

    Raises:
        TooManySpansError: It has more.
        ValueError: It is no such request.
    """
    try:
        parts = cut_request(body, max_spans)
    except TooManySpansError:
        raise
    except ValueError as error:
        raise ValueError(f"the body is no OTLP request in protobuf: {error}") from error
    return _split(body, parts, on_refused)


def _split(body: bytes, parts: Iterable[ScopePart], on_refused: Callable[[str], object]) -> Iterator[EncodedSpan]:
    for part in parts:
        try:
            if len(part.resource) + len(part.scope) > MAX_ORIGIN_BYTES:
                raise ValueError(LARGE_ORIGIN)
            # Once for all spans: what can't be parsed is not cached.
            resource_of(part.resource)
            scope_of(part.scope)
        except MALFORMED as error:
            for _ in part.spans:
                on_refused(f"a malformed resource or scope: {error}")
            continue
        for start, end in part.spans:
            try:
                yield check_span(body[start:end], part.resource, part.scope)
            except MALFORMED as error:  # noqa: PERF203 - each span by itself
                on_refused(str(error))


def check_span(data: bytes, resource: bytes, scope: bytes) -> EncodedSpan:
    """Return an encoded span, once all of it is decoded, so that no reader finds it malformed.

    Raises one of `MALFORMED`.
    """
    span = StoredSpan(data, resource_of(resource), scope_of(scope))
    span.decode()
    context = span.get_span_context()
    if context is None or not context.trace_id or not context.span_id:
        raise ValueError("an id of zeros")
    trace_id, span_id = context.trace_id.to_bytes(16, "big"), context.span_id.to_bytes(8, "big")
    return EncodedSpan(trace_id, span_id, span.parent is None, resource, scope, data, span)


def _cached(make: Callable[[bytes], _Item]) -> Callable[[bytes], _Item]:
    """Return a function that caches what it makes of small messages, and of the last large one."""
    small, large = lru_cache(_MAX_CACHED)(make), lru_cache(1)(make)
    return lambda message: (large if len(message) > _MAX_CACHED_BYTES else small)(message)


@_cached
def resource_of(message: bytes) -> Resource:
    """Return the resource of a `ResourceSpans` without its scopes.

    Exporters cache by its identity: one object stands for all spans of a process.

    Raises:
        DecodeError: It is no such message.
    """
    parsed = ResourceSpans.FromString(message)
    return Resource(_values_of(parsed.resource.attributes), parsed.schema_url)


@_cached
def scope_of(message: bytes) -> InstrumentationScope | None:
    """Return the scope of a `ScopeSpans` without its spans; None if it has none.

    Raises:
        DecodeError: It is no such message.
    """
    parsed = ScopeSpans.FromString(message)
    if not parsed.HasField("scope"):
        return None
    scope = parsed.scope
    return InstrumentationScope(scope.name, scope.version, parsed.schema_url, _values_of(scope.attributes) or None)


def _decode(data: bytes, resource: Resource, scope: InstrumentationScope | None) -> dict[str, Any]:
    """Return the fields of a span as the SDK has them; raise one of `MALFORMED`."""
    if len(data) > LARGE_BYTES:
        check_fields(data, MAX_VALUES)
    message = SpanMessage.FromString(data)
    trace_id, span_id, parent_id = message.trace_id, message.span_id, message.parent_span_id
    if len(trace_id) != 16 or len(span_id) != 8:
        raise ValueError("an id of another length than 16 bytes (trace) or 8 bytes (span)")
    if len(parent_id) not in (0, 8):
        raise ValueError("an id of a parent of another length than 8 bytes")
    # Without flags a span counts as sampled: somebody has sent it.
    flags, header = message.flags or 1, message.trace_state
    code = _codes.get(message.status.code, StatusCode.UNSET)
    failure = message.status.message or None if code is StatusCode.ERROR else None
    span = CountedSpan(
        message.name,
        _context_of(trace_id, span_id, flags & ~_IS_REMOTE, header),
        # Most spans of a trajectory have the same parent.
        None if parent_id in _NO_SPAN else _parent_of(trace_id, parent_id, flags & (0xFF | _IS_REMOTE), header),
        resource,
        _values_of(message.attributes),
        [*map(_event_of, _items_of(message.events))],
        [*map(_link_of, _items_of(message.links))],
        kind=_kinds.get(message.kind, SpanKind.INTERNAL),
        status=_UNSET if code is StatusCode.UNSET else Status(code, failure),
        start_time=min(message.start_time_unix_nano, INT64_MAX) or None,
        end_time=min(message.end_time_unix_nano, INT64_MAX) or None,
        instrumentation_scope=scope,
    )
    span.dropped = message.dropped_attributes_count, message.dropped_events_count, message.dropped_links_count
    return vars(span)


def _context_of(trace_id: bytes, span_id: bytes, flags: int, header: str) -> SpanContext:
    return SpanContext(
        int.from_bytes(trace_id, "big"),
        int.from_bytes(span_id, "big"),
        bool(flags & _IS_REMOTE),
        _trace_flags[flags & 0xFF],
        TraceState.from_header([header]) if header else None,
    )


_parent_of: Final = lru_cache(_MAX_CACHED)(_context_of)


def _event_of(message: SpanMessage.Event) -> Event:
    event = _RecordedEvent(message.name, _values_of(message.attributes), min(message.time_unix_nano, INT64_MAX))
    event.dropped_attributes = message.dropped_attributes_count
    return event


def _link_of(message: SpanMessage.Link) -> Link:
    if len(message.trace_id) > 16 or len(message.span_id) > 8:
        raise ValueError("an id of a link is too long")
    context = _context_of(message.trace_id, message.span_id, message.flags, message.trace_state)
    link = _RecordedLink(context, _values_of(message.attributes))
    link.dropped_attributes = message.dropped_attributes_count
    return link


def _values_of(attributes: Sequence[KeyValue]) -> dict[str, Any]:
    values: dict[str, Any] = {}
    for pair in _items_of(attributes):
        value = pair.value
        kind = value.WhichOneof("value")
        # The keys of thousands of spans are the same.
        values[intern(pair.key)] = getattr(value, kind) if kind in _SCALARS else _value_of(value, kind)
    return values


def _items_of(field: Sequence[_Item]) -> Sequence[_Item]:
    # Protobuf ends an iteration with an exception, which takes longer; a slice makes an object of each item.
    return field[:] if len(field) <= _MAX_SLICED else field


def _value_of(value: AnyValue, kind: str | None) -> Any:
    if kind == "array_value":
        return tuple(_value_of(item, item.WhichOneof("value")) for item in value.array_value.values)
    if kind == "kvlist_value":
        return _values_of(value.kvlist_value.values)
    return getattr(value, kind) if kind else None
