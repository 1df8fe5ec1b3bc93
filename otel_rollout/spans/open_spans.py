"""Spans that have started and not ended: counted on our own provider, remembered on any other."""

from __future__ import annotations

import itertools
from collections import OrderedDict
from typing import Final

from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.trace import Span

from otel_rollout.spans.recording_span import RolloutSpan
from otel_rollout.spans.trajectory_state import TrajectoryState

__all__ = ["OpenSpans", "ProviderSpans"]

MAX_SPANS: Final = 100_000
"""Beyond this the oldest are forgotten, which may never end: they are exported without their trajectory."""


class OpenSpans:
    """Counts starts and ends from any thread, without a lock that every span would wait for."""

    __slots__ = ("_inherited", "ended", "started")

    def __init__(self) -> None:
        # Unlike an addition to an int, this is atomic.
        self.started = itertools.count().__next__
        self.ended = itertools.count().__next__
        self._inherited = 0

    def count(self) -> int:
        """Return the number of open spans."""
        return max(0, self._difference() - self._inherited)

    def after_fork(self) -> None:
        """Leave the parent's open spans to the parent's count."""
        self._inherited = self._difference()

    def _difference(self) -> int:
        # Reading counts one more on both sides. Ends first: a span may start and end in between.
        ended = self.ended()
        return self.started() - ended


class ProviderSpans:
    """The trajectories of our open spans on a provider that is not ours; the SDK's spans can't hold them."""

    def __init__(self) -> None:
        self._trajectories: OrderedDict[int, TrajectoryState | None] = OrderedDict()
        self._inherited: set[int] = set()

    @property
    def open(self) -> int:
        """The number of spans that this process started and that have not ended."""
        return len(self._trajectories.keys() - self._inherited) if self._inherited else len(self._trajectories)

    def after_fork(self) -> None:
        """Leave the parent's open spans to the parent's count."""
        self._inherited = set(self._trajectories)

    def started(self, span: Span, trajectory: TrajectoryState | None) -> None:
        """Remember the trajectory of a span until the span ends."""
        self._trajectories[span.get_span_context().span_id] = trajectory
        if len(self._trajectories) > MAX_SPANS:
            self._trajectories.popitem(last=False)

    def ended(self, span: ReadableSpan) -> RolloutSpan | ReadableSpan:
        """Return the span to queue: ours with its trajectory, any other unchanged.

        Args:
            span: A span of the provider that has ended.
        """
        context = span.context
        if context is None:
            return span
        try:
            trajectory = self._trajectories.pop(context.span_id)
        except KeyError:
            return span
        return RolloutSpan.of_provider(span, context, trajectory)
