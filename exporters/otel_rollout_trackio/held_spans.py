"""Spans that an exporter holds until their trajectory ends, for a backend that can't add to a stored trajectory."""

from __future__ import annotations

from collections import Counter, OrderedDict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from opentelemetry.sdk.trace import ReadableSpan

from otel_rollout.facts.span_facts import trace_id_of
from otel_rollout.guard.clock import monotonic
from otel_rollout.record.finished_span import readable_size


@dataclass(slots=True)
class _Trace:
    """The held spans of a trace by span id, in the order in which they ended."""

    spans: dict[int, ReadableSpan] = field(default_factory=dict)
    bytes: int = 0
    last_added: float = 0.0


class HeldSpans:
    """Spans that `send` took and the backend doesn't have yet.

    A batch leaves the queue once `send` has taken it. The exporter's counts have them as queued all the same, and as
    lost if it gives them up: `delivered` counts stored spans only. One thread changes this object.
    """

    def __init__(self) -> None:
        self.spans = 0
        self.bytes = 0
        self.lost: Counter[str] = Counter()
        self._traces: OrderedDict[int, _Trace] = OrderedDict()

    def __contains__(self, trace_id: int) -> bool:
        return trace_id in self._traces

    def trace_ids(self) -> list[int]:
        """Return the ids of the traces with held spans; the one without a new span for longest comes first."""
        return list(self._traces)

    def of_trace(self, trace_id: int) -> list[ReadableSpan]:
        """Return the held spans of a trace, in the order in which they ended."""
        return list(self._traces[trace_id].spans.values()) if trace_id in self._traces else []

    def add(self, spans: Iterable[ReadableSpan]) -> None:
        """Hold spans; one that is held already is left alone."""
        for span in spans:
            trace_id, context = trace_id_of(span), span.get_span_context()
            trace = self._traces.setdefault(trace_id, _Trace())
            trace.last_added = monotonic()
            self._traces.move_to_end(trace_id)
            span_id = 0 if context is None else context.span_id
            if span_id not in trace.spans:
                trace.spans[span_id] = span
                size = readable_size(span)
                trace.bytes += size
                self.bytes += size
                self.spans += 1

    def release(self, trace_ids: Iterable[int]) -> None:
        """Forget the spans of traces that are stored."""
        for trace_id in trace_ids:
            trace = self._traces.pop(trace_id, None)
            if trace is not None:
                self.bytes -= trace.bytes
                self.spans -= len(trace.spans)

    def lose(self, trace_ids: Iterable[int], reason: str) -> None:
        """Give up the spans of traces, and count them."""
        for trace_id in trace_ids:
            self.lost[reason] += len(self.of_trace(trace_id))
            self.release([trace_id])

    def overdue(self, new: Sequence[ReadableSpan], *, max_bytes: int, max_seconds: float) -> list[int]:
        """Return the traces to store without their root: too long without a new span, or in the way of `new` ones."""
        room = max_bytes - sum(map(readable_size, new)) - self.bytes
        now = monotonic()
        found = []
        for trace_id, trace in self._traces.items():
            if room >= 0 and now - trace.last_added < max_seconds:
                break
            room += trace.bytes
            found.append(trace_id)
        return found

    def forget(self) -> None:
        """Start empty in a forked child: what is held is the parent's."""
        self.release(self.trace_ids())
        self.lost.clear()
