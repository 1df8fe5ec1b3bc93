"""One exporter's queue and thread, bounded in bytes; a slow or failing exporter harms no other, and no caller."""

from __future__ import annotations

import contextlib
import logging
import math
import sys
import threading
import time
from collections import Counter, deque
from collections.abc import Sequence
from typing import Final, TypeAlias

from opentelemetry import context as context_api
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export import SpanExporter

from otel_rollout.backoff import RetryPolicy
from otel_rollout.breather import Breather
from otel_rollout.delivery.batch import Batch
from otel_rollout.delivery.batch_sender import BatchReport, send_batch
from otel_rollout.delivery.outcome import Outcome, Verdict
from otel_rollout.delivery.queue_limits import QueueLimits
from otel_rollout.delivery.readable import SpanReader, without_payload
from otel_rollout.delivery.size import encoded_size, queued_size
from otel_rollout.delivery.trouble_log import TroubleLog
from otel_rollout.exporter import OutcomeSpanExporter, one_attempt_of
from otel_rollout.side_work import SideWork
from otel_rollout.span import RolloutSpan
from otel_rollout.stats import ExporterStats

__all__ = ["ExporterQueue"]

_logger = logging.getLogger("otel_rollout")

PAYLOAD_SHARE: Final = 0.90
"""Up to this part of the bound spans are taken whole; then their payload is given up."""
CHILD_SHARE: Final = 0.97
"""Up to this part children are taken, without payload; the rest is for roots."""
MIN_SECONDS_LEFT: Final = 0.05
"""With less than this left to the deadline of a shutdown, no further attempt begins."""

SECONDS_AFTER_AN_ERROR: Final = 1.0
"""How long delivery rests after a fault of its own, which may come again at once."""

_Item: TypeAlias = "tuple[RolloutSpan | ReadableSpan, int]"  # a span and its bytes


