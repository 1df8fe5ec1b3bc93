"""Spans that have started and not ended: counted on our own provider, remembered on any other."""

from __future__ import annotations

import sys
from collections import OrderedDict
from typing import Final

from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.trace import Span

from otel_rollout.record.recording_span import RolloutSpan
from otel_rollout.record.trajectory_state import TrajectoryState

MAX_SPANS: Final = 100_000


class OpenSpans:
    """The spans that have started and not ended, and their inputs; starts and ends may be interrupted and repeated.

    Args:
        max_bytes: The most bytes of all inputs.
    """

    def __init__(self, max_bytes: int = sys.maxsize) -> None:
        self._max_bytes = max_bytes
        self._ids: dict[int, int] = {}
        """The bytes of each span's input, by its id."""
        self._bytes = 0
        """The bytes of all, up to additions that two threads make simultaneously."""

    @property
    def count(self) -> int:
        """The number of open spans, up to `MAX_SPANS`."""
        return len(self._ids)

    def started(self, span: RolloutSpan) -> None:
        """Note a start, from any thread."""
        if len(self._ids) < MAX_SPANS:
            ids = span.ids
            self._ids[ids if type(ids) is int else ids.span_id] = 0  # type: ignore[union-attr]  # just checked

    def hold(self, span: RolloutSpan, size: int) -> bool:
        """Count the bytes of an open span's input; return False if there is no room for them."""
        if self._bytes + size > self._max_bytes:
            self._bytes = sum([*self._ids.values()])
            if self._bytes + size > self._max_bytes:
                return False
        ids = span.ids
        self._bytes += size
        self._ids[ids if type(ids) is int else ids.span_id] = size  # type: ignore[union-attr]  # just checked
        return True

    def ended(self, span: RolloutSpan) -> None:
        """Note an end, from any thread."""
        ids = span.ids
        self._bytes -= self._ids.pop(ids if type(ids) is int else ids.span_id, 0)  # type: ignore[union-attr]  # likewise

    def after_fork(self) -> None:
        """Leave the parent's open spans to the parent's count."""
        self._ids.clear()
        self._bytes = 0


class ProviderSpans:
    """The trajectories of our open spans on a provider that is not ours; the SDK's spans can't hold them."""

    max_spans = MAX_SPANS
    """Beyond this the oldest are forgotten, which may never end: they are exported without their trajectory."""

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
        if len(self._trajectories) > self.max_spans:
            self._trajectories.popitem(last=False)

    def forget(self, span: Span) -> None:
        """Forget a span that has ended, if `ended` was not called."""
        self._trajectories.pop(span.get_span_context().span_id, None)

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
