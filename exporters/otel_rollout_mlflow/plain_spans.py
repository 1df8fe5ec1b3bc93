"""Spans as pickled plain tuples, for another process."""

from __future__ import annotations

import pickle
from collections.abc import Sequence
from typing import Any, Final

from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import Event, ReadableSpan
from opentelemetry.sdk.util.instrumentation import InstrumentationScope
from opentelemetry.trace import Link, SpanContext, SpanKind, Status, StatusCode, TraceFlags, TraceState

SPANS_OF_A_PIECE: Final = 64


def pack(spans: Sequence[ReadableSpan]) -> list[bytes]:
    """Return the spans as pickled tuples of the plain values that MLflow stores."""
    # A few at a time: thousands of tuples together would start Python's garbage collector in the trainer, and one long
    # pickle would block its threads.
    return [_pickled(spans[first : first + SPANS_OF_A_PIECE]) for first in range(0, len(spans), SPANS_OF_A_PIECE)]


def unpack(packed: Sequence[bytes]) -> list[ReadableSpan]:
    """Return the spans that `pack` was given."""
    spans = []
    for piece in packed:
        found = pickle.loads(piece)  # noqa: S301 - it comes from the process that started this one
        resources = {id(resource): Resource(resource) for resource, *_ in found}
        spans += [_unpacked(resources[id(resource)], tuple(span)) for resource, *span in found]
    return spans


def _pickled(spans: Sequence[ReadableSpan]) -> bytes:
    # Pickle writes an object once, however many spans refer to it.
    resources = {id(span.resource): span.resource for span in spans}
    plain = {key: dict(resource.attributes) for key, resource in resources.items()}
    packed = [(plain[id(span.resource)], *_packed(span)) for span in spans]
    return pickle.dumps(packed, pickle.HIGHEST_PROTOCOL)


def _packed(span: ReadableSpan) -> tuple[Any, ...]:
    scope = span.instrumentation_scope
    return (
        span.name,
        _packed_context(span.get_span_context()),
        _packed_context(span.parent),
        dict(span.attributes or {}),
        [(event.name, dict(event.attributes or {}), event.timestamp) for event in span.events],
        [(_packed_context(link.context), dict(link.attributes or {})) for link in span.links],
        span.kind.value,
        (span.status.status_code.value, span.status.description),
        span.start_time,
        span.end_time,
        None if scope is None else (scope.name, scope.version, scope.schema_url),
    )


def _unpacked(resource: Resource, packed: tuple[Any, ...]) -> ReadableSpan:
    name, context, parent, attributes, events, links, kind, (code, description), start, end, scope = packed
    return ReadableSpan(
        name=name,
        context=_unpacked_context(context),
        parent=_unpacked_context(parent),
        resource=resource,
        attributes=attributes,
        events=[Event(*event) for event in events],
        links=[Link(linked, found) for target, found in links if (linked := _unpacked_context(target)) is not None],
        kind=SpanKind(kind),
        status=Status(StatusCode(code), description),
        start_time=start,
        end_time=end,
        instrumentation_scope=None if scope is None else InstrumentationScope(*scope),
    )


def _packed_context(context: SpanContext | None) -> tuple[Any, ...] | None:
    if context is None:
        return None
    return (
        context.trace_id,
        context.span_id,
        context.is_remote,
        int(context.trace_flags),
        tuple(context.trace_state.items()),
    )


def _unpacked_context(packed: tuple[Any, ...] | None) -> SpanContext | None:
    if packed is None:
        return None
    trace_id, span_id, is_remote, flags, state = packed
    return SpanContext(trace_id, span_id, is_remote, TraceFlags(flags), TraceState(state))
