"""Spans as one line of OTLP JSON; nothing is lost on the way there and back.

A line is an `ExportTraceServiceRequest` in JSON: ids in hexadecimal, 64-bit integers as strings, enums as numbers.
Spans keep their order: another group begins with each change of the resource or the scope. A tab stands before each
span and behind the last one of a group, so that one span is found without parsing the others; JSON allows tabs between
its tokens, and never within strings.

Source: https://opentelemetry.io/docs/specs/otlp/#json-protobuf-encoding and
https://opentelemetry.io/docs/specs/otel/protocol/file-exporter/.
"""

from __future__ import annotations

import base64
import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, TypeVar

import orjson
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.util.instrumentation import InstrumentationScope
from opentelemetry.trace import SpanContext, StatusCode

from otel_rollout.trace_folder.otlp_json_reading import IS_REMOTE, START, decode_line
from otel_rollout.values.sanitize import INT64_MAX, INT64_MIN, replace_surrogates

__all__ = ["clean", "decode_line", "encode_line", "is_line", "join_lines"]

_HAS_IS_REMOTE: Final = 0x100
_END: Final = b"]}"
_FIRST_SPAN: Final = "\t"
_NEXT_SPAN: Final = ",\t"
_LAST_SPAN: Final = b"\t]}]}"
_NEXT_RESOURCE: Final = b"\t]}]},"
_NEXT_SCOPE: Final = b"\t]},"
_STATUS_UNSET: Final = b',"status":{}}'

_SHORT_TEXT: Final = 64
_MAX_CACHED: Final = 8192
_MAX_CACHED_ORIGINS: Final = 256
_Key = TypeVar("_Key")
_Value = TypeVar("_Value")

# Most names and attributes (tags, kinds, MIME types) are the same on thousands of spans, and their resource and scope
# always are. Attributes stand here with the comma before them.
_encoded_names: dict[str, str] = {}
_encoded_pairs: dict[tuple[str, type, str | bool], bytes] = {}
_encoded_keys: dict[str, bytes] = {}
_encoded_int_keys: dict[str, bytes] = {}
_encoded_resources: dict[int, tuple[Resource, bytes]] = {}
_encoded_scopes: dict[int, tuple[InstrumentationScope, bytes]] = {}


def encode_line(spans: Sequence[ReadableSpan], *, with_end: bool = False) -> bytes:
    """Return spans as one line of OTLP JSON.

    Lone surrogates become question marks, and integers beyond 64 bits strings.

    Args:
        spans: Finished spans, the SDK's or ours, in order.
        with_end: Add the line end.

    Raises:
        TypeError: A span can't be encoded.
        OverflowError: A trace id has more than 128 bits, or a span id more than 64.
    """
    pieces: list[bytes] = [START]
    last_resource: Any = None
    last_scope: Any = None
    before = ""
    for span in spans:
        context = span.context
        if context is None:
            continue
        resource, scope = span.resource, span.instrumentation_scope
        if not before:
            pieces += (_encode_resource(resource), _encode_scope(scope))
            before = _FIRST_SPAN
        elif resource is not last_resource:
            pieces += (_NEXT_RESOURCE, _encode_resource(resource), _encode_scope(scope))
            before = _FIRST_SPAN
        elif scope is not last_scope:
            pieces += (_NEXT_SCOPE, _encode_scope(scope))
            before = _FIRST_SPAN
        _encode_span(pieces, span, context, before)
        last_resource, last_scope, before = resource, scope, _NEXT_SPAN
    if before:
        pieces.append(_LAST_SPAN)
    pieces.append(_END)
    if with_end:
        pieces.append(b"\n")
    return b"".join(pieces)


def join_lines(lines: Sequence[bytes]) -> list[bytes | memoryview]:
    """Return one line with the spans of all `lines`, in pieces, so that nothing is copied or parsed.

    Args:
        lines: Lines of `encode_line`, with or without their line ends.

    Raises:
        ValueError: One is no such line.
    """
    pieces: list[bytes | memoryview] = [START]
    for line in lines:
        end = _end_of(line)
        if end < 0:
            raise ValueError(f"not a line of OTLP JSON: {line[:40]!r}")
        if end > len(START) + len(_END):
            if len(pieces) > 1:
                pieces.append(b",")
            pieces.append(memoryview(line)[len(START) : end - len(_END)])
    pieces.append(_END)
    return pieces


def is_line(line: bytes) -> bool:
    """Return True if a line begins and ends as those of `encode_line` do."""
    return _end_of(line) >= 0


def _end_of(line: bytes) -> int:
    """Return the length of a line without its line end; -1 if it is no line of ours."""
    end = len(line) - 1 if line.endswith(b"\n") else len(line)
    return end if line.startswith(START) and line.endswith(_END, 0, end) else -1


