"""One exporter's spans: a bounded outbox that any thread puts into; a slow or failing exporter harms no other."""

from __future__ import annotations

import math
import sys
import threading
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, TypeAlias

from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export import SpanExporter

from otel_rollout import semconv
from otel_rollout.counts import ExporterStats, Loss
from otel_rollout.deliver.running_report import RunningReport
from otel_rollout.export.exporter import OutcomeSpanExporter, one_attempt_of
from otel_rollout.export.follow_up_requests import FollowUpRequests
from otel_rollout.export.lane import Entry, Lane, NotYet, RetryPolicy, Settled
from otel_rollout.export.outbox import MIN_SECONDS_LEFT, SECONDS_OF_A_WAIT, Account, Outbox
from otel_rollout.export.outcome import Outcome, Verdict
from otel_rollout.finish.span_conversion import SpanReader
from otel_rollout.finish.span_copies import copy_with_losses, copy_without_payload, shrunk_copy
from otel_rollout.guard.background_thread import call_within
from otel_rollout.guard.clock import monotonic
from otel_rollout.guard.gil import GilYielder
from otel_rollout.guard.safe_logger import SafeLogger
from otel_rollout.record.finished_span import encoded_size, queued_size
from otel_rollout.record.recording_span import RolloutSpan
from otel_rollout.text.plain_text import counted

if TYPE_CHECKING:
    from otel_rollout.record.open_trajectories import OpenTrajectories

_logger = SafeLogger()

PAYLOAD_SHARE: Final = 0.90
"""Up to this part of the bound spans are taken whole; above it their payload is dropped."""
CHILD_SHARE: Final = 0.97
"""Up to this part children are taken, without payload; the rest is for roots."""

SECONDS_BETWEEN_REPORTS: Final = 2.0
"""Losses are reported to the exporter in sums."""

_CONSEQUENCES: Final = {
    Verdict.RETRY: "not delivered, trying again",
    Verdict.TOO_LARGE: "a batch is too large, sending it in parts",
    Verdict.REFUSED: "a batch was refused, looking for the span at fault",
    Verdict.CONFIGURATION_ERROR: "auth or configuration error: spans are kept within the bound until it is fixed",
    Verdict.UNEXPLAINED: "failed, trying again",
    Verdict.DELIVERED: "the backend did not keep all spans",
}

QueuedSpan: TypeAlias = "tuple[RolloutSpan | ReadableSpan, int, int]"
"""A span, the bytes that it takes in the queue, and its number."""


@dataclass(frozen=True)
class QueueLimits:
    """The bounds of an outbox and of its batches.

    Args:
        max_bytes: Bytes held, waiting and in flight.
        max_spans: Spans held, where a count is asked for (`OTEL_BSP_MAX_QUEUE_SIZE`).
        batch_bytes: Bytes of a batch; a single larger span goes alone.
        batch_spans: Spans of a batch.
        delay: Seconds that a span waits at most for others to fill a batch.
    """

    max_bytes: int = 256 * 1024 * 1024
    max_spans: int | None = None
    batch_bytes: int = 4 * 1024 * 1024
    batch_spans: int = 512
    delay: float = 1.0


