"""Spans as one line of OTLP JSON, and back, with nothing lost on the way.

A line is an `ExportTraceServiceRequest` in JSON: ids in hexadecimal, 64-bit integers as text, enums as numbers. Spans
stand in the order in which they are given: where the resource or the scope changes, another group begins. A tab, which
JSON lets stand between its signs and never within a text, is before each span and behind the last one of a group: who
wants one span need not parse the others.

Source: https://opentelemetry.io/docs/specs/otlp/#json-protobuf-encoding and
https://opentelemetry.io/docs/specs/otel/protocol/file-exporter/.
"""

from __future__ import annotations

import base64
import math
from collections.abc import Mapping, Sequence
from typing import Any, Final

import orjson
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.util.instrumentation import InstrumentationScope
from opentelemetry.trace import SpanContext, SpanKind, StatusCode

from otel_rollout.trace_folder.otlp_json_reading import decode_line

__all__ = ["decode_line", "encode_line", "is_line", "join_lines", "joined_pieces"]

HAS_IS_REMOTE: Final = 0x100
IS_REMOTE: Final = 0x200
_INT64_MIN, _INT64_MAX = -(2**63), 2**63 - 1
START: Final = b'{"resourceSpans":['
_END: Final = b"]}"
_FIRST_SPAN: Final = "\t"
_NEXT_SPAN: Final = ",\t"
_LAST_SPAN: Final = b"\t]}]}"
_NEXT_RESOURCE: Final = b"\t]}]},"
_NEXT_SCOPE: Final = b"\t]},"
_SHORT_TEXT: Final = 64
_MAX_CACHED: Final = 8192
_MAX_CACHED_ORIGINS: Final = 256

# Most names and attributes (tags, kinds, MIME types) are the same on thousands of spans, and their resource and scope
# always are. A pair stands here with the comma before it.
_encoded_pairs: dict[tuple[str, type, str | bool], bytes] = {}
_encoded_names: dict[str, str] = {}
_encoded_keys: dict[str, bytes] = {}
_encoded_int_keys: dict[str, bytes] = {}
_encoded_resources: dict[int, tuple[Resource, bytes]] = {}
_encoded_scopes: dict[int, tuple[InstrumentationScope, bytes]] = {}


def encode_line(spans: Sequence[ReadableSpan], *, with_end: bool = False) -> bytes:
    """Return spans as one line of OTLP JSON.

    What JSON can't say is made sayable: a lone surrogate becomes a question mark, an integer beyond 64 bits a text.

    Args:
        spans: Finished spans, of the SDK or of ours, in the order in which they are to stand.
        with_end: Whether the line end is part of it.

    Raises:
        TypeError: A span can't be said in JSON.
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


def join_lines(lines: Sequence[bytes]) -> bytes:
    """Return one line with the spans of all `lines`, in order; the lines are those of `encode_line`, and not parsed.

    Args:
        lines: Lines, with or without their line ends.

    Raises:
        ValueError: One is no such line.
    """
    return b"".join(joined_pieces(lines))


def joined_pieces(lines: Sequence[bytes]) -> list[bytes | memoryview]:
    """Return the pieces of `join_lines`, where a copy of them all in one is not needed.

    Args:
        lines: Lines, with or without their line ends.

    Raises:
        ValueError: One is no such line.
    """
    pieces: list[bytes | memoryview] = [START]
    for line in lines:
        end = _end_of(line)
        if end < 0:
            raise ValueError(f"no line of OTLP JSON: {line[:40]!r}")
        if end > len(START) + len(_END):
            if len(pieces) > 1:
                pieces.append(b",")
            pieces.append(memoryview(line)[len(START) : end - len(_END)])
    pieces.append(_END)
    return pieces


def is_line(line: bytes) -> bool:
    """Say whether bytes look like a line of `encode_line`, from their beginning to their end.

    Args:
        line: The bytes.
    """
    return _end_of(line) >= 0


def _end_of(line: bytes) -> int:
    """Return how long a line is without its end; -1 where it is none."""
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
    if len(_encoded_resources) >= _MAX_CACHED_ORIGINS:
        _encoded_resources.clear()
    # With the resource itself, for an id is only one's own as long as one lives.
    _encoded_resources[id(resource)] = (resource, encoded)
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
    if len(_encoded_scopes) >= _MAX_CACHED_ORIGINS:
        _encoded_scopes.clear()
    _encoded_scopes[id(scope)] = (scope, encoded)
    return encoded


def _encode_span(pieces: list[bytes], span: ReadableSpan, context: SpanContext, before: str) -> None:
    """Append a span to the pieces of a line, behind `before`.

    In pieces, because a tree of dicts for each span takes longer than all its payload.
    """
    parent, name, kind, start, end = span.parent, span.name, span.kind, span.start_time, span.end_time
    # As the tuples that contexts are: each of their properties is a call of Python.
    trace_id, span_id, _, trace_flags, trace_state, _ = context
    flags, above, times = HAS_IS_REMOTE | (int(trace_flags) & 0xFF), "", ""
    if parent is not None:
        _, parent_id, is_remote, *_ = parent
        if is_remote:
            flags |= IS_REMOTE
        above = f',"parentSpanId":"{parent_id.to_bytes(8, "big").hex()}"'
    if start is not None and end is not None:
        times = f',"startTimeUnixNano":"{start}","endTimeUnixNano":"{end}"'
    pieces.append(
        f'{before}{{"traceId":"{trace_id.to_bytes(16, "big").hex()}"'
        f',"spanId":"{span_id.to_bytes(8, "big").hex()}"{above},"flags":{flags}'
        f',"name":{_encoded_names.get(name) or _encode_name(name)}'
        # OTLP numbers the kinds from 1, the API from 0.
        f',"kind":{1 if kind is SpanKind.INTERNAL else kind.value + 1}{times}'.encode()
    )
    if attributes := span.attributes:
        pieces.append(b',"attributes":[')
        first = len(pieces)
        value: Any
        for key, value in attributes.items():
            value_kind = type(value)
            if value_kind is str:
                if len(value) > _SHORT_TEXT:
                    pieces += (_encoded_keys.get(key) or _encode_key(key), _dumps(value), b"}}")
                    continue
            elif value_kind is int and _INT64_MIN <= value <= _INT64_MAX:
                # Token counts are another number on each span: to remember them costs more than to write them.
                pieces.append(b'%b%d"}}' % (_encoded_int_keys.get(key) or _encode_int_key(key), value))
                continue
            elif value_kind is not bool:
                pieces += (b",", _dumps({"key": key, "value": _encode_value(value)}))
                continue
            pieces.append(_encoded_pairs.get((key, value_kind, value)) or _encode_pair(key, value))
        pieces[first] = pieces[first][1:]
        pieces.append(b"]")
    if (
        span.events
        or span.links
        or span.status.status_code is not StatusCode.UNSET
        or trace_state
        or not times
        or span.dropped_attributes
        # Without any kept: a limit of none, or a span that was made smaller.
        or span.dropped_events
        or span.dropped_links
    ):
        pieces += (b",", _dumps(_rest(span, context))[1:])
    else:
        pieces.append(b',"status":{}}')


def _encode_name(name: str) -> str:
    encoded = _dumps(name).decode()
    if len(_encoded_names) >= _MAX_CACHED:
        _encoded_names.clear()
    if len(encoded) <= _SHORT_TEXT:
        _encoded_names[name] = encoded
    return encoded


def _encode_key(key: str) -> bytes:
    """Return what stands before a text attribute's value."""
    encoded = b',{"key":%b,"value":{"stringValue":' % _dumps(key)
    if len(_encoded_keys) >= _MAX_CACHED:
        _encoded_keys.clear()
    _encoded_keys[key] = encoded
    return encoded


