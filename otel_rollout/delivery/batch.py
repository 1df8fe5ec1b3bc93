"""The spans that are on their way to an exporter together."""

from __future__ import annotations

from collections.abc import Sequence

from opentelemetry.sdk.trace import ReadableSpan

from otel_rollout import semconv
from otel_rollout.processing.shrink import replace_attributes
from otel_rollout.spans.recording_span import RolloutSpan

__all__ = ["Batch"]


class Batch:
    """Spans in their standard form, with the trajectories that they belong to.

    Args:
        exporter: The name of the exporter, by which a trajectory counts what was lost of it.
        is_from_disk: Whether the spans waited on disk.
    """

    def __init__(self, exporter: str, *, is_from_disk: bool = False) -> None:
        self._exporter = exporter
        self.is_from_disk = is_from_disk
        self.spans: list[ReadableSpan] = []
        self.queued: list[tuple[RolloutSpan | ReadableSpan, int]] = []
        self.queued_bytes = 0
        self._light_spans: dict[int, RolloutSpan] | None = None
        self._has_losses = False

    @property
    def taken(self) -> int:
        """How many spans were taken off the queue."""
        return len(self.queued)

    @property
    def unreadable(self) -> int:
        """How many of the spans taken off the queue could not be read."""
        return self.taken - len(self.spans)

    def add(self, span: RolloutSpan | ReadableSpan, queued_bytes: int, readable: ReadableSpan | None) -> None:
        """Add a span.

        Args:
            span: The span as it was queued.
            queued_bytes: What it took in the queue.
            readable: Its standard form; None where it could not be read.
        """
        self.queued.append((span, queued_bytes))
        self.queued_bytes += queued_bytes
        if readable is not None:
            self.spans.append(readable)

    def note_lost(self, spans: Sequence[ReadableSpan]) -> None:
        """Count spans as lost to their trajectory."""
        for span in spans:
            light = self._light(span)
            if light is not None and light.trajectory is not None:
                light.trajectory.add_dropped_span(self._exporter)
                self._has_losses = True

    def with_losses(self, spans: Sequence[ReadableSpan]) -> Sequence[ReadableSpan]:
        """Return a part of the batch whose roots say what was lost since they were read."""
        return [self._with_losses(span) for span in spans] if self._has_losses else spans

    def _with_losses(self, span: ReadableSpan) -> ReadableSpan:
        light = self._light(span) if span.parent is None else None
        dropped = light.trajectory.dropped_spans[self._exporter] if light is not None and light.trajectory else 0
        if not dropped:
            return span
        return replace_attributes(span, {**(span.attributes or {}), semconv.DROPPED_SPANS: dropped})

    def _light(self, span: ReadableSpan) -> RolloutSpan | None:
        if self._light_spans is None:
            self._light_spans = {
                light.context.span_id: light
                for light, _ in self.queued
                if isinstance(light, RolloutSpan) and light.trajectory is not None
            }
        return self._light_spans.get(span.context.span_id) if span.context is not None else None
