"""One exporter's queue and thread, bounded in bytes; a slow or failing exporter harms no other, and no caller."""

from __future__ import annotations

import math
import sys
from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from opentelemetry import context as context_api
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export import SpanExporter

from otel_rollout.counts import ExporterStats
from otel_rollout.deliver.account import Account
from otel_rollout.deliver.batch import Batch, MemoryStore, QueueLimits
from otel_rollout.deliver.deadlines import SECONDS_OF_A_WAIT, Deadlines
from otel_rollout.deliver.running_report import RunningReport
from otel_rollout.export.backoff import RetryPolicy
from otel_rollout.export.batch_sender import BatchReport, send_batch
from otel_rollout.export.exporter import OutcomeSpanExporter, one_attempt_of
from otel_rollout.export.follow_up_requests import FollowUpRequests
from otel_rollout.export.held_spans import HeldSpans
from otel_rollout.export.outcome import Outcome, Verdict
from otel_rollout.export.trouble_log import TroubleLog
from otel_rollout.finish.span_conversion import SpanReader
from otel_rollout.finish.span_copies import copy_without_payload
from otel_rollout.guard.background_log import BackgroundLogger
from otel_rollout.guard.background_thread import BackgroundThread, call_within
from otel_rollout.guard.clock import monotonic
from otel_rollout.record.context import UNTRACED
from otel_rollout.record.finished_span import queued_size
from otel_rollout.record.recording_span import RolloutSpan
from otel_rollout.text.plain_text import counted

if TYPE_CHECKING:
    from otel_rollout.deliver.spool import Spool
    from otel_rollout.deliver.spooled_store import SpooledStore
    from otel_rollout.record.open_trajectories import OpenTrajectories

_logger = BackgroundLogger()

PAYLOAD_SHARE: Final = 0.90
"""Up to this part of the bound spans are taken whole; above it their payload is dropped."""
CHILD_SHARE: Final = 0.97
"""Up to this part children are taken, without payload; the rest is for roots."""
MIN_SECONDS_LEFT: Final = 0.05
"""With less than this left to the deadline of a shutdown, no further attempt begins."""
SECONDS_AFTER_AN_ERROR: Final = 1.0
"""The pause of delivery after an internal error, which may come again immediately."""