def _encode_int_key(key: str) -> bytes:
    """Return what stands before an integer attribute's digits."""
    encoded = b',{"key":%b,"value":{"intValue":"' % _dumps(key)
    if len(_encoded_int_keys) >= _MAX_CACHED:
        _encoded_int_keys.clear()
    _encoded_int_keys[key] = encoded
    return encoded


def _encode_pair(key: str, value: str | bool) -> bytes:
    encoded = b"," + _dumps({"key": key, "value": _encode_value(value)})
    if len(_encoded_pairs) >= _MAX_CACHED:
        _encoded_pairs.clear()
    _encoded_pairs[key, type(value), value] = encoded
    return encoded


def _rest(span: ReadableSpan, context: SpanContext) -> dict[str, Any]:
    """Return of a span's message what few spans have, and the status."""
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
    encoded: dict[str, Any] = {"timeUnixNano": str(event.timestamp), "name": event.name}
    if event.attributes:
        encoded["attributes"] = _encode_attributes(event.attributes)
    if dropped := getattr(event, "dropped_attributes", 0):
        encoded["droppedAttributesCount"] = dropped
    return encoded


def _encode_link(link: Any) -> dict[str, Any]:
    context = link.context
    encoded: dict[str, Any] = {
        "traceId": f"{context.trace_id:032x}",
        "spanId": f"{context.span_id:016x}",
        "flags": HAS_IS_REMOTE | (IS_REMOTE if context.is_remote else 0) | (context.trace_flags & 0xFF),
    }
    if context.trace_state:
        encoded["traceState"] = context.trace_state.to_header()
    if link.attributes:
        encoded["attributes"] = _encode_attributes(link.attributes)
    if dropped := getattr(link, "dropped_attributes", 0):
        encoded["droppedAttributesCount"] = dropped
    return encoded


def _encode_attributes(attributes: Mapping[str, Any]) -> list[Any]:
    return [{"key": key, "value": _encode_value(value)} for key, value in attributes.items()]


def _encode_value(value: Any) -> dict[str, Any]:
    """Return an `AnyValue`; the empty one stands for None."""
    if isinstance(value, str):
        return {"stringValue": value}
    if isinstance(value, bool):
        return {"boolValue": value}
    if isinstance(value, int):
        return {"intValue" if _INT64_MIN <= value <= _INT64_MAX else "stringValue": str(int(value))}
    if isinstance(value, float):
        if math.isfinite(value):
            # Of a subclass, numpy's say, orjson wants nothing.
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
    try:
        return orjson.dumps(message)
    except orjson.JSONEncodeError:
        return orjson.dumps(_cleaned(message))


def _cleaned(message: Any) -> Any:
    """Return a message without lone surrogates, which reach us through file names and model output."""
    if isinstance(message, str):
        return message.encode("utf-8", "replace").decode()
    if isinstance(message, dict):
        return {key: _cleaned(item) for key, item in message.items()}
    return [_cleaned(item) for item in message] if isinstance(message, list) else message
