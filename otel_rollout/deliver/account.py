"""The account of one exporter's spans: each that was recorded is delivered, queued, spooled or lost."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping

from otel_rollout.counts import ExporterStats, FollowUpStats
from otel_rollout.guard.clock import monotonic
from otel_rollout.guard.signal_safe_lock import SignalSafeCondition, SignalSafeLock, wait_for


class Account:
    """Counts the spans of one exporter; the queue and its store change them with `lock` held."""

    def __init__(self) -> None:
        # Reentrant: inside `put`, the garbage collector may end an abandoned span, or a signal handler ask for stats.
        self.lock = SignalSafeLock()
        self.work = SignalSafeCondition(self.lock)
        """Notified when the delivery thread has something to do."""
        self.progress = SignalSafeCondition(self.lock)
        """Notified when spans were settled, and when a thread has ended."""
        self.recorded = 0
        self.accepted = 0
        """Spans that the queue took, whatever became of them."""
        self.settled = 0
        """Accepted spans that are delivered or lost."""
        self.spooled = 0
        self.queued_bytes = 0
        self.delivered = 0
        self.payloads_dropped = 0
        self.payloads_shrunk = 0
        self.lost: Counter[str] = Counter()
        self.in_flight = 0
        """Spans of the batch that is being sent."""
        self.last_error = ""
        self.is_abandoned = False
        """If True, the result of an attempt that is still running is not counted: its spans were counted before."""
        self.is_closed = False
        """If True, the spans that were queued at the end are counted as lost."""

    @property
    def queued(self) -> int:
        """The number of spans in memory, waiting or in flight."""
        return self.accepted - self.settled - self.spooled

    def await_progress(self, is_done: Callable[[], bool], deadline: float) -> None:
        """Wait until `is_done`, or until `deadline` in seconds of `time.monotonic`; called without the lock."""
        with self.lock:
            wait_for(self.progress, is_done, deadline - monotonic())

    def close(self) -> None:
        """Count the queued spans as lost, or as unknown if they are in a request without an answer."""
        self.is_abandoned = self.is_closed = True
        queued = self.queued
        if queued:
            self.lost += Counter(unknown=min(self.in_flight, queued), shutdown=max(0, queued - self.in_flight))
            self.settled += queued
            self.queued_bytes = 0

    def spooled_after_close(self, spans: int) -> None:
        """Count spans as spooled that `close` counted as lost: the disk took longer than the shutdown had time.

        Args:
            spans: The number of spans.
        """
        unknown = min(spans, self.lost["unknown"])
        self.spooled += spans
        self.settled -= spans
        self.lost += Counter(unknown=-unknown, shutdown=unknown - spans)

    def stats(self, follow_up_requests: Mapping[str, FollowUpStats]) -> ExporterStats:
        """Return the counts so far, with the counts of follow-up requests."""
        with self.lock:
            return ExporterStats(
                recorded=self.recorded,
                delivered=self.delivered,
                queued=self.queued,
                queued_bytes=self.queued_bytes,
                spooled=self.spooled,
                lost=dict(self.lost),
                payloads_dropped=self.payloads_dropped,
                payloads_shrunk=self.payloads_shrunk,
                last_error=self.last_error,
                follow_up_requests=follow_up_requests,
            )
