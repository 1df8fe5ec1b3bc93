"""Sends trajectories through an outbox, and maps the outcomes of spans to their trajectories."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export import SpanExporter
from opentelemetry.sdk.util.instrumentation import InstrumentationScope

from otel_rollout.deliver.span_outbox import QueueLimits, SpanOutbox
from otel_rollout.errors import UnreadableTraceError
from otel_rollout.export.exporter import OutcomeSpanExporter
from otel_rollout.export.lane import Lane, RetryPolicy
from otel_rollout.export.outcome import Outcome, Verdict
from otel_rollout.finish.payload_finisher import PayloadFinisher
from otel_rollout.finish.span_conversion import SpanReader
from otel_rollout.guard.clock import monotonic
from otel_rollout.record.finished_span import readable_size
from otel_rollout.record.recording_span import RolloutSpan
from otel_rollout.replay.delivered_log import DeliveredLog
from otel_rollout.replay.report import Progress, ReplayReport
from otel_rollout.replay.trajectories import TrajectorySource, Unit

MAX_BATCH_UNITS = 100
"""After this many trajectories deliveries are noted, however small they are."""
SECONDS_TO_END = 60.0
"""The longest wait for the exporter's shutdown."""
POLICY = RetryPolicy(configuration_delay=1.0)
"""An auth or configuration error ends a replay; while a backend refuses spans, there is nothing to wait for."""


class Sender:
    """Sends the trajectories of a source that were not delivered before.

    Args:
        exporter: The backend; a trajectory is delivered once the follow-up requests about its spans are done, too.
        limits: The bounds of a batch.
        patience: Seconds without anything delivered after which a backend that can't be reached is given up.
    """

    def __init__(
        self,
        source: TrajectorySource,
        exporter: SpanExporter,
        log: DeliveredLog,
        limits: QueueLimits,
        *,
        patience: float,
        policy: RetryPolicy | None = None,
    ) -> None:
        self.report = ReplayReport()
        self._source = source
        self._exporter = exporter if isinstance(exporter, OutcomeSpanExporter) else None
        self._follow_ups = None if self._exporter is None else self._exporter.follow_up_requests
        self._outbox = _Outbox(exporter, limits, policy or POLICY)
        self._log = log
        self._limits = limits
        self._patience = self._follow_up_patience = patience
        self.on_progress: Progress = lambda report, size: None
        """Called with the counts and a trajectory's bytes, each time one is settled."""
        self._is_given_up = False

    def run(self) -> ReplayReport:
        """Send everything, or as much as the backend takes, and return the counts."""
        # Its thread shuts the exporter down, even if there is nothing to send.
        self._outbox.start()
        units: list[tuple[Unit, Sequence[ReadableSpan]]] = []
        room = spans_left = 0
        for unit in self._source.units():
            if (spans := self._read(unit)) is None:
                continue
            size = sum(map(readable_size, spans))
            if units and (size > room or len(spans) > spans_left or len(units) >= MAX_BATCH_UNITS):
                self._deliver(units)
                units = []
                if self._is_given_up:
                    self._leave_untried(unit)
                    continue
            if not units:
                room, spans_left = self._limits.batch_bytes, self._limits.batch_spans
            units.append((unit, spans))
            room, spans_left = room - size, spans_left - len(spans)
        if units:
            self._deliver(units)
        return self.report

    def close(self, *, is_interrupted: bool = False) -> None:
        """End the outbox, and shut the exporter down."""
        self._outbox.shutdown(monotonic() + (1.0 if is_interrupted else SECONDS_TO_END))
        self._outbox.join()
        self._count()

    def _read(self, unit: Unit) -> Sequence[ReadableSpan] | None:
        """Return the spans of a trajectory; None if it is not to be sent, and settled."""
        if unit.token in self._log:
            self.report.skipped += 1
            self._settle(unit, is_delivered=True)
        elif self._is_given_up:
            self._leave_untried(unit)
        else:
            try:
                return unit.read()
            except UnreadableTraceError as error:
                self.report.unreadable += 1
                self.report.reason = str(error)
                self._settle(unit, is_delivered=False)
        return None

    def _deliver(self, units: Sequence[tuple[Unit, Sequence[ReadableSpan]]]) -> None:
        """Send trajectories together, and note those that the backend has whole."""
        missing = self._outbox.missing
        missing.clear()
        self._outbox.last_error = ""
        unattributed = self._unattributed
        for span in (span for _, spans in units for span in spans):
            self._outbox.put(span)
        self._is_given_up = not self._outbox.drain(self._patience)
        if self._is_given_up:
            self._outbox.give_up()
        is_complete = (
            not self._is_given_up
            and self._store_held()
            and self._do_follow_ups()
            and self._unattributed == unattributed
        )
        if self._follow_ups is not None and not is_complete:
            self._outbox.last_error = self._outbox.last_error or self._follow_ups.last_error
        self._count()
        outcomes = [(unit, is_complete and missing.isdisjoint(map(_key, spans))) for unit, spans in units]
        self._log.add(unit.token for unit, is_delivered in outcomes if is_delivered)
        for unit, is_delivered in outcomes:
            self.report.delivered += is_delivered
            self.report.undelivered += not is_delivered
            self._settle(unit, is_delivered=is_delivered)

    @property
    def _unattributed(self) -> int:
        """The number of losses of which nobody knows the trajectories: rejected spans, and follow-up requests."""
        stats = self._outbox.stats()
        requests = {} if self._follow_ups is None else self._follow_ups.stats()
        return stats.lost.get("rejected", 0) + sum(sum(each.lost.values()) for each in requests.values())

    def _count(self) -> None:
        stats = self._outbox.stats()
        self.report.spans, self.report.shrunk = stats.delivered, stats.payloads_shrunk
        self.report.lost = Counter(stats.lost)
        self.report.reason = self._outbox.last_error or self.report.reason

    def _store_held(self) -> bool:
        """Store what the exporter holds until its root comes: of a trajectory, no more will; return if that is done."""
        if self._exporter is None:
            return True
        outcome = self._exporter.store_held()
        if outcome.verdict is not Verdict.DELIVERED:
            self._outbox.last_error = outcome.reason
        return outcome.verdict is Verdict.DELIVERED

    def _do_follow_ups(self) -> bool:
        """Wait for the requests besides spans as long as some are done; return if none is left."""
        if self._follow_ups is None or self._follow_ups.drain(self._follow_up_patience):
            return True
        # Waited for once: each batch still tries, and the next replay sends the rest.
        self._follow_up_patience = 0.0
        return False

    def _leave_untried(self, unit: Unit) -> None:
        self.report.untried += 1
        self._settle(unit, is_delivered=False)

    def _settle(self, unit: Unit, *, is_delivered: bool) -> None:
        if not is_delivered:
            self._source.kept.update(unit.files)
        self.on_progress(self.report, unit.bytes)