class SpanOutbox(Outbox):
    """Takes finished spans from any thread and delivers them to one exporter, in order.

    Args:
        exporter: Any `SpanExporter`; an `OutcomeSpanExporter` can report why it failed.
        reader: Converts recording spans to standard ones.
        open_trajectories: Tracks the running trajectories, for an exporter that is notified of them.
    """

    def __init__(
        self,
        name: str,
        exporter: SpanExporter,
        reader: SpanReader,
        limits: QueueLimits | None = None,
        policy: RetryPolicy | None = None,
        open_trajectories: OpenTrajectories | None = None,
    ) -> None:
        super().__init__(name, f"otel-rollout-{name}", policy)
        self.exporter = exporter
        self._reader = reader
        reader.register(name, takes_records=vars(type(exporter)).get("takes_records") is True)
        self._limits = limits or QueueLimits()
        self._batch_bytes = self._limits.batch_bytes
        self._follow_ups: FollowUpRequests | None = None
        if isinstance(exporter, OutcomeSpanExporter):
            self._batch_bytes = min(self._batch_bytes, exporter.max_batch_bytes)
            self._follow_ups = exporter.follow_up_requests
        max_bytes, max_spans = self._limits.max_bytes, self._limits.max_spans or sys.maxsize
        # A batch is sent before the queue is full, however small the queue is.
        self._batch_bytes = min(self._batch_bytes, max(1, max_bytes // 2))
        self._batch_spans = min(self._limits.batch_spans, max(1, max_spans // 2))
        self._root_bounds = max_bytes, max_spans
        self._child_bounds = max_bytes * CHILD_SHARE, max(1, min(max_spans - 1, int(max_spans * CHILD_SHARE)))
        self._send_once = one_attempt_of(exporter)
        # The user's functions may hide an input at the end of its span.
        has_inputs, redactor = not reader.transforms, reader.finisher.redactor
        self._open_notes = RunningReport(exporter, open_trajectories, redactor, has_inputs=has_inputs)
        self._reset()

    def _reset(self) -> None:
        super()._reset()
        self._account = Account()
        self._accounts = {"": self._account}
        self._lane = Lane(self._batch_spans, self._policy, shrink=shrunk_copy)
        self._queued: deque[QueuedSpan] = deque()
        self._bytes = 0
        self._payloads_dropped = self._payloads_shrunk = 0
        self._batch_due: float | None = None
        """The time at which a batch goes though it isn't full; None if no span waits."""
        self._has_new_losses = False
        """True if a root in the lane may lack a loss in its trajectory."""
        self._losses: dict[Loss, int] = {}
        """The numbers of lost spans that wait for `note_lost`."""
        self._report_due = 0.0
        self._unknown: set[int] = set()
        self._end_reason = "shutdown"
        self._spooled = 0
        """The number of spans on disk."""
        self._spill_bytes = math.inf
        """Above this many bytes in memory, spans go to disk."""
        self._last_attempts = 0.0
        """The end of attempts if the disk can't keep the rest; 0 before the shutdown."""
        self._thread_end = 0.0
        """The end of the thread, which may put spans on disk after the last attempt."""
        self._has_said_wait = False
        self._is_failing = False
        """True if the last attempt failed, and another one may help."""

    # --- what a spool adds

    def _make_room(self) -> None:
        """Called with the lock held when memory holds more than `_spill_bytes`."""
        return

    def _begin_shutdown(self, deadline: float) -> float:
        """Return the end of attempts, so that the disk has its time until `deadline`; with the lock held."""
        return deadline

    def _await_disk(self) -> None:
        """Called after the last attempt, on the thread that joins."""
        return

    def _close_disk(self) -> None:
        """Called once all is settled or on disk, on the thread that joins."""
        return

    # --- from any thread

    def put(self, span: RolloutSpan | ReadableSpan) -> None:
        """Take a finished span; never waits for the exporter.

        When the queue is near its bound, payloads are dropped before spans, and children before roots.
        """
        limits, is_whole, is_counted, reason = self._limits, True, False, ""
        try:
            size = queued_size(span)
            with self._lock:
                if self._is_closed:
                    reason = "after_shutdown"
                else:
                    if self._bytes + size > limits.max_bytes * PAYLOAD_SHARE:
                        whole, span = span, copy_without_payload(span)
                        is_whole = span is whole
                        if not is_whole:
                            self._reader.release(whole)
                        size = queued_size(span)
                    max_bytes, max_spans = self._root_bounds if span.parent is None else self._child_bounds
                    if self._bytes + size > max_bytes or (limits.max_spans and self._in_memory >= max_spans):
                        reason = "queue_full"
                # A signal handler of the program may raise at a call: none comes between the counts.
                is_counted = True
                self._account.recorded += 1
                if reason:
                    self._account.lose(reason)
                else:
                    self._payloads_dropped += not is_whole
                    self._bytes += size
                    self._number += 1
                    self._queued.append((span, size, self._number))
                    if self._is_idle and (len(self._queued) == 1 or self._is_batch_full):
                        self._wake()
                    if self._bytes > self._spill_bytes:
                        self._make_room()
        except BaseException:
            if not is_counted:
                with self._lock:
                    self._account.recorded += 1
                    self._account.lose("interrupted")
            raise
        if reason:
            self._note_loss(span, reason)
            self._reader.release(span)
            if isinstance(span, RolloutSpan) and span.trajectory is not None:
                span.trajectory.add_dropped_span(self.name)
            self.warn(reason, f"spans are being lost ({reason}); otel_rollout.stats() counts them")
            return
        if not is_whole:
            self.warn("payload", f"the queue is full ({limits.max_bytes:,} bytes): payloads are dropped")
        if not self._thread.is_started:
            self.start()

    def _note_loss(self, span: RolloutSpan | ReadableSpan, reason: str, number: int = 1) -> None:
        if isinstance(span, RolloutSpan):
            tags: Mapping[str, object] = span.attributes if span.trajectory is None else span.trajectory.tags
        else:
            tags = span.attributes or {}
        step, experiment = tags.get(semconv.STEP), tags.get(semconv.EXPERIMENT_NAME)
        step, experiment = step if type(step) is int else None, experiment if type(experiment) is str else None
        loss = Loss(reason, step, tags.get(semconv.VALIDATE) is True, experiment)
        with self._lock:
            self._losses[loss] = self._losses.get(loss, 0) + number

    def _report_losses(self) -> None:
        """Hand the losses since the last time to the exporter."""
        if isinstance(self.exporter, OutcomeSpanExporter) and self._losses:
            with self._lock:
                losses, self._losses = self._losses, {}
            self.exporter.note_lost(losses)

    @property
    def _in_memory(self) -> int:
        """The number of spans in memory, waiting or in flight."""
        return self._account.waiting - self._spooled

    @property
    def _is_batch_full(self) -> bool:
        return self._bytes >= self._batch_bytes or len(self._queued) >= self._batch_spans

    def start(self) -> None:
        """Start the threads if they don't run; at interpreter exit they can't be started any more."""
        with self._lock:
            if not self._is_closed:
                self._thread.start()

    @property
    def preparing(self) -> str:
        """The work that spans wait for before the first is sent; empty if none, or a spool keeps them."""
        has_spans = self._in_memory > 0
        return self.exporter.preparing if has_spans and isinstance(self.exporter, OutcomeSpanExporter) else ""

    def retry_now(self) -> None:
        """Send the queued spans now, without waiting for a full batch or for the delay before the next attempt."""
        with self._lock:
            self._batch_due = 0.0
            super().retry_now()

    def flush(self, timeout: float) -> bool:
        """Wait until all spans put before are settled, with their follow-up requests, or the backend refuses us.

        Returns:
            True if the backend has every span put since the last flush, and the follow-up requests are done.
        """
        deadline = monotonic() + timeout
        return self._flush_entries(deadline) and self._flush_exporter(deadline)

    def _flush_exporter(self, deadline: float) -> bool:
        """Have the exporter send what it buffers itself; return False if it fails or takes too long."""
        exporter = self.exporter
        if type(exporter).force_flush is SpanExporter.force_flush:
            return True
        seconds = min(max(0.0, deadline - monotonic()), threading.TIMEOUT_MAX)

        def force_flush() -> bool:
            try:
                return exporter.force_flush(int(seconds * 1000)) is not False
            except Exception:
                _logger.exception("%s: the exporter failed to flush", self.name)
                return False

        if isinstance(exporter, OutcomeSpanExporter):
            return force_flush()
        return call_within(max(MIN_SECONDS_LEFT, seconds), force_flush) is True

    def shutdown(self, deadline: float) -> None:
        """Have the thread deliver what it holds and end by `deadline` (of `time.monotonic`); `join` waits for it."""
        with self._lock:
            if self._is_closed:
                if deadline < self._thread_end:
                    # Asked again: someone pressed Ctrl-C during the wait.
                    self._begin_shutdown(deadline)
                    self._thread_end = deadline
                    self._attempts_end = self._last_attempts = min(self._last_attempts, monotonic())
                    self.retry_now()
                return
            attempts = self._begin_shutdown(deadline)
            self._thread_end, self._last_attempts = deadline, attempts
            self._close(attempts)
            line = self._shorten_end() if self._is_failing else ""
            if self._follow_ups is not None:
                self._follow_ups.retry_now()
            must_drain_here = not self._thread.is_started and bool(self._queued)
        # Without the lock, which a logging handler that traces would wait for.
        if line:
            self.warn("end", line)
        if must_drain_here:
            # No thread could be started: the interpreter is exiting. No attempt begins after the deadline, but one
            # that hangs can't be abandoned here.
            self._thread.run_here()

    def join(self) -> bool:
        """Wait for the thread until the deadline given to `shutdown`; True if the backend has every span."""
        if self._thread.is_started and self._attempts_end is not None:
            # A little later than its own deadline: then it may be putting spans on disk already.
            while not self._has_ended and monotonic() < (end := min(self._last_attempts + 0.1, self._thread_end)):
                self._await_end(min(end, monotonic() + SECONDS_OF_A_WAIT))
            self._await_disk()
            self._await_end(self._thread_end)
        with self._lock:
            self._abandon()
        if not self._has_ended:
            # The thread may be in an attempt until the process is gone.
            call_within(SECONDS_OF_A_WAIT, self._report_losses)
        self._close_disk()
        stats = self.stats()
        return self._end_follow_ups() and stats.delivered == stats.recorded

    def _end_follow_ups(self) -> bool:
        """Make the follow-up requests that are left, as far as there is time; True if all were made."""
        return self._follow_ups is None or self._follow_ups.shutdown(self._attempts_end or 0.0)

    def after_fork(self) -> None:
        """Start empty in a forked child: what the parent holds, in memory and on disk, is the parent's to deliver."""
        self._reset()
        if isinstance(self.exporter, OutcomeSpanExporter):
            self.exporter.after_fork()

    def stats(self) -> ExporterStats:
        """Return the counts so far."""
        follow_ups = {} if self._follow_ups is None else self._follow_ups.stats()
        with self._lock:
            account = self._account
            stats = ExporterStats(
                recorded=account.recorded,
                delivered=account.delivered,
                queued=account.waiting - self._spooled,
                queued_bytes=self._bytes,
                spooled=self._spooled,
                lost=dict(account.lost),
                payloads_dropped=self._payloads_dropped,
                payloads_shrunk=self._payloads_shrunk,
                last_error=self.last_error,
                follow_up_requests=follow_ups,
            )
        return self.exporter.add_counts(stats) if isinstance(self.exporter, OutcomeSpanExporter) else stats

    # --- the lane of the batch that is sent, with the lock held

    def _lanes_in_use(self) -> Iterable[Lane]:
        return (self._lane,) if self._lane.entries else ()

    def _seconds_to_load(self, now: float) -> float | None:
        if not self._lane.wants_more:
            return None
        if not self._queued:
            self._batch_due = None
            return None
        if self._batch_due is None:
            self._batch_due = now + self._limits.delay
        return 0.0 if self._is_closed or self._is_batch_full else max(0.0, self._batch_due - now)

    def _note_settled(self, lane: Lane, entries: Sequence[Entry]) -> None:
        for entry in entries:
            self._bytes -= entry.size
            self._reader.release(entry.source)

    def _count(self, lane: Lane, settled: Settled, outcome: Outcome | NotYet) -> None:
        super()._count(lane, settled, outcome)
        if isinstance(outcome, Outcome) and settled.done and not outcome.rejected:
            self._payloads_shrunk += sum(entry.original is not None for entry in settled.done)
        for entry, reason in settled.lost:
            self._note_loss(entry.source, reason)
            if isinstance(entry.source, RolloutSpan) and entry.source.trajectory is not None:
                entry.source.trajectory.add_dropped_span(self.name)
                self._has_new_losses = True
        if settled.done:
            self._is_failing = False
            if self._attempts_end is not None:
                self._attempts_end = self._last_attempts

    def _abandon(self) -> None:
        if self._is_abandoned:
            return
        self._is_abandoned = True
        self._end_reason = reason = "configuration_error" if self._lane.is_stuck else "shutdown"
        for entry in self._lane.entries.values():
            if entry.place is not None:
                continue
            is_unknown = entry.is_in_flight or entry.is_unanswered
            if is_unknown:
                self._unknown.add(id(entry))
                self._account.lose("unknown")
            self._note_loss(entry.source, "unknown" if is_unknown else reason)
            self._reader.release(entry.source)
        self._lane.entries.clear()
        while self._queued:
            # One by one: the threads may be taking some.
            span, _, _ = self._queued.popleft()
            self._note_loss(span, reason)
            self._reader.release(span)
        self._account.lose(reason, self._in_memory)
        self._bytes = 0
        self._notify()

    def _count_late(self, lane: Lane, entries: Sequence[Entry], outcome: Outcome | NotYet) -> None:
        unknown = [entry for entry in entries if id(entry) in self._unknown]
        if not unknown or not isinstance(outcome, Outcome) or outcome.is_unanswered:
            return
        self._unknown -= {id(entry) for entry in unknown}
        self._account.lose("unknown", -len(unknown))
        for entry in unknown:
            self._note_loss(entry.source, "unknown", -1)
            if outcome.verdict is not Verdict.DELIVERED:
                self._note_loss(entry.source, "shutdown")
        if outcome.verdict is Verdict.DELIVERED:
            self._account.delivered += len(unknown)
        else:
            self._account.lose("shutdown", len(unknown))

    # --- on the outbox's own thread

    def _take_oldest(self) -> list[Entry]:
        """Remove the oldest spans from memory, up to a full batch, and convert them."""
        entries: list[Entry] = []
        yielder = GilYielder()
        total = 0
        while len(entries) < self._batch_spans:
            try:
                span, queued_bytes, number = self._queued.popleft()
            except IndexError:
                break
            try:
                readable = self._reader.read(span, self.name)
                size = encoded_size(span, readable)
            except Exception:
                _logger.exception("%s: internal error while reading the span %r", self.name, span.name)
                with self._lock:
                    if not self._is_abandoned:
                        self._account.lose("internal_error")
                        self._note_loss(span, "internal_error")
                        self._settled(self._lane, [Entry(number, None, queued_bytes, number, source=span)])
                        self._notify()
                continue
            if entries and total + size > self._batch_bytes:
                self._queued.appendleft((span, queued_bytes, number))
                break
            entries.append(Entry(number, readable, queued_bytes, number, source=span))
            total += size
            yielder.worked(size)
        return entries

    def _load(self) -> None:
        entries = self._take_oldest()
        with self._lock:
            if self._is_abandoned:
                return
            self._has_new_losses = False
            self._lane.entries.update((entry.key, entry) for entry in entries)

    def _attempt(self, lane: Lane, entries: Sequence[Entry]) -> Outcome | NotYet:
        values = [entry.value for entry in entries]
        if self._has_new_losses:
            for at, entry in enumerate(entries):
                if isinstance(entry.source, RolloutSpan):
                    values[at] = copy_with_losses(entry.value, entry.source, self.name)
        return self._send_once(values)

    def _before_waiting(self) -> float | None:
        self._open_notes.note()
        if self._losses and monotonic() >= self._report_due:
            self._report_due = monotonic() + SECONDS_BETWEEN_REPORTS
            self._report_losses()
        left = self._open_notes.seconds_left()
        return left if left < math.inf else None

    def _finish(self) -> None:
        try:
            with self._lock:
                self._abandon()
            self._report_losses()
            self._end_follow_ups()
        finally:
            try:
                self.exporter.shutdown()
            except Exception:
                _logger.exception("%s: the exporter failed to shut down", self.name)

    # --- what the log says

    def _trouble(self, lane: Lane, outcome: Outcome) -> str:
        text = f"{_CONSEQUENCES[outcome.verdict]} ({outcome.reason})"
        if outcome.verdict not in (Verdict.RETRY, Verdict.UNEXPLAINED):
            return text
        with self._lock:
            waits = self._left()
        wait = "waits" if waits == 1 else "wait"
        return f"{text}; {counted(waits, 'span')} {wait} {self._where} until the backend takes them"

    @property
    def _where(self) -> str:
        return f"in memory ({self._limits.max_bytes / 2**20:,.0f} MiB at most)"

    def _shorten_end(self) -> str:
        """Return a line on the spans that the end waits for, if they are some; with the lock held."""
        now = monotonic()
        if self._last_attempts - now > SECONDS_OF_A_WAIT and not self._has_said_wait:
            self._has_said_wait = True
            return (
                f"the end of the process waits up to {self._last_attempts - now:.0f} s for the backend to take "
                f"{counted(self._in_memory, 'span')}; Ctrl-C ends the wait"
            )
        return ""

    def _note_trouble(self, lane: Lane, outcome: Outcome) -> None:
        can_help = outcome.verdict in (Verdict.RETRY, Verdict.UNEXPLAINED)
        super()._note_trouble(lane, outcome)
        line = ""
        with self._lock:
            if can_help and self._attempts_end is not None and not self._is_failing:
                line = self._shorten_end()
            self._is_failing = can_help
        if line:
            self.warn("end", line)
