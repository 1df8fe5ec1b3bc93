"""Spans as one line of OTLP JSON; nothing is lost on the way there and back.

A line is an `ExportTraceServiceRequest` in JSON: ids in hexadecimal, 64-bit integers as strings, enums as numbers.
Spans keep their order: another group begins with each change of the resource or the scope. A tab stands before each
span and behind the last one of a group, so that one span is found without parsing the others; JSON allows tabs between
its tokens, and never within strings.

Source: https://opentelemetry.io/docs/specs/otlp/#json-protobuf-encoding and
https://opentelemetry.io/docs/specs/otel/protocol/file-exporter/.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final, NamedTuple

from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.util.instrumentation import InstrumentationScope
from opentelemetry.trace import SpanContext, StatusCode

from otel_rollout.otlp.json_reading import IS_REMOTE, START, decode_line
from otel_rollout.otlp.json_values import (
    add_attributes,
    clean,
    dumps,
    encode_attributes,
    remember_origin,
    span_head,
)

__all__ = [
    "EncodedSpan",
    "clean",
    "decode_line",
    "encode_line",
    "encode_resource",
    "encode_scope",
    "encode_spans",
    "is_line",
    "join_lines",
    "join_spans",
]

_HAS_IS_REMOTE: Final = 0x100
_END: Final = b"]}"
_FIRST_SPAN: Final = "\t"
_NEXT_SPAN: Final = ",\t"
_LAST_SPAN: Final = b"\t]}]}"
_NEXT_RESOURCE: Final = b"\t]}]},"
_NEXT_SCOPE: Final = b"\t]},"
_STATUS_UNSET: Final = b',"status":{}}'

# The resource and the scope of a process's spans are always the same.
_encoded_resources: dict[int, tuple[Resource, bytes]] = {}
_encoded_scopes: dict[int, tuple[InstrumentationScope, bytes]] = {}


class EncodedSpan(NamedTuple):
    """A span as JSON, with what stands before it in a line.

    Args:
        trace_id: 16 bytes.
        span_id: 8 bytes.
        is_root: True if it has no parent.
        resource: A `ResourceSpans` up to its first scope.
        scope: A `ScopeSpans` up to its first span.
        json: The span.
        readable: The span for summaries.
    """

    trace_id: bytes
    span_id: bytes
    is_root: bool
    resource: bytes
    scope: bytes
    json: bytes
    readable: ReadableSpan


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
            pieces += (encode_resource(resource), encode_scope(scope))
            before = _FIRST_SPAN
        elif resource is not last_resource:
            pieces += (_NEXT_RESOURCE, encode_resource(resource), encode_scope(scope))
            before = _FIRST_SPAN
        elif scope is not last_scope:
            pieces += (_NEXT_SCOPE, encode_scope(scope))
            before = _FIRST_SPAN
        _encode_span(pieces, span, context, before)
        last_resource, last_scope, before = resource, scope, _NEXT_SPAN
    if before:
        pieces.append(_LAST_SPAN)
    pieces.append(_END)
    if with_end:
        pieces.append(b"\n")
    return b"".join(pieces)


def encode_spans(spans: Iterable[ReadableSpan]) -> Iterator[EncodedSpan]:
    """Yield spans each by itself, as JSON.

    Raises:
        TypeError: A span can't be encoded.
        OverflowError: A trace id has more than 128 bits, or a span id more than 64.
    """
    for span in spans:
        context = span.context
        if context is not None:
            pieces: list[bytes] = []
            _encode_span(pieces, span, context, "")
            yield EncodedSpan(
                context.trace_id.to_bytes(16, "big"),
                context.span_id.to_bytes(8, "big"),
                span.parent is None,
                encode_resource(span.resource),
                encode_scope(span.instrumentation_scope),
                b"".join(pieces),
                span,
            )


def join_spans(spans: Iterable[EncodedSpan]) -> bytes:
    """Return spans as one line, with its line end; the same as `encode_line` makes of them."""
    pieces: list[bytes] = [START]
    last_resource, last_scope = b"", b""
    for _, _, _, resource, scope, json, _ in spans:
        if resource == last_resource and scope == last_scope:
            pieces += (b",\t", json)
            continue
        if not last_resource:
            pieces += (resource, scope)
        elif resource != last_resource:
            pieces += (_NEXT_RESOURCE, resource, scope)
        else:
            pieces += (_NEXT_SCOPE, scope)
        pieces += (b"\t", json)
        last_resource, last_scope = resource, scope
    pieces.append(b"\t]}]}]}\n" if last_resource else b"]}\n")
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


def encode_resource(resource: Resource) -> bytes:
    """Return a `ResourceSpans` up to its first scope."""
    known = _encoded_resources.get(id(resource))
    if known is not None and known[0] is resource:
        return known[1]
    message: dict[str, Any] = {"resource": {}}
    if resource.attributes:
        message["resource"]["attributes"] = encode_attributes(resource.attributes)
    if resource.schema_url:
        message["schemaUrl"] = resource.schema_url
    encoded = dumps(message)[:-1] + b',"scopeSpans":['
    # With the resource itself: its id is unique only while it lives.
    remember_origin(_encoded_resources, id(resource), (resource, encoded), len(encoded))
    return encoded


def encode_scope(scope: InstrumentationScope | None) -> bytes:
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
        message["scope"]["attributes"] = encode_attributes(scope.attributes)
    if scope.schema_url:
        message["schemaUrl"] = scope.schema_url
    encoded = dumps(message)[:-1] + b',"spans":['
    remember_origin(_encoded_scopes, id(scope), (scope, encoded), len(encoded))
    return encoded


def _encode_span(pieces: list[bytes], span: ReadableSpan, context: SpanContext, before: str) -> None:
    """Append a span to the pieces of a line, behind `before`; building a dict for each span would take longer."""
    start, end = span.start_time, span.end_time
    # OTLP numbers the kinds from 1, the API from 0.
    pieces.append(_head(context, span.parent, span.name, span.kind.value + 1, start, end, before))
    if attributes := span.attributes:
        pieces.append(b',"attributes":[')
        first = len(pieces)
        add_attributes(pieces, attributes.items())
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
        pieces += (b",", dumps(_rest(span, context))[1:])
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
    flags, above = _HAS_IS_REMOTE | (int(trace_flags) & 0xFF), ""
    if parent is not None:
        _, parent_id, is_remote, *_ = parent
        if is_remote:
            flags |= IS_REMOTE
        above = parent_id.to_bytes(8, "big").hex()
    return span_head(
        trace_id.to_bytes(16, "big").hex(),
        span_id.to_bytes(8, "big").hex(),
        above,
        flags,
        name,
        kind,
        start_time,
        end_time,
        before,
    )


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
        encoded["attributes"] = encode_attributes(of.attributes)
    if dropped := getattr(of, "dropped_attributes", 0):
        encoded["droppedAttributesCount"] = dropped
    return encoded
