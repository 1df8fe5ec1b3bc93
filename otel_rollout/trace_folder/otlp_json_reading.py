"""From a line of OTLP JSON back to spans."""

from __future__ import annotations

import base64
import re
from collections.abc import Sequence
from functools import lru_cache
from typing import Any, Final

import orjson
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import Event, ReadableSpan
from opentelemetry.sdk.util.instrumentation import InstrumentationScope
from opentelemetry.trace import Link, SpanContext, SpanKind, Status, StatusCode, TraceFlags, TraceState

from otel_rollout.counted_span import CountedSpan
from otel_rollout.sanitize import fits_int64

__all__ = ["MALFORMED", "decode_line", "decode_resource", "decode_scope", "decode_span", "parse_json"]

MALFORMED: Final = (ArithmeticError, AttributeError, LookupError, RecursionError, TypeError, ValueError)
"""What a message of another form ends in."""
LONG_BYTES: Final = 2**23
MAX_VALUES: Final = 2**22
"""More values than these are in no line of ours; as objects of Python they take a multiple of the line."""

_TEXT: Final = re.compile(rb'"[^"\\]*(?:\\.[^"\\]*)*"', re.DOTALL)
_IS_REMOTE: Final = 0x200
_MAX_CACHED: Final = 256
_UNSET: Final = Status(StatusCode.UNSET)
_trace_flags: Final = [TraceFlags(flags) for flags in range(0x100)]
_kinds: Final = {kind.value + 1: kind for kind in SpanKind}
_resources: dict[bytes, Resource] = {}
_scopes: dict[bytes, InstrumentationScope] = {}


class _RecordedEvent(Event):
    _dropped = 0

    @property
    def dropped_attributes(self) -> int:
        return self._dropped


class _RecordedLink(Link):
    _dropped = 0

    @property
    def dropped_attributes(self) -> int:
        return self._dropped


def decode_line(line: bytes) -> list[ReadableSpan]:
    """Return the spans of a line of OTLP JSON, in order.

    Args:
        line: An `ExportTraceServiceRequest` in JSON, written by `encode_line` or by any OTLP file exporter.

    Raises:
        ValueError: This is no such line.
    """
    try:
        spans: list[ReadableSpan] = []
        for resource_spans in parse_json(line).get("resourceSpans", ()):
            resource = decode_resource(resource_spans)
            for scope_spans in resource_spans.get("scopeSpans", ()):
                scope = decode_scope(scope_spans)
                spans += [decode_span(span, resource, scope) for span in scope_spans.get("spans", ())]
    except MALFORMED as error:
        raise ValueError(f"no line of OTLP JSON ({type(error).__name__}: {error}): {line[:40]!r}") from error
    return spans


def parse_json(text: bytes) -> Any:
    """Return what JSON says.

    Args:
        text: The JSON.

    Raises:
        ValueError: It is no JSON, or has more values than there is memory for.
    """
    if len(text) > LONG_BYTES and _count_values(text) > MAX_VALUES and _count_values(_TEXT.sub(b"", text)) > MAX_VALUES:
        raise ValueError(f"more than {MAX_VALUES:,} values")
    return orjson.loads(text)


def _count_values(text: bytes) -> int:
    """Return how many values there are at most: commas and brackets within texts count too."""
    return text.count(b",") + text.count(b"[") + text.count(b"{")


def decode_resource(message: dict[str, Any]) -> Resource:
    """Return the resource of a `ResourceSpans`."""
    # One object for all spans of a process: exporters know it by its identity.
    inner, schema_url = message.get("resource", {}), _text_or_none(message.get("schemaUrl"))
    key = orjson.dumps((inner, schema_url))
    resource = _resources.get(key)
    if resource is None:
        if len(_resources) >= _MAX_CACHED:
            _resources.clear()
        resource = _resources[key] = Resource(_decode_attributes(inner.get("attributes", ())), schema_url)
    return resource


def decode_scope(message: dict[str, Any]) -> InstrumentationScope | None:
    """Return the scope of a `ScopeSpans`."""
    inner, schema_url = message.get("scope"), _text_or_none(message.get("schemaUrl"))
    if inner is None:
        return None
    key = orjson.dumps((inner, schema_url))
    scope = _scopes.get(key)
    if scope is None:
        if len(_scopes) >= _MAX_CACHED:
            _scopes.clear()
        scope = _scopes[key] = InstrumentationScope(
            _text(inner.get("name", "")),
            _text_or_none(inner.get("version")),
            schema_url,
            _decode_attributes(inner.get("attributes", ())) or None,
        )
    return scope


