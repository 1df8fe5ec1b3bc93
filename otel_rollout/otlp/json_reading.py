"""Lines of OTLP JSON as spans: all parsed at once, or each when it is first used."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import lru_cache
from itertools import islice
from typing import Any, Final

import orjson
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import Event, ReadableSpan
from opentelemetry.sdk.util.instrumentation import InstrumentationScope
from opentelemetry.trace import Link, SpanContext, SpanKind, Status, StatusCode, TraceFlags, TraceState

from otel_rollout.errors import UnreadableTraceError
from otel_rollout.otlp.json_fields import (
    JSON_NAMES,
    count_of,
    decode_attributes,
    id_of,
    items_of,
    number_of,
    text_of,
    text_or_none,
    time_of,
)
from otel_rollout.otlp.json_values import clean
from otel_rollout.record.finished_span import CountedSpan

__all__ = [
    "IS_REMOTE",
    "START",
    "LazySpan",
    "TooManySpansError",
    "decode_line",
    "decode_request",
    "has_too_many_values",
    "lazy_spans",
]

IS_REMOTE: Final = 0x200
START: Final = b'{"resourceSpans":['
LONG_BYTES: Final = 2**23
MAX_VALUES: Final = 2**22
"""No line of ours has more values; as Python objects they take a multiple of the line."""

_MALFORMED: Final = (ArithmeticError, AttributeError, LookupError, RecursionError, TypeError, ValueError)
"""The errors that messages of another form cause."""
_NO_PARENT: Final = "0" * 16
"""Some senders write it for a root."""
_COMMA: Final = ord(",")
_TEXT_OR_VALUE: Final = re.compile(rb'"[^"\\]*(?:\\.[^"\\]*)*"|([,[{])', re.DOTALL)
_MAX_CACHED: Final = 256
_MAX_CACHED_BYTES: Final = 2**14
_UNSET: Final = Status(StatusCode.UNSET)
_trace_flags: Final = [TraceFlags(flags) for flags in range(0x100)]
_kinds: Final = {kind.value + 1: kind for kind in SpanKind}
_status_codes: Final = {code.value: code for code in StatusCode}
_KIND_NAMES: Final = {
    "SPAN_KIND_UNSPECIFIED": 0,
    **{f"SPAN_KIND_{kind.name}": number for number, kind in _kinds.items()},
}
_STATUS_NAMES: Final = {f"STATUS_CODE_{code.name}": number for number, code in _status_codes.items()}


class TooManySpansError(ValueError):
    """A request has more spans than the limit."""


class _WithDropped:
    dropped_attributes = 0


class _RecordedEvent(_WithDropped, Event):
    """An event with an explicit count of dropped attributes."""


class _RecordedLink(_WithDropped, Link):
    """A link with an explicit count of dropped attributes."""


def decode_line(line: bytes) -> list[ReadableSpan]:
    """Return the spans of a line of OTLP JSON, in order, all parsed.

    Args:
        line: An `ExportTraceServiceRequest` in JSON, written by `encode_line` or by any OTLP file exporter.

    Raises:
        ValueError: It is not such a line.
    """
    try:
        return [_decode_span(*each) for each in _messages(_parse_json(line))]
    except _MALFORMED as error:
        raise ValueError(f"not a line of OTLP JSON ({_reason_of(error)}): {line[:40]!r}") from error


def decode_request(body: bytes, on_refused: Callable[[str], object], max_spans: int) -> Iterator[ReadableSpan]:
    """Return the spans of a request that any sender made, each decoded when it is asked for.

    Args:
        body: An `ExportTraceServiceRequest` in JSON.
        on_refused: Called with the reason for each span that is malformed.
        max_spans: The limit on its spans.

    Raises:
        TooManySpansError: It has more.
        ValueError: It is no such request.
    """
    try:
        found = list(islice(_messages(_parse_request(body)), max_spans + 1))
    except _MALFORMED as error:
        raise ValueError(f"the body is no OTLP request in JSON: {_reason_of(error)}") from error
    if len(found) > max_spans:
        raise TooManySpansError(f"more than {max_spans:,} spans")
    return (span for message in found if (span := _try_decode(message, on_refused)) is not None)


def _try_decode(
    message: tuple[Any, Resource, InstrumentationScope | None], on_refused: Callable[[str], object]
) -> ReadableSpan | None:
    try:
        span = _decode_span(*message)
        context = span.context
        if context is None or not context.trace_id or not context.span_id:
            raise ValueError("an id of zeros")
        if min(span.start_time or 0, span.end_time or 0) < 0:
            raise ValueError("a time before 1970")
    except _MALFORMED as error:
        on_refused(f"a malformed span: {_reason_of(error)}")
        return None
    return span


def _reason_of(error: Exception) -> str:
    """Return what is wrong with a message, in words for who sent it: it is one of `_MALFORMED`."""
    if isinstance(error, KeyError):
        return f"no {error.args[0]}"
    if isinstance(error, AttributeError):
        return f"{JSON_NAMES.get(type(error.obj), 'a value')} in place of an object"
    if isinstance(error, RecursionError):
        return "values within values without end"
    # Python's own words name its types.
    return "a value of another type" if isinstance(error, TypeError) else str(error)


def _messages(request: Any) -> Iterator[tuple[Any, Resource, InstrumentationScope | None]]:
    """Yield each span of a request, parsed as JSON, with its resource and scope; raises one of `_MALFORMED`."""
    for resource_spans in items_of(request, "resourceSpans"):
        resource = _decode_resource(resource_spans)
        for scope_spans in items_of(resource_spans, "scopeSpans"):
            scope = _decode_scope(scope_spans)
            for span in items_of(scope_spans, "spans"):
                yield span, resource, scope


class LazySpan(CountedSpan):
    """A span that is parsed on first use.

    Args:
        message: The span as JSON.
        resource: Its resource.
        scope: Its scope.
    """

    def __init__(self, message: bytes, resource: Resource, scope: InstrumentationScope | None) -> None:
        # The SDK's is not called: the attributes that it sets must be missing until they are asked for.
        self._unparsed = (message, resource, scope)

    def __getattr__(self, name: str) -> Any:
        fields = vars(self)
        if (unparsed := fields.get("_unparsed")) is not None:
            message, resource, scope = unparsed
            try:
                parsed = vars(_decode_span(_parse_json(message), resource, scope))
            except _MALFORMED as error:
                raise UnreadableTraceError(
                    f"not a span of OTLP JSON ({_reason_of(error)}): {message[:40]!r}"
                ) from error
            # An exporter may have assigned to a field before anything was read.
            for field, value in parsed.items():
                fields.setdefault(field, value)
            fields.pop("_unparsed", None)
        if name not in fields:
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
        # Set, if another thread has parsed it meanwhile.
        return fields[name]


def lazy_spans(line: bytes, trace_id: str) -> list[ReadableSpan] | None:
    """Return the spans of a line, each unparsed; None if the line has to be parsed as a whole.

    Args:
        line: A line that only `encode_line` writes, with a tab before each span; its checksum holds.
        trace_id: The trace of all its spans.
    """
    first = b'{"traceId":"%b","spanId":"' % trace_id.encode()
    spans: list[ReadableSpan] = []
    resource: Resource | None = None
    scope: InstrumentationScope | None = None
    is_open, start = False, 0
    # `split` is slower: it looks at each byte by itself.
    while (tab := line.find(b"\t", start)) >= 0:
        if resource is not None and is_open and line.startswith(first, start):
            is_open = line[tab - 1] == _COMMA
            spans.append(LazySpan(line[start : tab - is_open], resource, scope))
        elif not is_open and line.endswith(b'"spans":[', start, tab):
            try:
                new_resource, scope = _decode_origin(line[start:tab])
            except _MALFORMED:
                return None
            resource, is_open = new_resource or resource, True
        else:
            return None
        start = tab + 1
    # A journal's line, which has a line end, may have changed since it was listed; parsing it shows that.
    return spans if not is_open and line[start:] == b"]}]}]}" else None


def has_too_many_values(json_bytes: bytes, most: int = MAX_VALUES) -> bool:
    """Return True if JSON of more than `LONG_BYTES` has more than `most` values."""
    return (
        len(json_bytes) > LONG_BYTES and _count_values(json_bytes) > most and _has_more_outside_text(json_bytes, most)
    )


def _parse_json(json_bytes: bytes) -> Any:
    """Parse JSON.

    Raises:
        ValueError: It is no JSON, or has more than `MAX_VALUES` values.
    """
    if has_too_many_values(json_bytes):
        raise ValueError(f"more than {MAX_VALUES:,} values")
    return orjson.loads(json_bytes)


def _parse_request(body: bytes) -> Any:
    """Parse the JSON of any sender: JavaScript's cuts characters in half, which no UTF-8 has."""
    try:
        return _parse_json(body)
    except orjson.JSONDecodeError:
        if len(body) > LONG_BYTES:
            raise
        with suppress(RecursionError, ValueError):
            return clean(json.loads(body.decode(errors="replace")))
        raise


