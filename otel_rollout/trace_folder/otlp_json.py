"""Spans as one line of OTLP JSON, and back, with nothing lost on the way.

A line is an `ExportTraceServiceRequest` in JSON: ids in hexadecimal, 64-bit integers as text, enums as numbers. Spans
stand in the order in which they are given: where the resource or the scope changes, another group begins.

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
from opentelemetry.trace import SpanContext, StatusCode

from otel_rollout.trace_folder.otlp_json_reading import decode_line

__all__ = ["decode_line", "encode_line", "is_line", "join_lines", "joined_pieces"]

HAS_IS_REMOTE: Final = 0x100
IS_REMOTE: Final = 0x200
_INT64_MIN, _INT64_MAX = -(2**63), 2**63 - 1
_START, _END = b'{"resourceSpans":[', b"]}"
_SHORT_TEXT: Final = 64
_MAX_CACHED: Final = 8192
_MAX_CACHED_ORIGINS: Final = 256

# Most attributes (tags, kinds, MIME types) are the same on thousands of spans, and their resource and scope always are.
_encoded_pairs: dict[tuple[str, type, str | int], orjson.Fragment] = {}
_encoded_resources: dict[int, tuple[Resource, dict[str, Any]]] = {}
_encoded_scopes: dict[int, tuple[InstrumentationScope, dict[str, Any]]] = {}


def encode_line(spans: Sequence[ReadableSpan], *, with_end: bool = False) -> bytes:
    """Return spans as one line of OTLP JSON.

    What JSON can't say is made sayable: a lone surrogate becomes a question mark, an integer beyond 64 bits a text.

    Args:
        spans: Finished spans, of the SDK or of ours, in the order in which they are to stand.
        with_end: Whether the line end is part of it.
    """
    groups: list[dict[str, Any]] = []
    last_resource: Any = None
    last_scope: Any = None
    encoded: list[dict[str, Any]] = []
    for span in spans:
        context = span.context
        if context is None:
            continue
        resource, scope = span.resource, span.instrumentation_scope
        if not groups or resource is not last_resource or scope is not last_scope:
            encoded = []
            scope_spans = {**_encode_scope(scope), "spans": encoded}
            if groups and resource is last_resource:
                groups[-1]["scopeSpans"].append(scope_spans)
            else:
                groups.append({**_encode_resource(resource), "scopeSpans": [scope_spans]})
            last_resource, last_scope = resource, scope
        encoded.append(_encode_span(span, context))
    return _dumps({"resourceSpans": groups}, orjson.OPT_APPEND_NEWLINE if with_end else 0)


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
    pieces: list[bytes | memoryview] = [_START]
    for line in lines:
        end = _end_of(line)
        if end < 0:
            raise ValueError(f"no line of OTLP JSON: {line[:40]!r}")
        if end > len(_START) + len(_END):
            if len(pieces) > 1:
                pieces.append(b",")
            pieces.append(memoryview(line)[len(_START) : end - len(_END)])
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
    return end if line.startswith(_START) and line.endswith(_END, 0, end) else -1


def _encode_resource(resource: Resource) -> dict[str, Any]:
    """Return a `ResourceSpans` that has everything but spans."""
    known = _encoded_resources.get(id(resource))
    if known is not None and known[0] is resource:
        return known[1]
    message: dict[str, Any] = {"attributes": _encode_attributes(resource.attributes)} if resource.attributes else {}
    encoded: dict[str, Any] = {"resource": orjson.Fragment(_dumps(message))}
    if resource.schema_url:
        encoded["schemaUrl"] = resource.schema_url
    if len(_encoded_resources) >= _MAX_CACHED_ORIGINS:
        _encoded_resources.clear()
    # With the resource itself, for an id is only one's own as long as one lives.
    _encoded_resources[id(resource)] = (resource, encoded)
    return encoded


def _encode_scope(scope: InstrumentationScope | None) -> dict[str, Any]:
    """Return a `ScopeSpans` that has everything but spans."""
    if scope is None:
        return {}
    known = _encoded_scopes.get(id(scope))
    if known is not None and known[0] is scope:
        return known[1]
    message: dict[str, Any] = {"name": scope.name}
    if scope.version is not None:
        message["version"] = scope.version
    if scope.attributes:
        message["attributes"] = _encode_attributes(scope.attributes)
    encoded: dict[str, Any] = {"scope": orjson.Fragment(_dumps(message))}
    if scope.schema_url:
        encoded["schemaUrl"] = scope.schema_url
    if len(_encoded_scopes) >= _MAX_CACHED_ORIGINS:
        _encoded_scopes.clear()
    _encoded_scopes[id(scope)] = (scope, encoded)
    return encoded


def _encode_span(span: ReadableSpan, context: SpanContext) -> dict[str, Any]:
    parent, status = span.parent, span.status
    flags = HAS_IS_REMOTE | (context.trace_flags & 0xFF)
    encoded: dict[str, Any] = {"traceId": f"{context.trace_id:032x}", "spanId": f"{context.span_id:016x}"}
    if parent is not None:
        if parent.is_remote:
            flags |= IS_REMOTE
        encoded["parentSpanId"] = f"{parent.span_id:016x}"
    encoded["flags"] = flags
    if context.trace_state:
        encoded["traceState"] = context.trace_state.to_header()
    encoded["name"] = span.name
    # OTLP numbers the kinds from 1, the API from 0.
    encoded["kind"] = span.kind.value + 1
    if span.start_time is not None:
        encoded["startTimeUnixNano"] = str(span.start_time)
    if span.end_time is not None:
        encoded["endTimeUnixNano"] = str(span.end_time)
    if attributes := span.attributes:
        encoded["attributes"] = _encode_attributes(attributes)
    if span.dropped_attributes:
        encoded["droppedAttributesCount"] = span.dropped_attributes
    if events := span.events:
        encoded["events"] = [_encode_event(event) for event in events]
    if span.dropped_events:
        encoded["droppedEventsCount"] = span.dropped_events
    if links := span.links:
        encoded["links"] = [_encode_link(link) for link in links]
    if span.dropped_links:
        encoded["droppedLinksCount"] = span.dropped_links
    code = status.status_code
    if code is not StatusCode.UNSET:
        encoded["status"] = {"code": code.value}
        if status.description is not None:
            encoded["status"]["message"] = status.description
    else:
        encoded["status"] = {}
    return encoded


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
    pairs: list[Any] = []
    value: Any
    for key, value in attributes.items():
        kind = type(value)
        if kind is str:
            if len(value) > _SHORT_TEXT:
                pairs.append({"key": key, "value": {"stringValue": value}})
                continue
        elif kind is not bool and kind is not int:
            pairs.append({"key": key, "value": _encode_value(value)})
            continue
        pair = _encoded_pairs.get((key, kind, value))
        if pair is None:
            pair = orjson.Fragment(_dumps({"key": key, "value": _encode_value(value)}))
            if len(_encoded_pairs) >= _MAX_CACHED:
                _encoded_pairs.clear()
            _encoded_pairs[key, kind, value] = pair
        pairs.append(pair)
    return pairs


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


def _dumps(message: Any, option: int = 0) -> bytes:
    try:
        return orjson.dumps(message, option=option)
    except orjson.JSONEncodeError:
        return orjson.dumps(_cleaned(message), option=option)


def _cleaned(message: Any) -> Any:
    """Return a message without lone surrogates, which reach us through file names and model output."""
    if isinstance(message, str):
        return message.encode("utf-8", "replace").decode()
    if isinstance(message, dict):
        return {key: _cleaned(item) for key, item in message.items()}
    return [_cleaned(item) for item in message] if isinstance(message, list) else message