def _encode_resource(resource: Resource) -> bytes:
    """Return a `ResourceSpans` up to its first scope."""
    known = _encoded_resources.get(id(resource))
    if known is not None and known[0] is resource:
        return known[1]
    message: dict[str, Any] = {"resource": {}}
    if resource.attributes:
        message["resource"]["attributes"] = _encode_attributes(resource.attributes)
    if resource.schema_url:
        message["schemaUrl"] = resource.schema_url
    encoded = _dumps(message)[:-1] + b',"scopeSpans":['
    # With the resource itself: its id is unique only while it lives.
    _remember(_encoded_resources, id(resource), (resource, encoded), _MAX_CACHED_ORIGINS)
    return encoded


def _encode_scope(scope: InstrumentationScope | None) -> bytes:
    """Return a `ScopeSpans` up to its first span."""
    if scope is None:
        return b'{"spans":['
    known = _encoded_scopes.get(id(scope))
    if known is not None and known[0] is scope:
        return known[1]
    message: dict[str, Any] = {"scope": {"name": scope.name}}
    if scope.version is not None:
        message["scope"]["version"] = scope.version
    if scope.attributes:
        message["scope"]["attributes"] = _encode_attributes(scope.attributes)
    if scope.schema_url:
        message["schemaUrl"] = scope.schema_url
    encoded = _dumps(message)[:-1] + b',"spans":['
    _remember(_encoded_scopes, id(scope), (scope, encoded), _MAX_CACHED_ORIGINS)
    return encoded


def _encode_span(pieces: list[bytes], span: ReadableSpan, context: SpanContext, before: str) -> None:
    """Append a span to the pieces of a line, behind `before`; building a dict for each span would take longer."""
    start, end = span.start_time, span.end_time
    # OTLP numbers the kinds from 1, the API from 0.
    pieces.append(_head(context, span.parent, span.name, span.kind.value + 1, start, end, before))
    if attributes := span.attributes:
        pieces.append(b',"attributes":[')
        first = len(pieces)
        _add_attributes(pieces, attributes.items())
        pieces[first] = pieces[first][1:]
        pieces.append(b"]")
    if (
        span.events
        or span.links
        or span.status.status_code is not StatusCode.UNSET
        or context.trace_state
        or start is None
        or end is None
        or span.dropped_attributes
        # Also if none were kept: the limit is 0, or the span was shrunk.
        or span.dropped_events
        or span.dropped_links
    ):
        pieces += (b",", _dumps(_rest(span, context))[1:])
    else:
        pieces.append(_STATUS_UNSET)


def _head(
    context: SpanContext,
    parent: SpanContext | None,
    name: str,
    kind: int,
    start_time: int | None,
    end_time: int | None,
    before: str,
) -> bytes:
    """Return a span up to its attributes."""
    # Unpacked as tuples: each property of a context is a Python call.
    trace_id, span_id, _, trace_flags, _, _ = context
    flags, above, times = _HAS_IS_REMOTE | (int(trace_flags) & 0xFF), "", ""
    if parent is not None:
        _, parent_id, is_remote, *_ = parent
        if is_remote:
            flags |= IS_REMOTE
        above = f',"parentSpanId":"{parent_id.to_bytes(8, "big").hex()}"'
    if start_time is not None and end_time is not None:
        times = f',"startTimeUnixNano":"{start_time}","endTimeUnixNano":"{end_time}"'
    return (
        f'{before}{{"traceId":"{trace_id.to_bytes(16, "big").hex()}"'
        f',"spanId":"{span_id.to_bytes(8, "big").hex()}"{above},"flags":{flags}'
        f',"name":{_encoded_names.get(name) or _encode_name(name)},"kind":{kind}{times}'
    ).encode()


def _encode_name(name: str) -> str:
    encoded = _dumps(name).decode()
    return _remember(_encoded_names, name, encoded) if len(encoded) <= _SHORT_TEXT else encoded


def _rest(span: ReadableSpan, context: SpanContext) -> dict[str, Any]:
    """Return the fields that few spans have, and the status."""
    message: dict[str, Any] = {}
    if context.trace_state:
        message["traceState"] = context.trace_state.to_header()
    if span.start_time is None or span.end_time is None:
        times = {"startTimeUnixNano": span.start_time, "endTimeUnixNano": span.end_time}
        message |= {key: str(time) for key, time in times.items() if time is not None}
    if span.dropped_attributes:
        message["droppedAttributesCount"] = span.dropped_attributes
    if events := span.events:
        message["events"] = [_encode_event(event) for event in events]
    if span.dropped_events:
        message["droppedEventsCount"] = span.dropped_events
    if links := span.links:
        message["links"] = [_encode_link(link) for link in links]
    if span.dropped_links:
        message["droppedLinksCount"] = span.dropped_links
    status = span.status
    message["status"] = {} if status.status_code is StatusCode.UNSET else {"code": status.status_code.value}
    if status.description is not None and message["status"]:
        message["status"]["message"] = status.description
    return message


