"""The spans of requests that any program made: checked one by one, and kept as the bytes that came.

Source: https://opentelemetry.io/docs/specs/otlp/ and opentelemetry-proto's trace.proto.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Final, NamedTuple

from google.protobuf.message import DecodeError
from opentelemetry.proto.trace.v1.trace_pb2 import ScopeSpans
from opentelemetry.proto.trace.v1.trace_pb2 import Span as SpanMessage
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.util.instrumentation import InstrumentationScope

from otel_rollout.otlp.encoding import EncodedSpan
from otel_rollout.otlp.pieces import (
    LARGE_BYTES,
    Piece,
    ScopePieces,
    TooManySpansError,
    cut_request,
    has_too_many_fields,
    spans_of,
)
from otel_rollout.otlp.reading import (
    MALFORMED,
    MAX_FIELDS,
    MAX_VALUES,
    TOO_MANY_VALUES,
    StoredSpan,
    ids_of,
    resource_of,
    scope_of,
)

MAX_ORIGIN_BYTES: Final = 2**20
"""Each record of the journal repeats its resource and scope."""
LARGE_ORIGIN: Final = f"a resource and scope of more than {MAX_ORIGIN_BYTES:,} bytes, which is the limit"
_NO_TRACE: Final = bytes(16)
_NO_SPAN: Final = bytes(8)


class Origin(NamedTuple):
    """The resource and the scope of a span, encoded and decoded.

    Args:
        resource_data: A `ResourceSpans` without its scopes.
        scope_data: A `ScopeSpans` without its spans.
        resource: The resource.
        scope: The scope.
    """

    resource_data: bytes
    scope_data: bytes
    resource: Resource
    scope: InstrumentationScope | None


def origin_of(resource: bytes, scope: bytes) -> Origin:
    """Return a resource and a scope, decoded too; raise one of `MALFORMED`."""
    return Origin(resource, scope, resource_of(resource), scope_of(scope))


def split_request(body: bytes, on_refused: Callable[[str], object], max_spans: int) -> Iterator[EncodedSpan]:
    """Return the spans of a request, each by itself; they are parsed a piece at a time.

    Args:
        body: An `ExportTraceServiceRequest`.
        on_refused: Called with the reason for each span that is malformed.
        max_spans: The limit on its spans, scopes and resources together.

    Raises:
        TooManySpansError: It has more.
        ValueError: It is no such request.
    """
    try:
        scopes = cut_request(body, max_spans)
    except TooManySpansError:
        raise
    except ValueError as error:
        raise ValueError(f"the body is no OTLP request in protobuf: {error}") from error
    return _split(body, scopes, on_refused)


def check_span(data: bytes, origin: Origin) -> EncodedSpan:
    """Return an encoded span, once all of it is decoded, so that no reader finds it malformed.

    Raises one of `MALFORMED`.
    """
    span = StoredSpan(data, origin.resource, origin.scope)
    trace_id, span_id = ids_of(data)
    span.decode()
    if trace_id == _NO_TRACE or span_id == _NO_SPAN:
        raise ValueError("an id of zeros")
    return EncodedSpan(trace_id, span_id, span.parent is None, origin.resource_data, origin.scope_data, data, span)


def _split(body: bytes, scopes: Iterable[ScopePieces], on_refused: Callable[[str], object]) -> Iterator[EncodedSpan]:
    for inner in scopes:
        try:
            if len(inner.resource) + len(inner.scope) > MAX_ORIGIN_BYTES:
                raise ValueError(LARGE_ORIGIN)
            origin = origin_of(inner.resource, inner.scope)
        except MALFORMED as error:
            is_ours = isinstance(error, ValueError)
            reason = str(error) if is_ours else f"a resource or scope that is no protobuf: {error}"
            for piece in inner.pieces:
                for _ in range(piece.spans):
                    on_refused(reason)
            continue
        for piece in inner.pieces:
            for data in _sound_spans(body, piece, on_refused):
                try:
                    yield check_span(data, origin)
                except MALFORMED as error:  # noqa: PERF203 - each span by itself
                    on_refused(str(error))


def _sound_spans(body: bytes, piece: Piece, on_refused: Callable[[str], object]) -> Iterator[bytes]:
    """Yield the spans of a piece that protobuf's parser takes."""
    extents = list(spans_of(body, piece))
    if piece.end - piece.start > LARGE_BYTES and has_too_many_fields(body, *extents[0], MAX_VALUES):
        on_refused(TOO_MANY_VALUES)
        return
    is_sound = not _fault_of(ScopeSpans, body[piece.start : piece.end])
    for start, end in extents:
        data = body[start:end]
        if not is_sound and (fault := _fault_of(SpanMessage, data)):
            on_refused(f"a span that is no protobuf: {fault}")
        else:
            yield data


def _fault_of(kind: type[ScopeSpans | SpanMessage], data: bytes) -> str:
    try:
        kind.FromString(data)
    except DecodeError as error:
        return str(error)
    return ""


def encoded_spans(request: bytes) -> Iterator[EncodedSpan]:
    """Yield the spans of a request that was stored before.

    Raises:
        ValueError: It is no such request, or a span in it is malformed.
    """
    try:
        for inner in cut_request(request, MAX_FIELDS):
            origin = origin_of(inner.resource, inner.scope)
            for piece in inner.pieces:
                for start, end in spans_of(request, piece):
                    yield check_span(request[start:end], origin)
    except MALFORMED as error:
        raise ValueError(str(error)) from error