class _Outbox(SpanOutbox):
    """An outbox of spans as they were recorded, which notes those that are lost and logs nothing."""

    def __init__(self, exporter: SpanExporter, limits: QueueLimits, policy: RetryPolicy) -> None:
        # One group is in it at a time: it is never full.
        super().__init__("replay", exporter, _AsRecorded(), replace(limits, max_bytes=2**62), policy)
        # They outlast the spans of a group, and are waited for less.
        self._follow_ups = None
        self.missing: set[tuple[int, int]] = set()
        """The trace and span ids of the lost spans."""

    def give_up(self) -> None:
        """Count what is left as lost, and make no further attempt."""
        with self._lock:
            self._abandon()

    def _seconds_to_load(self, now: float) -> float | None:
        # A group goes once all of it is here.
        return super()._seconds_to_load(now) if self._flushes else None

    def _note_loss(self, span: RolloutSpan | ReadableSpan, reason: str, number: int = 1) -> None:
        self.missing.add(_key(span))

    def _note_trouble(self, lane: Lane, outcome: Outcome) -> None:
        self.last_error = outcome.reason


class _AsRecorded(SpanReader):
    """Leaves spans as they are."""

    def __init__(self) -> None:
        super().__init__(Resource({}), InstrumentationScope("replay"), PayloadFinisher(2**62, None))

    def read(self, span: RolloutSpan | ReadableSpan, exporter: str) -> ReadableSpan:
        assert isinstance(span, ReadableSpan)  # noqa: S101 - a trace folder has no others
        return span


def _key(span: RolloutSpan | ReadableSpan) -> tuple[int, int]:
    context = span.get_span_context()
    return (context.trace_id, context.span_id) if context is not None else (0, 0)
