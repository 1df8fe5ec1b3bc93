"""Sends units in batches, and maps the outcome of a batch to its units."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from typing import Final

from opentelemetry.sdk.trace import ReadableSpan

from otel_rollout.deliver.span_outbox import QueueLimits
from otel_rollout.export.backoff import RetryPolicy
from otel_rollout.export.batch_sender import send_batch
from otel_rollout.export.follow_up_requests import FollowUpRequests
from otel_rollout.export.outcome import DELIVERED, Outcome, Verdict
from otel_rollout.guard.clock import monotonic
from otel_rollout.record.finished_span import readable_size
from otel_rollout.replay.delivered_log import DeliveredLog
from otel_rollout.replay.report import Progress, ReplayReport
from otel_rollout.replay.source import Unit, UnreadableError
from otel_rollout.replay.spool_files import SpoolSource
from otel_rollout.replay.trajectories import TrajectorySource

MAX_BATCH_UNITS = 100
"""After this many units deliveries are noted, however small the units are."""

_REFUSALS: Final = {Verdict.REFUSED.value, Verdict.TOO_LARGE.value}


class Sender:
    """Sends the units of a source that were not delivered before.

    Args:
        source: The units.
        send: One attempt to send spans to the backend.
        log: The earlier deliveries.
        limits: The bounds of a batch.
        patience: Seconds without anything delivered after which a backend that can't be reached is given up.
        policy: The policy of retries.
        follow_up_requests: The exporter's requests besides spans: a unit is delivered once these are done too.
        store_held: Stores the spans that the exporter holds until their root comes: of a unit, no more will.
        on_progress: Called with the counts and the unit's bytes, each time one is settled.
    """

    def __init__(
        self,
        source: SpoolSource | TrajectorySource,
        send: Callable[[Sequence[ReadableSpan]], Outcome],
        log: DeliveredLog,
        limits: QueueLimits,
        *,
        patience: float,
        policy: RetryPolicy | None = None,
        follow_up_requests: FollowUpRequests | None = None,
        store_held: Callable[[], Outcome] = lambda: DELIVERED,
        on_progress: Progress = lambda report, size: None,
    ) -> None:
        self.report = ReplayReport()
        self._source = source
        self._send = send
        self._log = log
        self._limits = limits
        self._patience = patience
        self._policy = policy
        self._follow_ups = follow_up_requests
        self._follow_up_requests_patience = patience
        self._store_held = store_held
        self._on_progress = on_progress
        self._last_success = monotonic()
        self._given_up_for = ""

    def run(self) -> ReplayReport:
        """Send everything, or as much as the backend takes, and return the counts."""
        batch = _UnitBatch()
        for unit in self._source.units():
            spans = self._read(unit)
            if spans is None:
                continue
            if batch.is_full_with(spans, self._limits):
                self._send_batch(batch)
                batch = _UnitBatch()
                if self._given_up_for:
                    self._leave_untried(unit)
                    continue
            batch.add(unit, spans)
            if self._source.goes_alone:
                self._send_batch(batch)
                batch = _UnitBatch()
        self._send_batch(batch)
        return self.report

    def _read(self, unit: Unit) -> Sequence[ReadableSpan] | None:
        """Return the spans of a unit; None if it is not to be sent, and settled."""
        if unit.token in self._log:
            self.report.skipped += 1
            self._settle(unit, is_delivered=True)
            return None
        if self._given_up_for:
            self._leave_untried(unit)
            return None
        try:
            return unit.read()
        except UnreadableError as error:
            self.report.unreadable += 1
            self.report.reason = str(error)
            self._settle(unit, is_delivered=False)
            return None

    def _send_batch(self, batch: _UnitBatch) -> None:
        lost = Counter(self.report.lost)
        missing = self._send_spans(batch.spans)
        touched = [part for _, spans in batch.units if (part := [span for span in spans if _key(span) in missing])]
        if len(touched) > 1 and (self.report.lost - lost).keys() <= _REFUSALS:
            # The search for bad spans ends after many in a row, which may all be of one unit: now each by itself.
            self.report.lost = lost
            missing = set().union(*map(self._send_spans, touched))
        is_complete = self._do_store_held() and self._do_follow_up_requests()
        outcomes = [(unit, is_complete and missing.isdisjoint(map(_key, spans))) for unit, spans in batch.units]
        self._log.add(unit.token for unit, is_delivered in outcomes if is_delivered)
        for unit, is_delivered in outcomes:
            self.report.delivered += is_delivered
            self.report.undelivered += not is_delivered
            self._settle(unit, is_delivered=is_delivered)

    def _do_store_held(self) -> bool:
        """Store the spans of trajectories without a root; return if that is done."""
        outcome = self._store_held()
        if outcome.verdict is Verdict.DELIVERED:
            return True
        self.report.reason = outcome.reason
        return False

    def _do_follow_up_requests(self) -> bool:
        """Wait for the requests besides spans as long as some are done; return if all are."""
        if self._follow_ups is None:
            return True
        done_before = -1
        while (done := self._done_on_the_side()) > done_before:
            done_before = done
            if self._follow_ups.flush(self._follow_up_requests_patience):
                return True
            if not any(each.waiting for each in self._follow_ups.stats().values()):
                break
        # Waited for once: each batch still tries, and the next replay sends the rest.
        self._follow_up_requests_patience = 0.0
        self.report.reason = self._follow_ups.last_error
        return False

    def _done_on_the_side(self) -> int:
        return 0 if self._follow_ups is None else sum(each.done for each in self._follow_ups.stats().values())

    def _send_spans(self, spans: Sequence[ReadableSpan]) -> set[tuple[int, int]]:
        """Send spans, and return the keys of those that the backend has not, or may not have."""
        return set().union(*map(self._send_part, self._parts(spans)))

    def _send_part(self, spans: Sequence[ReadableSpan]) -> set[tuple[int, int]]:
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
            on_trouble=self._note_trouble,
            on_lost=lambda lost: missing.update(map(_key, lost)),
            policy=self._policy,
            keeps_unsent=True,
        )
        self.report.spans += report.delivered
        self.report.shrunk += report.shrunk
        self.report.lost += report.lost
        if report.unsent:
            self._given_up_for = (
                "configuration_error" if report.unsent_reason == "configuration_error" else "unreachable"
            )
            self.report.lost[self._given_up_for] += len(report.unsent)
            missing.update(map(_key, report.unsent))
        # The backend doesn't report which spans it rejected.
        return set(map(_key, spans)) if report.lost["rejected"] else missing

    def _parts(self, spans: Sequence[ReadableSpan]) -> Iterator[list[ReadableSpan]]:
        """Cut a trajectory that exceeds a batch into several, in order."""
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

    def _attempt(self, spans: Sequence[ReadableSpan]) -> Outcome:
        outcome = self._send(spans)
        if outcome.verdict is Verdict.DELIVERED:
            self._last_success = monotonic()
        return outcome

    def _wait(self, seconds: float, outcome: Outcome) -> bool:
        if outcome.verdict is Verdict.CONFIGURATION_ERROR:
            # Retries don't mend settings.
            return False
        if outcome.verdict in (Verdict.REFUSED, Verdict.TOO_LARGE):
            # The backend answers: there is nothing to wait for, and later spans may be sound.
            return monotonic() < self._last_success + self._patience
        if monotonic() + seconds >= self._last_success + self._patience:
            return False
        time.sleep(seconds)
        return True

    def _note_trouble(self, outcome: Outcome) -> None:
        self.report.reason = outcome.reason

    def _leave_untried(self, unit: Unit) -> None:
        self.report.untried += 1
        self._settle(unit, is_delivered=False)

    def _settle(self, unit: Unit, *, is_delivered: bool) -> None:
        self._source.settled(unit, is_delivered=is_delivered)
        self._on_progress(self.report, unit.bytes)


class _UnitBatch:
    """Units that are sent together."""

    def __init__(self) -> None:
        self.units: list[tuple[Unit, Sequence[ReadableSpan]]] = []
        self.spans: list[ReadableSpan] = []
        self._bytes = 0

    def is_full_with(self, spans: Sequence[ReadableSpan], limits: QueueLimits) -> bool:
        """Return if these spans belong to the next batch."""
        return bool(self.units) and (
            self._bytes + sum(map(readable_size, spans)) > limits.batch_bytes
            or len(self.spans) + len(spans) > limits.batch_spans
            or len(self.units) >= MAX_BATCH_UNITS
        )

    def add(self, unit: Unit, spans: Sequence[ReadableSpan]) -> None:
        """Add a unit."""
        self.units.append((unit, spans))
        self.spans += spans
        self._bytes += sum(map(readable_size, spans))


def _key(span: ReadableSpan) -> tuple[int, int]:
    context = span.get_span_context()
    return (context.trace_id, context.span_id) if context is not None else (0, 0)
