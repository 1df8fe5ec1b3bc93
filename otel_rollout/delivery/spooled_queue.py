"""A queue that puts on disk what it can't hold in memory, and delivers that first when the backend is back."""

from __future__ import annotations

import logging
import math
import threading
import time
from typing import Final

from opentelemetry.sdk.trace.export import SpanExporter

from otel_rollout.backoff import RetryPolicy
from otel_rollout.delivery.batch import Batch
from otel_rollout.delivery.batch_sender import BatchReport
from otel_rollout.delivery.exporter_queue import ExporterQueue
from otel_rollout.delivery.outcome import Outcome, Verdict
from otel_rollout.delivery.queue_limits import QueueLimits
from otel_rollout.delivery.readable import SpanReader
from otel_rollout.delivery.spool import Spool

__all__ = ["SpooledQueue"]

_logger = logging.getLogger("otel_rollout")

SPILL_SHARE: Final = 0.5
"""Beyond this part of the bound on memory, the oldest batches go to disk."""
SPILL_BYTES_PER_SECOND: Final = 20e6
"""What is put on disk in a second at least: decides how much of a shutdown's time is kept for that."""
MAX_RESERVED_SHARE: Final = 0.5
SECONDS_AFTER_A_FAULT: Final = 5.0
"""How long a disk that can't be written to is left alone."""


