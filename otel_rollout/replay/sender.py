"""Sends units in batches, through a lane of an outbox, and maps the outcome of a batch to its units."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence

from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export import SpanExporter

from otel_rollout.deliver.span_outbox import QueueLimits
from otel_rollout.export.batch_sender import send_batch
from otel_rollout.export.exporter import OutcomeSpanExporter, one_attempt_of
from otel_rollout.export.lane import RetryPolicy
from otel_rollout.export.outcome import Outcome, Verdict
from otel_rollout.guard.clock import monotonic
from otel_rollout.record.finished_span import readable_size
from otel_rollout.replay.delivered_log import DeliveredLog
from otel_rollout.replay.report import Progress, ReplayReport
from otel_rollout.replay.source import Unit, UnreadableError
from otel_rollout.replay.spool_files import SpoolSource
from otel_rollout.replay.trajectories import TrajectorySource

MAX_BATCH_UNITS = 100
"""After this many units deliveries are noted, however small the units are."""


class Sender:
    """Sends the units of a source that were not delivered before.

    Args:
        exporter: The backend; a unit is delivered once the follow-up requests about its spans are done, too.
        limits: The bounds of a batch.
        patience: Seconds without anything delivered after which a backend that can't be reached is given up.
        on_progress: Called with the counts and the unit's bytes, each time one is settled.
    """

    def __init__(
        self,
        source: SpoolSource | TrajectorySource,
        exporter: SpanExporter,
        log: DeliveredLog,
        limits: QueueLimits,
        *,
        patience: float,
        policy: RetryPolicy | None = None,
        on_progress: Progress = lambda report, size: None,
    ) -> None:
        self.report = ReplayReport()
        self._source = source
        self._exporter = exporter if isinstance(exporter, OutcomeSpanExporter) else None
        self._send_once = one_attempt_of(exporter)
        self._log = log
        self._limits = limits
        self._patience = self._follow_up_patience = patience
        self._policy = policy
        self._on_progress = on_progress
        self._last_success = monotonic()
        self._given_up_for = ""

    def run(self) -> ReplayReport:
        """Send everything, or as much as the backend takes, and return the counts."""
        most = 1 if self._source.goes_alone else MAX_BATCH_UNITS
        units: list[tuple[Unit, Sequence[ReadableSpan]]] = []
        room = spans_left = 0
        for unit in self._source.units():
            spans = self._read(unit)
            if spans is None:
                continue
            size = sum(map(readable_size, spans))
            if units and (size > room or len(spans) > spans_left or len(units) >= most):
                self._deliver(units)
                units = []
                if self._given_up_for:
                    self._leave_untried(unit)
                    continue
            if not units:
                room, spans_left = self._limits.batch_bytes, self._limits.batch_spans
            units.append((unit, spans))
            room, spans_left = room - size, spans_left - len(spans)
            if most == 1:
                self._deliver(units)
                units = []
        self._deliver(units)
        return self.report

    def _read(self, unit: Unit) -> Sequence[ReadableSpan] | None:
        """Return the spans of a unit; None if it is not to be sent, and settled."""
        if unit.token in self._log:
            self.report.skipped += 1
            self._settle(unit, is_delivered=True)
        elif self._given_up_for:
            self._leave_untried(unit)
        else:
            try:
                return unit.read()
            except UnreadableError as error:
                self.report.unreadable += 1
                self.report.reason = str(error)
                self._settle(unit, is_delivered=False)
        return None

    def _deliver(self, units: Sequence[tuple[Unit, Sequence[ReadableSpan]]]) -> None:
        """Send units together, and note those that the backend has whole."""
        missing: set[tuple[int, int]] = set()
        for part in self._parts([span for _, spans in units for span in spans]):
            missing |= self._send(part)
        is_complete = self._store_held() and self._do_follow_ups()
        outcomes = [(unit, is_complete and missing.isdisjoint(map(_key, spans))) for unit, spans in units]
        self._log.add(unit.token for unit, is_delivered in outcomes if is_delivered)
        for unit, is_delivered in outcomes:
            self.report.delivered += is_delivered
            self.report.undelivered += not is_delivered
            self._settle(unit, is_delivered=is_delivered)

    def _parts(self, spans: Sequence[ReadableSpan]) -> Iterator[list[ReadableSpan]]:
        """Cut a unit that exceeds a batch into several, in order."""
        part: list[ReadableSpan] = []
        size = 0
        for span in spans:
            span_size = readable_size(span)
            if part and (size + span_size > self._limits.batch_bytes or len(part) >= self._limits.batch_spans):
                yield part
                part, size = [], 0
            part.append(span)
            size += span_size
        if part:
            yield part

    def _send(self, spans: Sequence[ReadableSpan]) -> set[tuple[int, int]]:
        """Send a batch, and return the keys of the spans that the backend has not, or may not have."""
        if self._given_up_for:
            self.report.lost[self._given_up_for] += len(spans)
            return set(map(_key, spans))
        missing: set[tuple[int, int]] = set()
        self._last_success = monotonic()
        report = send_batch(
            self._attempt,
            spans,
            wait=self._wait,
            on_trouble=self._note,
            on_lost=lambda lost: missing.update(map(_key, lost)),
            policy=self._policy,
            keeps_unsent=True,
        )
        self.report.spans += report.delivered
        self.report.shrunk += report.shrunk
        self.report.lost += report.lost
        if report.unsent:
            self._given_up_for = "unreachable" if report.unsent_reason == "shutdown" else report.unsent_reason
            self.report.lost[self._given_up_for] += len(report.unsent)
            missing.update(map(_key, report.unsent))
        # The backend doesn't report which spans it rejected.
        return set(map(_key, spans)) if report.lost["rejected"] else missing

    def _attempt(self, spans: Sequence[ReadableSpan]) -> Outcome:
        outcome = self._send_once(spans)
        if outcome.verdict is Verdict.DELIVERED:
            self._last_success = monotonic()
        return outcome

    def _wait(self, seconds: float, outcome: Outcome) -> bool:
        if outcome.verdict is Verdict.CONFIGURATION_ERROR:
            # Retries don't mend settings.
            return False
        if outcome.verdict in (Verdict.REFUSED, Verdict.TOO_LARGE):
            # The backend answers: there is nothing to wait for, and later spans may be sound.
            seconds = 0.0
        if monotonic() + seconds >= self._last_success + self._patience:
            return False
        time.sleep(seconds)
        return True

    def _note(self, outcome: Outcome) -> None:
        self.report.reason = outcome.reason

    def _store_held(self) -> bool:
        """Store what the exporter holds until its root comes: of a unit, no more will; return if that is done."""
        if self._exporter is None:
            return True
        outcome = self._exporter.store_held()
        if outcome.verdict is Verdict.DELIVERED:
            return True
        self._note(outcome)
        return False

    def _do_follow_ups(self) -> bool:
        """Wait for the requests besides spans as long as some are done; return if all are."""
        requests = None if self._exporter is None else self._exporter.follow_up_requests
        if requests is None:
            return True
        done_before = -1
        while (done := sum(each.done for each in requests.stats().values())) > done_before:
            done_before = done
            if requests.flush(self._follow_up_patience):
                return True
            if not any(each.waiting for each in requests.stats().values()):
                break
        # Waited for once: each batch still tries, and the next replay sends the rest.
        self._follow_up_patience = 0.0
        self.report.reason = requests.last_error
        return False

    def _leave_untried(self, unit: Unit) -> None:
        self.report.untried += 1
        self._settle(unit, is_delivered=False)

    def _settle(self, unit: Unit, *, is_delivered: bool) -> None:
        self._source.settled(unit, is_delivered=is_delivered)
        self._on_progress(self.report, unit.bytes)


def _key(span: ReadableSpan) -> tuple[int, int]:
    context = span.get_span_context()
    return (context.trace_id, context.span_id) if context is not None else (0, 0)