def decode_span(message: dict[str, Any], resource: Resource, scope: InstrumentationScope | None) -> CountedSpan:
    """Return the span of a `Span`.

    Args:
        message: The span.
        resource: Its resource.
        scope: Its scope.

    Raises:
        ArithmeticError, AttributeError, LookupError, RecursionError, TypeError, ValueError: It is no such message.
    """
    get = message.get
    trace_id, flags, trace_state = message["traceId"], get("flags", 1), get("traceState")
    parent_id = get("parentSpanId")
    status, events, links = get("status"), get("events"), get("links")
    start_time, end_time = get("startTimeUnixNano"), get("endTimeUnixNano")
    span = CountedSpan(
        name=_text(get("name", "")),
        context=_decode_context(trace_id, message["spanId"], flags & 0xFF, trace_state),
        parent=_decode_parent(trace_id, parent_id, flags & (0xFF | _IS_REMOTE), trace_state) if parent_id else None,
        resource=resource,
        attributes=_decode_attributes(get("attributes", ())),
        events=[_decode_event(event) for event in events] if events else (),
        links=[_decode_link(link) for link in links] if links else (),
        kind=_kinds.get(get("kind", 0), SpanKind.INTERNAL),
        status=_decode_status(status) if status else _UNSET,
        start_time=_time(start_time) if start_time is not None else None,
        end_time=_time(end_time) if end_time is not None else None,
        instrumentation_scope=scope,
    )
    span.dropped = (
        _count(get("droppedAttributesCount", 0)),
        _count(get("droppedEventsCount", 0)),
        _count(get("droppedLinksCount", 0)),
    )
    return span


def _decode_context(trace_id: str, span_id: str, flags: int, trace_state: str | None) -> SpanContext:
    return SpanContext(
        _id(trace_id, 128),
        _id(span_id, 64),
        bool(flags & _IS_REMOTE),
        _trace_flags[flags & 0xFF],
        TraceState.from_header([trace_state]) if trace_state else None,
    )


# Most spans of a trajectory have the same parent.
_decode_parent: Final = lru_cache(_MAX_CACHED)(_decode_context)


def _decode_status(message: dict[str, Any]) -> Status:
    code = StatusCode(message.get("code", 0))
    return Status(code, _text_or_none(message.get("message")) if code is StatusCode.ERROR else None)


def _decode_event(message: dict[str, Any]) -> Event:
    time = _time(message.get("timeUnixNano", 0))
    event = _RecordedEvent(_text(message.get("name", "")), _decode_attributes(message.get("attributes", ())), time)
    if dropped := message.get("droppedAttributesCount"):
        event._dropped = _count(dropped)  # noqa: SLF001 - our own class
    return event


def _decode_link(message: dict[str, Any]) -> Link:
    flags, trace_state = message.get("flags", 0), message.get("traceState")
    context = _decode_context(message["traceId"], message["spanId"], flags, trace_state)
    link = _RecordedLink(context, _decode_attributes(message.get("attributes", ())))
    if dropped := message.get("droppedAttributesCount"):
        link._dropped = _count(dropped)  # noqa: SLF001 - our own class
    return link


def _decode_attributes(pairs: Sequence[dict[str, Any]]) -> dict[str, Any]:
    attributes: dict[str, Any] = {}
    for pair in pairs:
        key, value = pair["key"], pair.get("value") or {}
        # What there is most of, first.
        text = value.get("stringValue")
        attributes[key if type(key) is str else _text(key)] = text if type(text) is str else _decode_value(value)
    return attributes


def _decode_value(message: dict[str, Any]) -> Any:
    for kind, value in message.items():
        if kind == "stringValue":
            return _text(value)
        if kind == "boolValue":
            return _truth(value)
        if kind == "intValue":
            return int(value)
        if kind == "doubleValue":
            return float(value)
        if kind == "bytesValue":
            return base64.b64decode(value)
        if kind == "arrayValue":
            return tuple(_decode_value(item) for item in value.get("values", ()))
        if kind == "kvlistValue":
            return {_text(pair["key"]): _decode_value(pair.get("value", {})) for pair in value.get("values", ())}
    return None


def _text(value: Any) -> str:
    if type(value) is not str:
        raise TypeError(f"{type(value).__name__} in place of a text")
    return value


def _text_or_none(value: Any) -> str | None:
    return None if value is None else _text(value)


def _truth(value: Any) -> bool:
    if type(value) is not bool:
        raise TypeError(f"{type(value).__name__} in place of a truth value")
    return value


def _count(value: Any) -> int:
    if type(value) is not int or not 0 <= value < 2**32:
        raise ValueError("no count of 32 bits")
    return value


def _time(value: Any) -> int:
    time = int(value)
    if not fits_int64(time):
        raise ValueError("a time beyond 64 bits")
    return time


def _id(text: str, bits: int) -> int:
    number = int(text, 16)
    if not 0 <= number < 1 << bits:
        raise ValueError(f"an id of other than {bits} bits")
    return number
