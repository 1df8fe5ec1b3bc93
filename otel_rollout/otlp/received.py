"""The spans of requests that any program made: checked one by one, and kept as the bytes that came.

Source: https://opentelemetry.io/docs/specs/otlp/ and opentelemetry-proto's trace.proto.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Final, NamedTuple

from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.util.instrumentation import InstrumentationScope

from otel_rollout.otlp.cutting import ScopePart, TooManySpansError, cut_request, spans_of
from otel_rollout.otlp.encoding import EncodedSpan
from otel_rollout.otlp.reading import MALFORMED, StoredSpan, resource_of, scope_of

MAX_ORIGIN_BYTES: Final = 2**20
"""Each record of the journal repeats its resource and scope."""
LARGE_ORIGIN: Final = f"a resource and scope of more than {MAX_ORIGIN_BYTES:,} bytes, which is the limit"


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
        parts = cut_request(body, max_spans)
    except TooManySpansError:
        raise
    except ValueError as error:
        raise ValueError(f"the body is no OTLP request in protobuf: {error}") from error
    return _split(body, parts, on_refused)


def check_span(data: bytes, origin: Origin) -> EncodedSpan:
    """Return an encoded span, once all of it is decoded, so that no reader finds it malformed.

    Raises one of `MALFORMED`.
    """
    span = StoredSpan(data, origin.resource, origin.scope)
    span.decode()
    context = span.get_span_context()
    if context is None or not context.trace_id or not context.span_id:
        raise ValueError("an id of zeros")
    trace_id, span_id = context.trace_id.to_bytes(16, "big"), context.span_id.to_bytes(8, "big")
    return EncodedSpan(trace_id, span_id, span.parent is None, origin.resource_data, origin.scope_data, data, span)


def _split(body: bytes, parts: Iterable[ScopePart], on_refused: Callable[[str], object]) -> Iterator[EncodedSpan]:
    for part in parts:
        try:
            if len(part.resource) + len(part.scope) > MAX_ORIGIN_BYTES:
                raise ValueError(LARGE_ORIGIN)
            origin = origin_of(part.resource, part.scope)
        except MALFORMED as error:
            is_ours = isinstance(error, ValueError)
            reason = str(error) if is_ours else f"a resource or scope that is no protobuf: {error}"
            for _ in range(part.spans):
                on_refused(reason)
            continue
        for data in spans_of(body, part):
            try:
                yield check_span(data, origin)
            except MALFORMED as error:  # noqa: PERF203 - each span by itself
                on_refused(str(error))