class SpooledQueue(ExporterQueue):
    """Takes finished spans like any queue; in an outage memory stays within its bound, and spans wait on disk.

    What is on disk is older than what is in memory, and is delivered before it: spans keep their order. What a process
    could not deliver by its end stays on disk, for `otel-rollout replay`.

    Args:
        name: The exporter's name, for logs and statistics.
        exporter: Any `SpanExporter`.
        reader: Turns light spans into standard ones.
        spool: The place on disk.
        limits: The bounds in memory.
        policy: How failed attempts are repeated.
    """

    _keeps_unsent = True

    def __init__(
        self,
        name: str,
        exporter: SpanExporter,
        reader: SpanReader,
        spool: Spool,
        limits: QueueLimits | None = None,
        policy: RetryPolicy | None = None,
    ) -> None:
        self._spool = spool
        super().__init__(name, exporter, reader, limits, policy)

    def _reset(self) -> None:
        super()._reset()
        # Held while spans are taken off the queue, and until they are on disk: what comes after them has to wait.
        self._taking = threading.Lock()
        self._room = threading.Condition(self._lock)
        self._spill_bytes = self._limits.max_bytes * SPILL_SHARE
        self._spiller: threading.Thread | None = None
        self._has_spilled = False
        self._must_spill_all = False
        self._is_in_trouble = False
        self._in_flight: Batch | None = None
        self._final_deadline = 0.0
        self._is_settled = False

    def start(self) -> None:
        """Start the threads."""
        super().start()
        with self._lock:
            if self._spiller is not None or self._thread is None or self._is_closed:
                return
            spiller = threading.Thread(target=self._run_spiller, name=f"otel-rollout-{self.name}-spool", daemon=True)
            try:
                spiller.start()
            except RuntimeError:
                return
            self._spiller = spiller

    def shutdown(self, deadline: float) -> None:
        """Ask the threads to deliver what they can, put the rest on disk and end.

        Args:
            deadline: When they must have ended, in seconds of `time.monotonic`.
        """
        with self._lock:
            if self._is_closed:
                return
            self._final_deadline = deadline
            left = max(0.0, deadline - time.monotonic())
            reserved = min(left * MAX_RESERVED_SHARE, 1.0 + self._bytes / SPILL_BYTES_PER_SECOND)
            if self._is_in_trouble:
                self._spill_rather_than_wait()
        super().shutdown(deadline - reserved)

    def join(self) -> bool:
        """Wait for the threads until the deadline; whether the backend has every span."""
        thread, deadline = self._thread, self._deadline
        if thread is not None and thread is not threading.current_thread() and deadline is not None:
            # A little later than its own deadline: then it may be on its way to the disk already.
            self._await_end(deadline + 0.1)
            with self._lock:
                self._must_spill_all = True
                self._room.notify_all()
                if self._spiller is not None:
                    self._progress.wait_for(lambda: self._has_spilled, _timeout(self._final_deadline))
            self._await_end(self._final_deadline)
        self._abandon()
        self._spool.close(self._final_deadline if thread is not None else math.inf)
        if self._spooled:
            _logger.warning(
                "%s: %s spans wait on disk; once the backend is back: otel-rollout replay %s --backend %s --remove",
                self.name,
                f"{self._spooled:,}",
                self._spool.folder,
                self.name,
            )
        return self._end_side_work() and self.is_whole

    def after_fork(self) -> None:
        """Start empty in a forked child: what the parent holds, in memory and on disk, is the parent's to deliver."""
        self._spool.after_fork()
        super().after_fork()

    # --- on the queue's own thread

    def _has_work(self) -> bool:
        return self._spooled > 0 or super()._has_work()

    def _is_batch_full(self) -> bool:
        return self._spooled > 0 or super()._is_batch_full()

    def _take_batch(self) -> Batch:
        with self._taking:
            if not self._spooled:
                self._in_flight = batch = super()._take_batch()
                return batch
            spans, written = self._spool.take()
        batch = Batch(self.name, is_from_disk=bool(spans))
        for span in spans:
            batch.add(span, 0, span)
        missing = written - len(spans)
        if missing:
            self._log.warn("spool", f"{self._spool.trouble}: {missing:,} spans are lost")
            with self._lock:
                self._spooled -= missing
                self._settled += missing
                self._lost["spool_unreadable"] += missing
            if not spans:
                self._spool.settle()
        return batch

    def _note_trouble(self, outcome: Outcome) -> None:
        super()._note_trouble(outcome)
        if outcome.verdict in (Verdict.RETRY, Verdict.DENIED):
            with self._lock:
                self._is_in_trouble = True
                if self._is_closed:
                    self._spill_rather_than_wait()

    def _spill_rather_than_wait(self) -> None:
        """Have all put on disk from now on, with the lock held: at the end there is no time for that after trying."""
        self._spill_bytes = 0
        self._room.notify()

    def _settle(self, batch: Batch, report: BatchReport) -> None:
        with self._lock:
            if self._is_abandoned:
                return
            self._in_flight = None
            self._is_in_trouble = self._is_in_trouble and not report.delivered
        unsent = report.unsent
        is_on_disk = batch.is_from_disk and len(unsent) == batch.taken
        # On disk again before what they were read from goes.
        if unsent and not is_on_disk and not self._spool.append(unsent, is_forced=batch.is_from_disk):
            report.lost[report.unsent_reason] += len(unsent)
            report.unsent = []
        if batch.is_from_disk and not is_on_disk:
            self._spool.settle()
        with self._lock:
            if self._is_settled and not batch.is_from_disk:
                self._forget_loss(len(report.unsent))
            super()._settle(batch, report)

    def _finish(self) -> None:
        self._spill_all()
        super()._finish()

    def _abandon(self) -> None:
        with self._lock:
            self._is_settled = True
            super()._abandon()

    # --- on the thread beside it, which is awake while an attempt hangs

    def _spill(self) -> None:
        self._room.notify()

    def _run_spiller(self) -> None:
        try:
            self._spill_until_the_end()
        finally:
            with self._lock:
                self._has_spilled = True
                self._progress.notify_all()

    def _spill_until_the_end(self) -> None:
        while True:
            with self._lock:
                self._room.wait_for(lambda: self._must_spill_all or (self._items and self._bytes > self._spill_bytes))
                if self._must_spill_all:
                    break
            if not self._spill_batch():
                with self._lock:
                    self._room.wait_for(lambda: self._must_spill_all, SECONDS_AFTER_A_FAULT)
        self._spill_all()
        with self._lock:
            batch, self._in_flight = self._in_flight, None
            # The attempt hangs: whatever it comes to is not counted any more.
            self._is_abandoned = self._is_abandoned or batch is not None
        if batch is not None and self._spool.append(batch.spans):
            self._settle_spilled(batch)

    def _spill_all(self) -> None:
        """Put on disk what is in memory, as far as there is time and room."""
        while self._items and time.monotonic() < self._final_deadline and self._spill_batch():
            pass

    def _spill_batch(self) -> bool:
        """Put the oldest spans in memory on disk; whether that worked."""
        with self._taking:
            batch = super()._take_batch()
            if not batch.queued:
                return True
            if not batch.spans or self._spool.append(batch.spans):
                self._settle_spilled(batch)
            else:
                self._items.extendleft(reversed(batch.queued))
                self._log.warn("spool", f"{self._spool.trouble}: spans stay in memory, within its bound")
                return False
        self._log.warn("spooling", f"the backend does not keep up: spans wait on disk, in {self._spool.folder}")
        return True

    def _settle_spilled(self, batch: Batch) -> None:
        """Count a batch as on disk."""
        for span, _ in batch.queued:
            self._reader.release(span)
        with self._lock:
            if self._is_settled:
                self._forget_loss(len(batch.spans))
                return
            self._spooled += len(batch.spans)
            self._bytes -= batch.queued_bytes
            if batch.unreadable:
                self._settled += batch.unreadable
                self._lost["internal_error"] += batch.unreadable
                self._progress.notify_all()
            self._work.notify()

    def _forget_loss(self, spans: int) -> None:
        """Count as on disk what was counted as lost at the end: the disk took longer than there was time."""
        self._spooled += spans
        self._settled -= spans
        self._lost["shutdown"] -= spans
        self._lost = +self._lost


def _timeout(deadline: float) -> float:
    return min(max(0.0, deadline - time.monotonic()), threading.TIMEOUT_MAX)
