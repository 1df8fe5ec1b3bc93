"""Tracers make the spans of trajectories and ops; this one makes recording spans, on our own provider."""

from __future__ import annotations

import abc
from collections.abc import Callable, Sequence
from typing import Any, Final

from opentelemetry.context import Context
from opentelemetry.sdk.trace.id_generator import IdGenerator
from opentelemetry.sdk.trace.sampling import Decision, Sampler
from opentelemetry.trace import (
    Link,
    Span,
    SpanContext,
    SpanKind,
    TraceFlags,
    get_current_span,
)

from otel_rollout import semconv
from otel_rollout.spans.context import Frame
from otel_rollout.spans.open_spans import OpenSpans
from otel_rollout.spans.recording_span import RolloutSpan
from otel_rollout.spans.span_bounds import DEFAULT_BOUNDS, SpanBounds
from otel_rollout.spans.trajectory_state import TrajectoryState
from otel_rollout.values.snapshot import Snapshot

__all__ = ["RecordingTracer", "RolloutTracer"]

# All bits of our trace ids are random; SDKs before 1.45 have no name for the flag.
_SAMPLED: Final = TraceFlags(TraceFlags.SAMPLED | getattr(TraceFlags, "RANDOM_TRACE_ID", 0x02))
# For a sampler None means the current context, with the ambient span in it as a parent; a root has none.
_NO_PARENT: Final = Context()


class RolloutTracer(abc.ABC):
    """Makes the spans of trajectories and ops."""

    @abc.abstractmethod
    def start_root(self, name: str, trajectory: TrajectoryState, links: Sequence[Link]) -> Span | None:
        """Start the root of a new trace; None where the sampler leaves the trajectory out."""

    @abc.abstractmethod
    def start_op(self, name: str, context: Context, frame: Frame | None, attributes: dict[str, Any]) -> Span | None:
        """Start a span under what is current in `context`; None where that isn't sampled.

        Args:
            name: The span's name.
            context: The current context.
            frame: The frame in it.
            attributes: The op's own attributes, without the trajectory's tags.
        """

    @abc.abstractmethod
    def set_input(self, span: Span, taken: Snapshot) -> None:
        """Set the input of `span`."""

    @abc.abstractmethod
    def set_output(self, span: Span, taken: Snapshot) -> None:
        """Set the output of `span`."""

    @abc.abstractmethod
    def set_tokenizer(self, span: Span, tokenizer: Any) -> None:
        """Set what decodes the token ids in the output of `span`."""

    @abc.abstractmethod
    def set_annotations(self, root: Span, own: dict[str, Any], others: dict[str, Any]) -> None:
        """Set what is known of a trajectory at its end.

        Args:
            root: Its root.
            own: What stays there, whatever the limit of attributes.
            others: What the program has annotated beside these.
        """


class RecordingTracer(RolloutTracer):
    """Makes `RolloutSpan`s.

    Args:
        sampler: Decides at the root of each trace.
        ids: Where ids come from.
        on_end: Takes each finished span.
        is_shared: Whether the spans of other instrumentations reach the same exporters, so that ours may have
            them as parents.
        bounds: How much of what others set on a span is kept.
        open_spans: Counts the spans that start.
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
    ) -> None:
        self._count_start = open_spans.started
        self._bounds = bounds
        self._sampler = sampler
        self._ids = ids
        self._on_end = on_end
        self._is_shared = is_shared

    def start_root(self, name: str, trajectory: TrajectoryState | None, links: Sequence[Link]) -> Span | None:
        """Start the root of a new trace; None where the sampler leaves the trajectory out."""
        trace_id = self._ids.generate_trace_id()
        tags = trajectory.tags if trajectory else {semconv.OUTSIDE_TRAJECTORY: True}
        sampled = self._sampler.should_sample(_NO_PARENT, trace_id, name, SpanKind.INTERNAL, tags, links)
        if sampled.decision is not Decision.RECORD_AND_SAMPLE:
            return None
        context = SpanContext(trace_id, self._ids.generate_span_id(), False, _SAMPLED, sampled.trace_state)
        # A trajectory's tags are added when its spans are read; samplers hand back what they were given.
        attributes = {} if trajectory else dict(tags)
        self._count_start()
        root = RolloutSpan(name, context, None, attributes, trajectory, tuple(links), self._on_end, self._bounds)
        more = {key: value for key, value in (sampled.attributes or {}).items() if key not in tags}
        if more:
            root.set_attributes(more)
        return root

    def start_op(self, name: str, context: Context, frame: Frame | None, attributes: dict[str, Any]) -> Span | None:
        """Start a span under the innermost span that reaches our exporters."""
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
        if not parent.trace_flags & TraceFlags.SAMPLED:
            return None
        span_id = self._ids.generate_span_id()
        self._count_start()
        light = RolloutSpan(name, span_id, parent, attributes, trajectory, (), self._on_end, self._bounds)
        if trajectory is None:
            light.set_attribute(semconv.OUTSIDE_TRAJECTORY, True)  # an attribute's value
        return light

    def set_input(self, span: Span, taken: Snapshot) -> None:
        """Keep the input; the delivery thread does the rest."""
        span.input = taken  # type: ignore[attr-defined]  # this tracer makes RolloutSpans only

    def set_output(self, span: Span, taken: Snapshot) -> None:
        """Keep the output; the delivery thread does the rest."""
        span.output = taken  # type: ignore[attr-defined]  # this tracer makes RolloutSpans only

    def set_tokenizer(self, span: Span, tokenizer: Any) -> None:
        """Keep the tokenizer; the delivery thread does the rest."""
        span.tokenizer = tokenizer  # type: ignore[attr-defined]  # this tracer makes RolloutSpans only

    def set_annotations(self, root: Span, own: dict[str, Any], others: dict[str, Any]) -> None:
        """Set ours first: beyond the limit, what comes last is dropped."""
        root.set_attributes({**own, **others})
