"""Spans as plain tuples, which go from one process to another, and back."""

from __future__ import annotations

import pickle
from collections.abc import Mapping, Sequence
from typing import Any, Final

from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import Event, ReadableSpan
from opentelemetry.sdk.util.instrumentation import InstrumentationScope
from opentelemetry.trace import Link, SpanContext, SpanKind, Status, StatusCode, TraceFlags, TraceState

__all__ = ["pack", "unpack"]

SPANS_OF_A_PIECE: Final = 64


def pack(spans: Sequence[ReadableSpan]) -> list[bytes]:
    """Return the spans as pickled tuples of plain values: what MLflow is told of them, and nothing else.

    Args:
        spans: The spans.
    """
    # A few at a time: thousands of tuples at once would have Python's garbage collector run in the trainer, and one
    # long pickle would keep its threads waiting.
    return [_pickled(spans[first : first + SPANS_OF_A_PIECE]) for first in range(0, len(spans), SPANS_OF_A_PIECE)]


def unpack(packed: Sequence[bytes]) -> list[ReadableSpan]:
    """Return the spans that `pack` was given.

    Args:
        packed: What it returned.
    """
    spans = []
    for piece in packed:
        found = pickle.loads(piece)  # noqa: S301 - it comes from the process that started this one
        resources = {id(resource): Resource(resource) for resource, *_ in found}
        spans += [_unpacked(resources[id(resource)], *span) for resource, *span in found]
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
        _packed_attributes(span.attributes),
        [(event.name, _packed_attributes(event.attributes), event.timestamp) for event in span.events],
        [(_packed_context(link.context), _packed_attributes(link.attributes)) for link in span.links],
        span.kind.value,
        (span.status.status_code.value, span.status.description),
        span.start_time,
        span.end_time,
        None if scope is None else (scope.name, scope.version),
    )


def _unpacked(
    resource: Resource,
    name: str,
    context: tuple[Any, ...] | None,
    parent: tuple[Any, ...] | None,
    attributes: dict[str, Any],
    events: list[tuple[Any, ...]],
    links: list[tuple[Any, ...]],
    kind: int,
    status: tuple[int, str | None],
    start_time: int | None,
    end_time: int | None,
    scope: tuple[str, str | None] | None,
) -> ReadableSpan:
    code, description = status
    return ReadableSpan(
        name=name,
        context=_unpacked_context(context),
        parent=_unpacked_context(parent),
        resource=resource,
        attributes=attributes,
        events=[Event(event, found, moment) for event, found, moment in events],
        links=[Link(linked, found) for target, found in links if (linked := _unpacked_context(target)) is not None],
        kind=SpanKind(kind),
        status=Status(StatusCode(code), description),
        start_time=start_time,
        end_time=end_time,
        instrumentation_scope=None if scope is None else InstrumentationScope(*scope),
    )


def _packed_attributes(attributes: Mapping[str, Any] | None) -> dict[str, Any]:
    return dict(attributes or {})


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
