"""Spans as one line of OTLP JSON, and back, with nothing lost on the way.

A line is an `ExportTraceServiceRequest` in JSON: ids in hexadecimal, 64-bit integers as text, enums as numbers. Spans
stand in the order in which they are given: where the resource or the scope changes, another group begins. A tab, which
JSON lets stand between its signs and never within a text, is before each span and behind the last one of a group: who
wants one span need not parse the others.

Source: https://opentelemetry.io/docs/specs/otlp/#json-protobuf-encoding and
https://opentelemetry.io/docs/specs/otel/protocol/file-exporter/.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.util.instrumentation import InstrumentationScope
from opentelemetry.trace import SpanContext, StatusCode

from otel_rollout.trace_folder.otlp_json_attributes import MAX_CACHED, add_pairs, dumps, encode_attributes
from otel_rollout.trace_folder.otlp_json_reading import decode_line

__all__ = ["decode_line", "encode_line", "is_line", "join_lines", "joined_pieces"]

HAS_IS_REMOTE: Final = 0x100
IS_REMOTE: Final = 0x200
START: Final = b'{"resourceSpans":['
_END: Final = b"]}"
_FIRST_SPAN: Final = "\t"
_NEXT_SPAN: Final = ",\t"
_LAST_SPAN: Final = b"\t]}]}"
_NEXT_RESOURCE: Final = b"\t]}]},"
_NEXT_SCOPE: Final = b"\t]},"
_SHORT_TEXT: Final = 64
_MAX_CACHED_ORIGINS: Final = 256

_STATUS_UNSET: Final = b',"status":{}}'

# Most names are the same on thousands of spans, and their resource and scope always are.
_encoded_names: dict[str, str] = {}
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
        message["resource"]["attributes"] = encode_attributes(resource.attributes)
    if resource.schema_url:
        message["schemaUrl"] = resource.schema_url
    encoded = dumps(message)[:-1] + b',"scopeSpans":['
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
        message["scope"]["attributes"] = encode_attributes(scope.attributes)
    if scope.schema_url:
        message["schemaUrl"] = scope.schema_url
    encoded = dumps(message)[:-1] + b',"spans":['
    if len(_encoded_scopes) >= _MAX_CACHED_ORIGINS:
        _encoded_scopes.clear()
    _encoded_scopes[id(scope)] = (scope, encoded)
    return encoded


def _encode_span(pieces: list[bytes], span: ReadableSpan, context: SpanContext, before: str) -> None:
    """Append a span to the pieces of a line, behind `before`.

    In pieces, because a tree of dicts for each span takes longer than all its payload.
    """
    start, end = span.start_time, span.end_time
    # OTLP numbers the kinds from 1, the API from 0.
    pieces.append(_head(context, span.parent, span.name, span.kind.value + 1, start, end, before))
    if attributes := span.attributes:
        pieces.append(b',"attributes":[')
        first = len(pieces)
        add_pairs(pieces, attributes.items())
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
        # Without any kept: a limit of none, or a span that was made smaller.
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
    # As the tuples that contexts are: each of their properties is a call of Python.
    trace_id, span_id, _, trace_flags, _, _ = context
    flags, above, times = HAS_IS_REMOTE | (int(trace_flags) & 0xFF), "", ""
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
    encoded = dumps(name).decode()
    if len(_encoded_names) >= MAX_CACHED:
        _encoded_names.clear()
    if len(encoded) <= _SHORT_TEXT:
        _encoded_names[name] = encoded
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
        encoded["attributes"] = encode_attributes(event.attributes)
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
        encoded["attributes"] = encode_attributes(link.attributes)
    if dropped := getattr(link, "dropped_attributes", 0):
        encoded["droppedAttributesCount"] = dropped
    return encoded
