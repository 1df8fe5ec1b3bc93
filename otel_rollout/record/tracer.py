"""The tracer, which makes the spans of trajectories and ops, and the count of those that are open."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from typing import Any, Final

from opentelemetry.context import Context
from opentelemetry.sdk.trace.id_generator import IdGenerator
from opentelemetry.sdk.trace.sampling import Decision, Sampler
from opentelemetry.trace import Link, SpanContext, SpanKind, TraceFlags, get_current_span

from otel_rollout import semconv
from otel_rollout.guard.log_once import warn_once
from otel_rollout.record.attribute_values import read_time
from otel_rollout.record.context import Frame, get_current
from otel_rollout.record.recording_span import RolloutSpan
from otel_rollout.record.snapshot import Snapshot
from otel_rollout.record.span_bounds import DEFAULT_BOUNDS, SpanBounds
from otel_rollout.record.trajectory_state import TrajectoryState

# All bits of our trace ids are random; SDKs before 1.45 don't name the flag.
_SAMPLED: Final = TraceFlags(TraceFlags.SAMPLED | getattr(TraceFlags, "RANDOM_TRACE_ID", 0x02))
# A root has no parent; for a sampler, None would mean the current context and its span.
_NO_PARENT: Final = Context()

MAX_OPEN_SPANS: Final = 100_000


class OpenSpans:
    """The spans that have started and not ended, and their inputs; starts and ends may be interrupted and repeated."""

    def __init__(self, max_bytes: int = sys.maxsize) -> None:
        self._max_bytes = max_bytes
        self._ids: dict[int, int] = {}
        """The bytes of each span's input, by its id."""
        self._bytes = 0
        """The bytes of all, up to additions that two threads make simultaneously."""

    @property
    def count(self) -> int:
        """The number of open spans, up to `MAX_OPEN_SPANS`."""
        return len(self._ids)

    def started(self, span: RolloutSpan) -> None:
        """Note a start, from any thread."""
        if len(self._ids) < MAX_OPEN_SPANS:
            self._ids[span.context.span_id] = 0

    def hold(self, span: RolloutSpan, size: int) -> bool:
        """Count the bytes of an open span's input; return False if there is no room for them."""
        if self._bytes + size > self._max_bytes:
            self._bytes = sum([*self._ids.values()])
            if self._bytes + size > self._max_bytes:
                return False
        self._bytes += size
        self._ids[span.context.span_id] = size
        return True

    def ended(self, span: RolloutSpan) -> None:
        """Note an end, from any thread."""
        self._bytes -= self._ids.pop(span.context.span_id, 0)

    def after_fork(self) -> None:
        """Leave the parent's open spans to the parent's count."""
        self._ids.clear()
        self._bytes = 0


class RolloutTracer:
    """Makes `RolloutSpan`s.

    Args:
        is_shared: True if the spans of other instrumentations reach the same exporters: only then may they be parents
            of ours.
        keeps_context: True if a span keeps the context that it starts in, for an application's provider.
    """

    def __init__(
        self,
        sampler: Sampler,
        ids: IdGenerator,
        on_end: Callable[[RolloutSpan], None],
        *,
        is_shared: bool,
        open_spans: OpenSpans,
        bounds: SpanBounds = DEFAULT_BOUNDS,
        keeps_context: bool = False,
    ) -> None:
        self.keeps_context = keeps_context
        self._open_spans = open_spans
        self._bounds = bounds
        self._sampler = sampler
        self._ids = ids
        self._on_end = on_end
        self._is_shared = is_shared

    def start_root(
        self, name: str, trajectory: TrajectoryState | None, links: Sequence[Link], start_time: int | None = None
    ) -> RolloutSpan | None:
        """Start the root of a new trace; return None if the sampler drops the trajectory."""
        trace_id = self._ids.generate_trace_id()
        tags = trajectory.tags if trajectory else {semconv.OUTSIDE_TRAJECTORY: True}
        sampled = self._sampler.should_sample(_NO_PARENT, trace_id, name, SpanKind.INTERNAL, tags, links)
        if sampled.decision is not Decision.RECORD_AND_SAMPLE:
            return None
        context = SpanContext(trace_id, self._ids.generate_span_id(), False, _SAMPLED, sampled.trace_state)
        # A trajectory's tags are merged at export, and most samplers return the attributes that they were given.
        attributes = {} if trajectory else tags
        root = RolloutSpan(name, context, None, attributes, trajectory, tuple(links), self._on_end, self._bounds)
        more = {key: value for key, value in (sampled.attributes or {}).items() if key not in tags}
        if more:
            root.set_attributes(more)
        if start_time is not None:
            root.start_time = read_time(start_time) or root.start_time
        if self.keeps_context:
            root.start_context = get_current()
        self._open_spans.started(root)
        return root

    def start_op(
        self,
        name: str,
        context: Context,
        frame: Frame | None,
        attributes: dict[str, Any],
    ) -> RolloutSpan | None:
        """Start a span under the innermost one that reaches our exporters; return None if that isn't sampled."""
        trajectory = None
        if frame is not None:
            trajectory = frame.trajectory
            parent = frame.span.get_span_context()  # type: ignore[union-attr]  # a frame without a span is silent
            if self._is_shared:
                current = get_current_span(context).get_span_context()
                parent = current if current.is_valid else parent
        else:
            parent = get_current_span(context).get_span_context()
            if not self._is_shared or not parent.is_valid:
                root = self.start_root(name, None, [Link(parent)] if parent.is_valid else ())
                if root is not None:
                    root.set_attributes(attributes)
                return root
        span = self.start_child(name, parent, trajectory, attributes)
        if span is None:
            return None
        if trajectory is None:
            span.set_attribute(semconv.OUTSIDE_TRAJECTORY, True)
        if frame is not None and frame.depth:
            span.depth = frame.depth
        if self.keeps_context:
            span.start_context = context
        return span

    def start_child(
        self, name: str, parent: SpanContext, trajectory: TrajectoryState | None, attributes: dict[str, Any]
    ) -> RolloutSpan | None:
        """Start a span under a parent; return None if that isn't sampled."""
        if not parent.trace_flags & TraceFlags.SAMPLED:
            return None
        span_id = self._ids.generate_span_id()
        span = RolloutSpan(name, span_id, parent, attributes, trajectory, (), self._on_end, self._bounds)
        self._open_spans.started(span)
        return span

    def set_input(self, span: RolloutSpan, taken: Snapshot) -> None:
        """Keep the input for the delivery thread."""
        if not self._open_spans.hold(span, taken.size):
            taken = Snapshot.of_note(f"…[{taken.size:,} bytes dropped: too many inputs of running ops]", taken.size)
        span.input = taken

    def set_annotations(self, root: RolloutSpan, own: dict[str, Any], others: dict[str, Any]) -> None:
        """Set ours first: beyond the limit the last ones are dropped."""
        before = root.dropped_attributes
        root.set_attributes({**own, **others})
        dropped = root.dropped_attributes - before
        if dropped:
            warn_once(
                "too many annotations",
                "annotate(): %d attributes of a trajectory are dropped, as a span has at most %d "
                "(OTEL_SPAN_ATTRIBUTE_COUNT_LIMIT); the root says how many",
                dropped,
                self._bounds.attributes,
            )