def _has_more_outside_text(json_bytes: bytes, most: int) -> bool:
    # Without the text it would be counted faster, but that has millions of pieces.
    for match in _TEXT_OR_VALUE.finditer(json_bytes):
        most -= match.lastindex or 0
        if most < 0:
            return True
    return False


def _count_values(json_bytes: bytes) -> int:
    """Return an upper bound on the number of values: commas and brackets within strings count too."""
    return json_bytes.count(b",") + json_bytes.count(b"[") + json_bytes.count(b"{")


@lru_cache(_MAX_CACHED)
def _decode_origin(piece: bytes) -> tuple[Resource | None, InstrumentationScope | None]:
    """Return the resource, if it changes, and the scope that stand before the first span of a group."""
    for before in (START, b"]}]},"):
        if piece.startswith(before):
            message = orjson.loads(piece[len(before) :] + b"]}]}")
            return _decode_resource(message), _decode_scope(message["scopeSpans"][0])
    return None, _decode_scope(orjson.loads(piece.removeprefix(b"]},") + b"]}"))


def _decode_resource(message: dict[str, Any]) -> Resource:
    """Return the resource of a `ResourceSpans`."""
    inner, schema_url = message.get("resource") or {}, text_or_none(message.get("schemaUrl"))
    encoded = orjson.dumps((inner, schema_url))
    return _make_resource(encoded) if len(encoded) > _MAX_CACHED_BYTES else _cached_resource(encoded)


