"""What is known of our spans on a provider that is not ours, from their start until our queues take them."""

from __future__ import annotations

from collections import OrderedDict
from typing import Final

from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.trace import Span

from otel_rollout.spans.recording_span import RolloutSpan
from otel_rollout.spans.trajectory_state import TrajectoryState

__all__ = ["ProviderSpans"]

MAX_SPANS: Final = 100_000
"""Beyond this the oldest are forgotten, which never end perhaps: they are exported as they are."""


class _Unknown:
    """Says that a span is none of ours: one of ours may have no trajectory."""


_UNKNOWN: Final = _Unknown()


class ProviderSpans:
    """The trajectories of spans that are the SDK's: these can't carry them."""

    def __init__(self) -> None:
        self._trajectories: OrderedDict[int, TrajectoryState | None] = OrderedDict()
        self._inherited: set[int] = set()

    @property
    def open(self) -> int:
        """How many have started and not ended in this process."""
        return len(self._trajectories.keys() - self._inherited) if self._inherited else len(self._trajectories)

    def after_fork(self) -> None:
        """Leave what the parent has started to the parent's count."""
        self._inherited = set(self._trajectories)

    def started(self, span: Span, trajectory: TrajectoryState | None) -> None:
        """Remember whose span this is, until it has ended."""
        self._trajectories[span.get_span_context().span_id] = trajectory
        if len(self._trajectories) > MAX_SPANS:
            self._trajectories.popitem(last=False)

    def ended(self, span: ReadableSpan) -> RolloutSpan | ReadableSpan:
        """Return what is queued: the span with what was known of it, or as it is where it is none of ours.

        Args:
            span: A span of the provider that has ended.
        """
        context = span.context
        trajectory = self._trajectories.pop(context.span_id, _UNKNOWN) if context is not None else _UNKNOWN
        if context is None or isinstance(trajectory, _Unknown):
            return span
        return RolloutSpan.of_provider(span, context, trajectory)