class ExporterQueue:
    """Takes finished spans from any thread and delivers them to one exporter, in order.

    Args:
        name: The exporter's name, for logs and statistics.
        exporter: Any `SpanExporter`; an `OutcomeSpanExporter` can report why it failed.
        reader: Converts recording spans to standard ones.
        limits: The bounds.
        policy: The retry policy.
        spool: Keeps spans on disk that memory can't hold.
        open_trajectories: Tracks the running trajectories, for an exporter that is notified of them.
    """

    def __init__(
        self,
        name: str,
        exporter: SpanExporter,
        reader: SpanReader,
        limits: QueueLimits | None = None,
        policy: RetryPolicy | None = None,
        spool: Spool | None = None,
        open_trajectories: OpenTrajectories | None = None,
    ) -> None:
        self.name = name
        self.exporter = exporter
        self._reader = reader
        reader.register()
        self._limits = limits or QueueLimits()
        self._batch_bytes = self._limits.batch_bytes
        self._follow_ups: FollowUpRequests | None = None
        self._held: HeldSpans | None = None
        if isinstance(exporter, OutcomeSpanExporter):
            self._batch_bytes = min(self._batch_bytes, exporter.max_batch_bytes)
            self._follow_ups = exporter.follow_up_requests
            self._held = exporter.held
        max_bytes, max_spans = self._limits.max_bytes, self._limits.max_spans or sys.maxsize
        # A batch is sent before the queue is full, however small the queue is.
        self._batch_bytes = min(self._batch_bytes, max(1, max_bytes // 2))
        self._batch_spans = min(self._limits.batch_spans, max(1, max_spans // 2))
        self._root_bounds = max_bytes, max_spans
        self._child_bounds = max_bytes * CHILD_SHARE, max(1, min(max_spans - 1, int(max_spans * CHILD_SHARE)))
        self._policy = policy or RetryPolicy()
        self._send_once = one_attempt_of(exporter)
        self._spool = spool
        self._open_notes = RunningReport(exporter, open_trajectories, reader.finisher.redactor)
        self._reset()

    def _reset(self) -> None:
        self._log = TroubleLog(self.name)
        self._account = account = Account()
        self._lock, self._work, self._progress = account.lock, account.work, account.progress
        memory = MemoryStore(self.name, self._reader, self._batch_bytes, self._batch_spans)
        self._store: MemoryStore | SpooledStore = memory
        if self._spool is not None:
            from otel_rollout.deliver.spooled_store import SpooledStore

            self._store = SpooledStore(memory, self._spool, self._limits.max_bytes, account, self._log)
        self._thread = BackgroundThread(f"otel-rollout-{self.name}", self._run)
        self._is_idle = self._is_closed = self._has_ended = False
        self._end = Deadlines()
        self._is_failing = False
        """True if the last attempt failed, and another one may help."""
        self._flushes = self._flushes_seen = self._configuration_errors = self._lost_at_flush = 0

    # --- from any thread

    def put(self, span: RolloutSpan | ReadableSpan) -> None:
        """Take a finished span; never waits for the exporter.

        When the queue is near its bound, payloads are dropped before spans, and children before roots.
        """
        limits, account, store = self._limits, self._account, self._store
        has_payload, is_counted, given = True, False, span
        try:
            size = queued_size(span)
            with self._lock:
                reason = None
                if self._is_closed:
                    reason = "after_shutdown"
                else:
                    if account.queued_bytes + size > limits.max_bytes * PAYLOAD_SHARE:
                        whole, span = span, copy_without_payload(span)
                        has_payload = span is whole
                        if not has_payload:
                            self._reader.release(whole)
                        size = queued_size(span)
                    max_bytes, max_spans = self._root_bounds if span.parent is None else self._child_bounds
                    queued = account.accepted - account.settled - account.spooled
                    if account.queued_bytes + size > max_bytes or queued >= max_spans:
                        reason = "queue_full"
                # A signal handler of the program may raise at a call: none comes between the counts.
                if reason is None:
                    is_counted = True
                    if isinstance(given, RolloutSpan):
                        given.taken += 1
                    account.recorded += 1
                    account.payloads_dropped += not has_payload
                    account.queued_bytes += size
                    account.accepted += 1
                    store.spans.append((span, size))
                    if self._is_idle and self._is_batch_full():
                        self._is_idle = False
                        self._work.notify()
                    if account.queued_bytes > store.spill_bytes:
                        store.make_room()
                else:
                    is_counted = True
                    if isinstance(given, RolloutSpan):
                        given.taken += 1
                    # A Counter calls Python for a missing key, which may raise at the end of the stack.
                    account.lost[reason] = account.lost.get(reason, 0) + 1
                    account.recorded += 1
        except BaseException:
            if not is_counted:
                self._count_interrupted(given)
            raise
        if reason is not None:
            self._note_dropped(span, reason)
            return
        if not has_payload:
            self._log.warn("payload", f"the queue is full ({limits.max_bytes:,} bytes): payloads are dropped")
        if not self._thread.is_started:
            self.start()

    def _count_interrupted(self, span: RolloutSpan | ReadableSpan) -> None:
        with self._lock:
            if isinstance(span, RolloutSpan):
                span.taken += 1
            lost = self._account.lost
            lost["interrupted"] = lost.get("interrupted", 0) + 1
            self._account.recorded += 1

    def _note_dropped(self, span: RolloutSpan | ReadableSpan, reason: str) -> None:
        self._reader.release(span)
        if isinstance(span, RolloutSpan) and span.trajectory is not None:
            span.trajectory.add_dropped_span(self.name)
        self._log.warn(reason, f"spans are being lost ({reason}); otel_rollout.stats() counts them")

    def start(self) -> None:
        """Start the threads if they don't run; at interpreter exit they can't be started any more."""
        with self._lock:
            if not self._is_closed:
                # In this order: whether all is started is asked of the second.
                self._store.start()
                self._thread.start()

    @property
    def preparing(self) -> str:
        """The work that spans in memory wait for before the first is sent; empty if none, or a spool keeps them."""
        is_waiting = self._spool is None and self._account.queued > 0
        return self.exporter.preparing if is_waiting and isinstance(self.exporter, OutcomeSpanExporter) else ""

    def request_flush(self) -> None:
        """Send the queued spans now, without waiting for a full batch or for the delay before the next attempt."""
        with self._lock:
            self._flushes += 1
            self._work.notify()

    def flush(self, timeout: float) -> bool:
        """Wait until all spans put before are settled, with their follow-up requests, or the backend refuses us.

        Args:
            timeout: Seconds to wait at most.

        Returns:
            True if the backend has every span put since the last flush, and the follow-up requests are done.
        """
        deadline = monotonic() + timeout
        is_delivered = self._flush_spans(deadline) and not self._holds_spans() and self._flush_exporter(deadline)
        if self._follow_ups is None:
            return is_delivered
        return self._follow_ups.flush(max(0.0, deadline - monotonic()) if is_delivered else 0.0) and is_delivered

    def _flush_exporter(self, deadline: float) -> bool:
        """Have an exporter that buffers spans itself send them; return False if it fails or takes too long."""
        exporter = self.exporter
        if isinstance(exporter, OutcomeSpanExporter) or type(exporter).force_flush is SpanExporter.force_flush:
            return True
        left = max(0.0, deadline - monotonic())
        return call_within(left, lambda: exporter.force_flush(int(left * 1000))) is not False

    def _flush_spans(self, deadline: float) -> bool:
        account = self._account
        with self._lock:
            target, configuration_errors, lost_before = (
                account.accepted,
                self._configuration_errors,
                self._lost_at_flush,
            )
            self.request_flush()
        account.await_progress(
            lambda: account.settled >= target or self._configuration_errors != configuration_errors, deadline
        )
        with self._lock:
            if account.settled < target:
                return False
            self._lost_at_flush = account.lost.total()
            # Not what another flush has noted meanwhile: a loss is news to each that waited for it.
            return self._lost_at_flush == lost_before

    def shutdown(self, deadline: float) -> None:
        """Ask the thread to deliver what it holds and end; `join` waits for it.

        Args:
            deadline: When it must have ended, in seconds of `time.monotonic`.
        """
        with self._lock:
            if self._is_closed:
                if deadline < self._end.thread:
                    # Asked again: someone pressed Ctrl-C during the wait.
                    self._store.begin_shutdown(deadline)
                    self._end.end_attempts(deadline)
                    self.request_flush()
                return
            # In this order: a signal handler may raise in between.
            self._end.begin(self._store.begin_shutdown(deadline), deadline)
            self._is_closed = True
            line = self._shorten_end() if self._is_failing else ""
            self.request_flush()
            if self._follow_ups is not None:
                self._follow_ups.retry_now()
            must_drain_here = not self._thread.is_started and bool(self._store.spans)
        self._note_end(line)
        if must_drain_here:
            # No thread could be started: the interpreter is exiting. No attempt begins after the deadline, but one
            # that hangs can't be abandoned here.
            self._thread.run_here()

    def join(self) -> bool:
        """Wait for the thread until the deadline given to `shutdown`; True if the backend has every span."""
        thread = self._thread
        if thread.is_started and not thread.is_current and self._end.attempts is not None:
            # A little later than its own deadline: then it may be putting spans on disk already.
            self._await_end(min(self._end.last_attempts + 0.1, self._end.thread))
            self._store.await_spill()
            self._await_end(self._end.thread)
        self._abandon()
        self._store.close(self._end.thread if thread.is_started else math.inf)
        is_whole = not self._account.lost and not self._account.spooled and not self._holds_spans()
        return self._end_follow_ups() and is_whole and not (self._held and self._held.lost)

    def _holds_spans(self) -> bool:
        """Return True if the exporter waits for the end of trajectories: no flush can hasten that."""
        return self._held is not None and self._held.spans > 0

    def _end_follow_ups(self) -> bool:
        """Make the follow-up requests that are left, as far as there is time; True if all were made."""
        return self._follow_ups is None or self._follow_ups.shutdown(self._end.attempts or 0.0)

    def _await_end(self, deadline: float) -> None:
        """Wait for the thread's end; not by `Thread.join`, which takes it for ended once a signal handler has raised.

        Source: https://github.com/python/cpython/issues/90882
        """
        while not self._has_ended and (now := monotonic()) < deadline:
            # In short waits: a signal that comes just before one begins doesn't interrupt it.
            self._account.await_progress(lambda: self._has_ended, min(deadline, now + SECONDS_OF_A_WAIT))

    def after_fork(self) -> None:
        """Start empty in a forked child: what the parent holds, in memory and on disk, is the parent's to deliver."""
        if self._spool is not None:
            self._spool.after_fork()
        self._reset()
        if isinstance(self.exporter, OutcomeSpanExporter):
            self.exporter.after_fork()

    def stats(self) -> ExporterStats:
        """Return the counts so far."""
        stats = self._account.stats({} if self._follow_ups is None else self._follow_ups.stats())
        if isinstance(self.exporter, OutcomeSpanExporter):
            stats = self.exporter.add_counts(stats)
        return stats if self._held is None else self._held.correct(stats)

    # --- on the queue's own thread

    def _run(self) -> None:
        token = context_api.attach(UNTRACED)
        try:
            is_last = False
            while not is_last:
                is_last = self._await_work()
                while self._store.spans or self._account.spooled:
                    if self._end.is_late:
                        break
                    self._deliver_batch()
                    self._open_notes.note()
            self._store.spill_all()
            self._deliver_rest()
            self._abandon()
            self._end_follow_ups()
        finally:
            context_api.detach(token)
            try:
                self.exporter.shutdown()
            except Exception:
                _logger.exception("%s: the exporter failed to shut down", self.name)
            finally:
                with self._lock:
                    self._has_ended = True
                    self._progress.notify_all()

    def _deliver_rest(self) -> None:
        """Use the time that is left for spans that the disk did not take."""
        self._end.give_up_the_disk()
        while self._store.spans and not self._end.is_late:
            self._deliver_batch()

    def _shorten_end(self) -> str:
        return self._end.shorten(self._account.queued, keeps_unsent=self._store.keeps_unsent)

    def _note_end(self, line: str) -> None:
        """Log a line of the end's times; without the lock, which a logging handler that traces would wait for."""
        if line:
            self._log.warn("end", line)

    def _await_work(self) -> bool:
        """Wait for a full batch, the delay, or a requested flush; True if no span can follow those in the queue."""
        deadline = monotonic() + self._limits.delay
        while True:
            self._open_notes.note()
            with self._lock:
                left = deadline - monotonic()
                if left > 0 and not self._has_work():
                    self._is_idle = True
                    self._work.wait(min(left, self._open_notes.seconds_left()))
                    self._is_idle = False
                    left = deadline - monotonic()
                if left <= 0 or self._has_work():
                    self._flushes_seen = self._flushes
                    return self._is_closed

    def _has_work(self) -> bool:
        return self._is_closed or self._flushes != self._flushes_seen or self._is_batch_full()

    def _is_batch_full(self) -> bool:
        is_large = self._account.queued_bytes >= self._batch_bytes
        return is_large or len(self._store.spans) >= self._batch_spans or self._account.spooled > 0

    def _abandon(self) -> None:
        """Count the spans that are left at the end as lost."""
        with self._lock:
            self._account.close()
            self._store.clear()
            self._progress.notify_all()

    def _deliver_batch(self) -> None:
        try:
            batch = self._store.take()
            with self._lock:
                self._account.in_flight = 0 if batch.is_from_disk else len(batch.queued)
            self._settle(batch, self._send(batch))
        except Exception:
            _logger.exception("%s: internal error while delivering", self.name)
            with self._lock:
                self._work.wait(SECONDS_AFTER_AN_ERROR)

    def _send(self, batch: Batch) -> BatchReport:
        try:
            return send_batch(
                lambda spans: self._attempt(batch.with_losses(spans)),
                batch.spans,
                wait=self._wait,
                on_trouble=self._note_trouble,
                on_lost=batch.note_lost,
                policy=self._policy,
                keeps_unsent=self._store.keeps_unsent,
            )
        except Exception:
            _logger.exception("%s: internal error while delivering a batch", self.name)
            return BatchReport(lost=Counter(internal_error=len(batch.spans)))

    def _settle(self, batch: Batch, report: BatchReport) -> None:
        if not self._store.settle(batch, report):
            return
        for span, _ in batch.queued:
            self._reader.release(span)
        if batch.unreadable:
            report.lost["internal_error"] += batch.unreadable
        account = self._account
        with self._lock:
            if account.is_closed and not batch.is_from_disk:
                account.spooled_after_close(len(report.unsent))
            if account.is_abandoned:
                return
            account.in_flight = 0
            if report.delivered:
                self._is_failing = False
                self._end.lengthen()
            account.queued_bytes -= batch.queued_bytes
            account.settled += len(batch.queued) - len(report.unsent)
            account.spooled += len(report.unsent) - (len(batch.queued) if batch.is_from_disk else 0)
            account.delivered += report.delivered
            account.payloads_shrunk += report.shrunk
            account.lost.update(report.lost)
            self._progress.notify_all()

    def _attempt(self, spans: Sequence[ReadableSpan]) -> Outcome:
        self._flushes_seen = self._flushes
        return self._send_once(spans)

    def _wait(self, seconds: float, outcome: Outcome) -> bool:
        """Wait before the next attempt; a flush shortens that, but not what the backend asked for; False if late."""
        with self._lock:
            if self._account.is_abandoned:
                return False
            deadline = self._end.attempts
            if deadline is not None and self._flushes == self._flushes_seen:
                left = deadline - monotonic()
                if outcome.verdict is Verdict.CONFIGURATION_ERROR or left < MIN_SECONDS_LEFT:
                    return False
                # Several attempts still fit in, however long the delay has grown.
                seconds = min(seconds, left / 4)
            asked_for = min(seconds, max(0.0, outcome.retry_after or 0.0))
            self._work.wait_for(
                lambda: self._flushes != self._flushes_seen and self._end.attempts is not None, asked_for
            )
            self._work.wait_for(lambda: self._flushes != self._flushes_seen, seconds - asked_for)
        return True

    def _waiting(self) -> str:
        with self._lock:
            queued, spooled = self._account.queued, self._account.spooled
        where = f"in memory ({self._limits.max_bytes / 2**20:,.0f} MiB at most)"
        if self._spool is not None:
            where = f"in memory and on disk ({self._spool.folder})"
        waiting = counted(queued + spooled, "span")
        return f"{waiting} {'waits' if queued + spooled == 1 else 'wait'} {where} until the backend takes them"

    def _note_trouble(self, outcome: Outcome) -> None:
        self._account.last_error = f"{outcome.verdict.value}: {outcome.reason}"
        can_help = outcome.verdict in (Verdict.RETRY, Verdict.UNEXPLAINED)
        self._log.note(outcome, self._waiting() if can_help else "")
        line = ""
        with self._lock:
            if can_help and self._end.attempts is not None and not self._is_failing:
                line = self._shorten_end()
            self._is_failing = can_help
            if outcome.verdict in (Verdict.RETRY, Verdict.CONFIGURATION_ERROR):
                self._store.note_trouble()
            if outcome.verdict is Verdict.CONFIGURATION_ERROR:
                self._configuration_errors += 1
                self._progress.notify_all()
        self._note_end(line)
