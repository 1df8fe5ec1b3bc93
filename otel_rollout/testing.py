"""For tests, ours and our users': an exporter that keeps spans in memory, and deterministic ids and times."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import count
from typing import Any, Final
from unittest import mock

import orjson
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export import SpanExporter, SpanExportResult

from otel_rollout import semconv
from otel_rollout.record.ids import SystemIdGenerator

__all__ = ["InMemorySpanExporter", "deterministic_ids_and_times", "span_tree"]

_MIME_KEYS: Final = {
    semconv.INPUT_VALUE: semconv.INPUT_MIME_TYPE,
    semconv.OUTPUT_VALUE: semconv.OUTPUT_MIME_TYPE,
}
_JSON_KEYS: Final = (
    *_MIME_KEYS,
    semconv.METADATA,
    semconv.INPUT_MESSAGES,
    semconv.OUTPUT_MESSAGES,
    semconv.TOOL_DEFINITIONS,
)


class InMemorySpanExporter(SpanExporter):
    """Keeps spans in memory; pass it to `init(backend=…)` and call `flush()` before reading `spans`."""

    def __init__(self) -> None:
        self._spans: list[ReadableSpan] = []

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        """Keep the spans."""
        self._spans.extend(spans)
        return SpanExportResult.SUCCESS

    @property
    def spans(self) -> list[ReadableSpan]:
        """The spans so far, in the order in which they ended."""
        return list(self._spans)

    def clear(self) -> None:
        """Forget the spans."""
        self._spans.clear()

    def as_dicts(self) -> list[dict[str, Any]]:
        """Return every span as a dict of plain values: payloads parsed, ids as numbers."""
        return [_as_dict(span) for span in self.spans]


def _as_dict(span: ReadableSpan) -> dict[str, Any]:
    attributes = dict(span.attributes or {})
    for key in _JSON_KEYS:
        value = attributes.get(key)
        if isinstance(value, str) and attributes.get(_MIME_KEYS.get(key, "")) != semconv.TEXT_MIME_TYPE:
            attributes[key] = orjson.loads(value)
    context = span.context
    record: dict[str, Any] = {
        "name": span.name,
        "trace_id": context.trace_id if context else None,
        "span_id": context.span_id if context else None,
        "parent_id": span.parent.span_id if span.parent else None,
        "start_time": span.start_time,
        "end_time": span.end_time,
        "status": span.status.status_code.name,
        "attributes": attributes,
    }
    if span.status.description:
        record["description"] = span.status.description
    if span.events:
        record["events"] = [{"name": event.name, **dict(event.attributes or {})} for event in span.events]
    if span.links:
        record["links"] = [link.context.span_id for link in span.links]
    return record


def span_tree(spans: Sequence[ReadableSpan]) -> list[Any]:
    """Return the names of `spans` as nested lists, children in the order of start: `[name, [child, …], …]`.

    Args:
        spans: The spans of one or more traces; a span whose parent is missing is a root.
    """
    ids = {span.context.span_id for span in spans if span.context}
    children: dict[int | None, list[ReadableSpan]] = {}
    for span in sorted(spans, key=lambda each: each.start_time or 0):
        parent = span.parent.span_id if span.parent and span.parent.span_id in ids else None
        children.setdefault(parent, []).append(span)

    def branch(span: ReadableSpan) -> list[Any]:
        below = children.get(span.context.span_id if span.context else None, [])
        return [span.name, *(branch(child) for child in below)]

    return [branch(root) for root in children.get(None, [])]


@contextmanager
def deterministic_ids_and_times() -> Iterator[None]:
    """Count trace ids, span ids and times (in nanoseconds) from 1, so that tests can compare whole span lists."""
    traces, spans, times = count(1), count(1), count(1)

    def trace_id(_: SystemIdGenerator) -> int:
        return next(traces)

    def span_id(_: SystemIdGenerator) -> int:
        return next(spans)

    # Not a Mock: its calls take a lock, which a signal handler that raises may leave held from Python 3.14 on.
    with (
        mock.patch.object(SystemIdGenerator, "generate_trace_id", trace_id),
        mock.patch.object(SystemIdGenerator, "generate_span_id", span_id),
        mock.patch("otel_rollout.guard.clock.monotonic_ns", times.__next__),
        mock.patch("otel_rollout.guard.clock.clock_offset", int),
    ):
        yield