class ExporterQueue:
    """Takes finished spans from any thread and brings them to one exporter, in order.

    Args:
        name: The exporter's name, for logs and statistics.
        exporter: Any `SpanExporter`; an `OutcomeSpanExporter` can say why it failed.
        reader: Turns light spans into standard ones.
        limits: The bounds.
        policy: How failed attempts are repeated.
    """

    _keeps_unsent = False

    def __init__(
        self,
        name: str,
        exporter: SpanExporter,
        reader: SpanReader,
        limits: QueueLimits | None = None,
        policy: RetryPolicy | None = None,
    ) -> None:
        self.name = name
        self.exporter = exporter
        self._reader = reader
        reader.register()
        self._limits = limits or QueueLimits()
        self._batch_bytes = self._limits.batch_bytes
        self._side_work: SideWork | None = None
        if isinstance(exporter, OutcomeSpanExporter):
            self._batch_bytes = min(self._batch_bytes, exporter.max_batch_bytes)
            self._side_work = exporter.side_work
        max_bytes, max_spans = self._limits.max_bytes, self._limits.max_spans or sys.maxsize
        self._root_bounds = max_bytes, max_spans
        self._child_bounds = max_bytes * CHILD_SHARE, max(1, min(max_spans - 1, int(max_spans * CHILD_SHARE)))
        self._policy = policy or RetryPolicy()
        self._send_once = one_attempt_of(exporter)
        self._reset()

    def _reset(self) -> None:
        # Reentrant: inside `put`, the garbage collector may end an abandoned span, or a signal handler ask for stats.
        self._lock = threading.RLock()
        self._work = threading.Condition(self._lock)
        self._progress = threading.Condition(self._lock)
        self._items: deque[_Item] = deque()
        self._thread: threading.Thread | None = None
        self._is_idle = False
        self._is_closed = False
        self._has_ended = False
        self._is_abandoned = False
        self._deadline: float | None = None
        self._hurries = 0
        self._hurries_seen = 0
        self._denials = 0
        self._bytes = 0
        self._taken = 0
        self._settled = 0
        self._recorded = 0
        self._delivered = 0
        self._payloads_dropped = 0
        self._payloads_shrunk = 0
        self._lost: Counter[str] = Counter()
        self._lost_at_flush = 0
        self._last_trouble = ""
        # For a queue that puts on disk what it can't hold.
        self._spooled = 0
        self._spill_bytes: float = math.inf
        self._log = TroubleLog(self.name)

    # --- from any thread

    def put(self, span: RolloutSpan | ReadableSpan) -> None:
        """Take a finished span; never waits for the exporter, never raises.

        When the queue is near its bound, payloads are given up before spans and children before roots.
        """
        limits = self._limits
        has_payload, is_counted = True, False
        try:
            size = queued_size(span)
            with self._lock:
                reason = None
                if self._is_closed:
                    reason = "after_shutdown"
                else:
                    if self._bytes + size > limits.max_bytes * PAYLOAD_SHARE:
                        whole, span = span, without_payload(span)
                        has_payload = span is whole
                        if not has_payload:
                            self._reader.release(whole)
                        size = queued_size(span)
                    max_bytes, max_spans = self._root_bounds if span.parent is None else self._child_bounds
                    if self._bytes + size > max_bytes or self._taken - self._settled - self._spooled >= max_spans:
                        reason = "queue_full"
                # A signal handler of the program may raise at a call: none comes between the counts.
                if reason is None:
                    is_counted = True
                    self._recorded += 1
                    self._payloads_dropped += not has_payload
                    self._bytes += size
                    self._taken += 1
                    self._items.append((span, size))
                    if self._is_idle and self._is_batch_full():
                        self._is_idle = False
                        self._work.notify()
                    if self._bytes > self._spill_bytes:
                        self._spill()
                else:
                    self._lost[reason] += 1
                    self._recorded += 1
                    is_counted = True
        except BaseException:
            if not is_counted:
                self._count_interrupted()
            raise
        if reason is not None:
            self._reader.release(span)
            if isinstance(span, RolloutSpan) and span.trajectory is not None:
                span.trajectory.add_dropped_span(self.name)
            self._log.warn(reason, f"spans are being lost ({reason}); otel_rollout.stats() counts them")
            return
        if not has_payload:
            self._log.warn("payload", f"the queue is full ({limits.max_bytes:,} bytes): payloads are left out")
        if self._thread is None:
            self.start()

    def _count_interrupted(self) -> None:
        with self._lock:
            self._recorded += 1
            self._lost["interrupted"] += 1

    def start(self) -> None:
        """Start the thread; without effect where it runs, or can't be started any more at interpreter exit."""
        with self._lock:
            if self._thread is not None or self._is_closed:
                return
            thread = threading.Thread(target=self._run, name=f"otel-rollout-{self.name}", daemon=True)
            try:
                thread.start()
            except RuntimeError:
                return
            self._thread = thread

    @property
    def is_closed(self) -> bool:
        """Whether `shutdown` was called."""
        return self._is_closed

    def hurry(self) -> None:
        """Have what is queued sent now: neither wait for a full batch, nor for the next repetition."""
        with self._lock:
            self._hurries += 1
            self._work.notify()

    def flush(self, timeout: float) -> bool:
        """Wait until all that was put before is settled, with its side work, or the backend turns us away.

        Args:
            timeout: Seconds to wait at most.

        Returns:
            Whether the backend has every span put since the last flush, and what goes beside them.
        """
        deadline = time.monotonic() + timeout
        is_delivered = self._flush_spans(timeout)
        return self._flush_side_work(deadline if is_delivered else 0.0) and is_delivered

    def _flush_side_work(self, deadline: float) -> bool:
        return self._side_work is None or self._side_work.flush(max(0.0, deadline - time.monotonic()))

    def _flush_spans(self, timeout: float) -> bool:
        with self._lock:
            target, denials, lost_before = self._taken, self._denials, self._lost_at_flush
            self.hurry()
            self._progress.wait_for(
                lambda: self._settled >= target or self._denials != denials, min(timeout, threading.TIMEOUT_MAX)
            )
            if self._settled < target:
                return False
            self._lost_at_flush = self._lost.total()
            # Not what another flush has noted meanwhile: a loss is news to each that waited for it.
            return self._lost_at_flush == lost_before

    def shutdown(self, deadline: float) -> None:
        """Ask the thread to deliver what it holds and end; `join` waits for it.

        Args:
            deadline: When it must have ended, in seconds of `time.monotonic`.
        """
        with self._lock:
            if self._is_closed:
                return
            # In this order: a signal handler may raise in between.
            self._deadline = deadline
            self._is_closed = True
            self.hurry()
            if self._side_work is not None:
                self._side_work.retry_now()
            must_drain_here = self._thread is None and bool(self._items)
        if must_drain_here:
            # No thread could be started: the interpreter is exiting. No attempt begins after the deadline, but one
            # that hangs can't be left behind here.
            self._run()

    def join(self) -> bool:
        """Wait for the thread until the deadline given to `shutdown`; whether the backend has all of it."""
        thread, deadline = self._thread, self._deadline
        if thread is not None and thread is not threading.current_thread() and deadline is not None:
            self._await_end(deadline)
        self._abandon()
        return self._end_side_work() and self.is_whole

    def _end_side_work(self) -> bool:
        """Do the side work that is left, as far as there is time; whether all was ever done."""
        return self._side_work is None or self._side_work.shutdown(self._deadline or 0.0)

    def _await_end(self, deadline: float) -> None:
        """Wait for the thread's end; not by `Thread.join`, which takes it for ended once a signal handler has raised.

        Source: https://github.com/python/cpython/issues/90882
        """
        with self._lock:
            self._progress.wait_for(
                lambda: self._has_ended, min(max(0.0, deadline - time.monotonic()), threading.TIMEOUT_MAX)
            )

    @property
    def is_whole(self) -> bool:
        """Whether the backend has all that was put and settled."""
        return not self._lost and not self._spooled

    def after_fork(self) -> None:
        """Start empty in a forked child: what the parent holds is the parent's to deliver."""
        self._reset()
        self._reader.after_fork()
        if isinstance(self.exporter, OutcomeSpanExporter):
            self.exporter.after_fork()

    def stats(self) -> ExporterStats:
        """Return the counts so far."""
        side_work = {} if self._side_work is None else self._side_work.stats()
        with self._lock:
            return ExporterStats(
                recorded=self._recorded,
                delivered=self._delivered,
                queued=self._taken - self._settled - self._spooled,
                queued_bytes=self._bytes,
                spooled=self._spooled,
                lost=dict(self._lost),
                payloads_dropped=self._payloads_dropped,
                payloads_shrunk=self._payloads_shrunk,
                last_trouble=self._last_trouble,
                side_work=side_work,
            )

    # --- on the queue's own thread

    def _run(self) -> None:
        # What the exporter does over the network is not to be traced itself.
        context = context_api.set_value(context_api._SUPPRESS_INSTRUMENTATION_KEY, True, context_api.Context())  # noqa: SLF001 - opentelemetry-instrumentation imports it too
        token = context_api.attach(context)
        try:
            is_last = False
            while not is_last:
                is_last = self._await_work()
                while self._has_work() and not self._is_late():
                    self._deliver_batch()
            self._finish()
            self._end_side_work()
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

    def _await_work(self) -> bool:
        """Wait for a full batch, the delay, or a hurry; whether nothing will come after what is queued now."""
        with self._lock:
            if not self._is_closed and self._hurries == self._hurries_seen and not self._is_batch_full():
                self._is_idle = True
                self._work.wait(self._limits.delay)
                self._is_idle = False
            self._hurries_seen = self._hurries
            return self._is_closed

    def _has_work(self) -> bool:
        return bool(self._items)

    def _spill(self) -> None:
        """Make room; called with the lock held."""

    def _finish(self) -> None:
        self._abandon()

    def _is_batch_full(self) -> bool:
        return self._bytes >= self._batch_bytes or len(self._items) >= self._limits.batch_spans

    def _is_late(self) -> bool:
        return self._deadline is not None and time.monotonic() >= self._deadline

    def _abandon(self) -> None:
        """Count what is left at the end as lost; what a hanging attempt still comes to is not counted again."""
        with self._lock:
            self._is_abandoned = True
            left = self._taken - self._settled - self._spooled
            if left:
                self._lost["shutdown"] += left
                self._settled += left
                # One by one: the thread may be taking some itself.
                with contextlib.suppress(IndexError):
                    while True:
                        self._reader.release(self._items.popleft()[0])
                self._bytes = 0
            self._progress.notify_all()

    def _deliver_batch(self) -> None:
        try:
            batch = self._take_batch()
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
                keeps_unsent=self._keeps_unsent,
            )
        except Exception:
            _logger.exception("%s: internal error while delivering a batch", self.name)
            return BatchReport(lost=Counter(internal_error=len(batch.spans)))

    def _settle(self, batch: Batch, report: BatchReport) -> None:
        for span, _ in batch.queued:
            self._reader.release(span)
        if batch.unreadable:
            report.lost["internal_error"] += batch.unreadable
        with self._lock:
            if self._is_abandoned:
                return
            self._bytes -= batch.queued_bytes
            self._settled += batch.taken - len(report.unsent)
            self._spooled += len(report.unsent) - (batch.taken if batch.is_from_disk else 0)
            self._delivered += report.delivered
            self._payloads_shrunk += report.shrunk
            self._lost.update(report.lost)
            self._progress.notify_all()

    def _take_batch(self) -> Batch:
        batch = Batch(self.name)
        breather = Breather()
        total = 0
        while batch.taken < self._limits.batch_spans:
            try:
                span, queued_bytes = self._items.popleft()
            except IndexError:
                break
            try:
                readable = self._reader.read(span, self.name)
                size = encoded_size(span, readable)
            except Exception:
                _logger.exception("%s: internal error while reading the span %r", self.name, span.name)
                batch.add(span, queued_bytes, None)
                continue
            if batch.spans and total + size > self._batch_bytes:
                self._items.appendleft((span, queued_bytes))
                break
            batch.add(span, queued_bytes, readable)
            total += size
            breather.worked(size)
        return batch

    def _attempt(self, spans: Sequence[ReadableSpan]) -> Outcome:
        self._hurries_seen = self._hurries
        return self._send_once(spans)

    def _wait(self, seconds: float, outcome: Outcome) -> bool:
        """Wait to try again: a flush cuts that short, unless the backend asked for it; a shutdown does in any case."""
        with self._lock:
            if self._is_abandoned:
                return False
            if self._deadline is not None and self._hurries == self._hurries_seen:
                left = self._deadline - time.monotonic()
                if outcome.verdict is Verdict.DENIED or left < MIN_SECONDS_LEFT:
                    return False
                # Several attempts still fit in, however long the delay has grown.
                seconds = min(seconds, left / 4)
            asked = min(seconds, max(0.0, outcome.retry_after or 0.0))
            self._work.wait_for(lambda: self._hurries != self._hurries_seen and self._deadline is not None, asked)
            self._work.wait_for(lambda: self._hurries != self._hurries_seen, seconds - asked)
        return True

    def _note_trouble(self, outcome: Outcome) -> None:
        self._last_trouble = f"{outcome.verdict.value}: {outcome.reason}"
        self._log.note(outcome)
        if outcome.verdict is Verdict.DENIED:
            with self._lock:
                self._denials += 1
                self._progress.notify_all()