def _make_resource(encoded: bytes) -> Resource:
    inner, schema_url = orjson.loads(encoded)
    return Resource(decode_attributes(inner), schema_url)


# One object for all spans of a process: exporters cache by its identity.
_cached_resource: Final = lru_cache(_MAX_CACHED)(_make_resource)


def _decode_scope(message: dict[str, Any]) -> InstrumentationScope | None:
    """Return the scope of a `ScopeSpans`."""
    inner, schema_url = message.get("scope"), text_or_none(message.get("schemaUrl"))
    if inner is None:
        return None
    encoded = orjson.dumps((inner, schema_url))
    return _make_scope(encoded) if len(encoded) > _MAX_CACHED_BYTES else _cached_scope(encoded)


def _make_scope(encoded: bytes) -> InstrumentationScope:
    inner, schema_url = orjson.loads(encoded)
    name, version = text_of(inner.get("name")), text_or_none(inner.get("version"))
    return InstrumentationScope(name, version, schema_url, decode_attributes(inner) or None)


_cached_scope: Final = lru_cache(_MAX_CACHED)(_make_scope)


def _decode_span(message: dict[str, Any], resource: Resource, scope: InstrumentationScope | None) -> CountedSpan:
    """Return the span of a `Span`, or raise one of `_MALFORMED`."""
    get = message.get
    trace_id, flags, trace_state = message["traceId"], get("flags"), get("traceState")
    flags = 1 if flags is None else flags
    parent_id = get("parentSpanId")
    if parent_id == _NO_PARENT:
        parent_id = None
    status, events, links = get("status"), items_of(message, "events"), items_of(message, "links")
    start_time, end_time = get("startTimeUnixNano"), get("endTimeUnixNano")
    span = CountedSpan(
        name=text_of(get("name")),
        context=_decode_context(trace_id, message["spanId"], flags & 0xFF, trace_state),
        parent=_decode_parent(trace_id, parent_id, flags & (0xFF | IS_REMOTE), trace_state) if parent_id else None,
        resource=resource,
        attributes=decode_attributes(message),
        events=[_decode_event(event) for event in events] if events else (),
        links=[_decode_link(link) for link in links] if links else (),
        kind=_kinds.get(number_of(get("kind"), _KIND_NAMES), SpanKind.INTERNAL),
        status=_decode_status(status) if status else _UNSET,
        start_time=time_of(start_time) if start_time is not None else None,
        end_time=time_of(end_time) if end_time is not None else None,
        instrumentation_scope=scope,
    )
    span.dropped = (
        count_of(get("droppedAttributesCount")),
        count_of(get("droppedEventsCount")),
        count_of(get("droppedLinksCount")),
    )
    return span


def _decode_context(trace_id: str, span_id: str, flags: int, trace_state: str | None) -> SpanContext:
    return SpanContext(
        id_of(trace_id, 128),
        id_of(span_id, 64),
        bool(flags & IS_REMOTE),
        _trace_flags[flags & 0xFF],
        TraceState.from_header([trace_state]) if trace_state else None,
    )


# Most spans of a trajectory have the same parent.
_decode_parent: Final = lru_cache(_MAX_CACHED)(_decode_context)


def _decode_status(message: dict[str, Any]) -> Status:
    code = _status_codes.get(number_of(message.get("code"), _STATUS_NAMES), StatusCode.UNSET)
    return Status(code, text_or_none(message.get("message")) if code is StatusCode.ERROR else None)


def _decode_event(message: dict[str, Any]) -> Event:
    time = time_of(message.get("timeUnixNano") or 0)
    event = _RecordedEvent(text_of(message.get("name")), decode_attributes(message), time)
    if dropped := message.get("droppedAttributesCount"):
        event.dropped_attributes = count_of(dropped)
    return event


def _decode_link(message: dict[str, Any]) -> Link:
    flags, trace_state = message.get("flags") or 0, message.get("traceState")
    context = _decode_context(message["traceId"], message["spanId"], flags, trace_state)
    link = _RecordedLink(context, decode_attributes(message))
    if dropped := message.get("droppedAttributesCount"):
        link.dropped_attributes = count_of(dropped)
    return link