def _encode_event(event: Any) -> dict[str, Any]:
    return _with_attributes({"timeUnixNano": str(event.timestamp), "name": event.name}, event)


def _encode_link(link: Any) -> dict[str, Any]:
    context = link.context
    encoded: dict[str, Any] = {
        "traceId": f"{context.trace_id:032x}",
        "spanId": f"{context.span_id:016x}",
        "flags": _HAS_IS_REMOTE | (IS_REMOTE if context.is_remote else 0) | (context.trace_flags & 0xFF),
    }
    if context.trace_state:
        encoded["traceState"] = context.trace_state.to_header()
    return _with_attributes(encoded, link)


def _with_attributes(encoded: dict[str, Any], of: Any) -> dict[str, Any]:
    if of.attributes:
        encoded["attributes"] = _encode_attributes(of.attributes)
    if dropped := getattr(of, "dropped_attributes", 0):
        encoded["droppedAttributesCount"] = dropped
    return encoded


def _add_attributes(pieces: list[bytes], attributes: Iterable[tuple[str, Any]]) -> None:
    """Append attributes to the pieces of a list, each behind a comma."""
    value: Any
    for key, value in attributes:
        kind = type(value)
        if kind is str:
            if len(value) > _SHORT_TEXT:
                pieces += (_encoded_keys.get(key) or _encode_key(key), _dumps(value), b"}}")
                continue
        elif kind is int and INT64_MIN <= value <= INT64_MAX:
            # Token counts differ from span to span: caching them costs more than encoding them.
            pieces.append(b'%b%d"}}' % (_encoded_int_keys.get(key) or _encode_int_key(key), value))
            continue
        elif kind is not bool:
            pieces += (b",", _dumps({"key": key, "value": _encode_value(value)}))
            continue
        pieces.append(_encoded_pairs.get((key, kind, value)) or _encode_pair(key, value))


def _encode_attributes(attributes: Mapping[str, Any]) -> list[Any]:
    """Return attributes as a list of `KeyValue`s."""
    return [{"key": key, "value": _encode_value(value)} for key, value in attributes.items()]


def _encode_value(value: Any) -> dict[str, Any]:
    """Return an `AnyValue`, an empty one for None."""
    if isinstance(value, str):
        return {"stringValue": value}
    if isinstance(value, bool):
        return {"boolValue": value}
    if isinstance(value, int):
        return {"intValue" if INT64_MIN <= value <= INT64_MAX else "stringValue": str(int(value))}
    if isinstance(value, float):
        if math.isfinite(value):
            # orjson rejects float subclasses such as numpy.float64.
            return {"doubleValue": float(value)}
        return {"doubleValue": "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"}
    if isinstance(value, (bytes, bytearray)):
        return {"bytesValue": base64.b64encode(value).decode()}
    if isinstance(value, Mapping):
        pairs = [{"key": str(key), "value": _encode_value(item)} for key, item in value.items()]
        return {"kvlistValue": {"values": pairs}}
    if isinstance(value, Sequence):
        return {"arrayValue": {"values": [_encode_value(item) for item in value]}}
    return {} if value is None else {"stringValue": str(value)}


def _dumps(message: Any) -> bytes:
    """Return a message as JSON, without lone surrogates."""
    try:
        return orjson.dumps(message)
    except orjson.JSONEncodeError:
        return orjson.dumps(clean(message))


def clean(message: Any) -> Any:
    """Replace lone surrogates, which reach us through file names and model output, by question marks."""
    if isinstance(message, str):
        return replace_surrogates(message)
    if isinstance(message, dict):
        return {key: clean(item) for key, item in message.items()}
    return [clean(item) for item in message] if isinstance(message, list) else message


def _encode_key(key: str) -> bytes:
    """Return a string attribute up to its value, behind a comma."""
    return _remember(_encoded_keys, key, b',{"key":%b,"value":{"stringValue":' % _dumps(key))


def _encode_int_key(key: str) -> bytes:
    """Return an integer attribute up to its digits, behind a comma."""
    return _remember(_encoded_int_keys, key, b',{"key":%b,"value":{"intValue":"' % _dumps(key))


def _encode_pair(key: str, value: str | bool) -> bytes:
    encoded = b"," + _dumps({"key": key, "value": _encode_value(value)})
    return _remember(_encoded_pairs, (key, type(value), value), encoded)


def _remember(known: dict[_Key, _Value], key: _Key, encoded: _Value, most: int = _MAX_CACHED) -> _Value:
    if len(known) >= most:
        known.clear()
    known[key] = encoded
    return encoded
