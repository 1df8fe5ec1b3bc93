"""A queue's store in memory and on disk: spans that memory can't hold wait on disk, and are delivered first."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Final

from otel_rollout.deliver.account import Account
from otel_rollout.deliver.batch import Batch, MemoryStore
from otel_rollout.export.batch_sender import BatchReport
from otel_rollout.export.trouble_log import TroubleLog
from otel_rollout.guard.background_thread import BackgroundThread
from otel_rollout.guard.clock import monotonic
from otel_rollout.guard.safe_logger import SafeLogger
from otel_rollout.guard.signal_safe_lock import SignalSafeCondition

if TYPE_CHECKING:
    from otel_rollout.deliver.spool import Spool

_logger = SafeLogger()

SPILL_SHARE: Final = 0.5
"""Above this part of the bound on memory, the oldest batches go to disk."""
SPILL_BYTES_PER_SECOND: Final = 20e6
"""The disk's assumed speed, which decides how much of a shutdown's time is kept for it."""
MAX_RESERVED_SHARE: Final = 0.5
SECONDS_AFTER_A_FAULT: Final = 5.0
"""The pause after the disk did not take a batch."""


class SpooledStore:
    """The spans of one exporter that wait, the newest in memory and the others on disk; they keep their order.

    A thread of its own moves spans to disk, since the delivery thread may hang in an attempt. Spans that are on disk
    at the end of the process stay there, for `otel-rollout replay`.

    Args:
        memory: The store in memory.
        spool: The place on disk.
        max_bytes: The bound on memory.
        account: The exporter's counts.
        log: Logs trouble.
    """

    keeps_unsent = True

    def __init__(self, memory: MemoryStore, spool: Spool, max_bytes: int, account: Account, log: TroubleLog) -> None:
        self.spans = memory.spans
        self.clear = memory.clear
        self.spill_bytes: float = max_bytes * SPILL_SHARE
        self._memory = memory
        self._spool = spool
        self._account = account
        self._log = log
        # Held while spans leave memory, and until they are on disk: younger ones have to wait.
        self._taking = threading.Lock()
        self._room = SignalSafeCondition(account.lock)
        self._thread = BackgroundThread(f"otel-rollout-{memory.exporter}-spool", self._run)
        self._has_spilled = False
        self._must_spill_all = False
        self._is_in_trouble = False
        self._in_flight: Batch | None = None
        self._deadline: float | None = None

    def start(self) -> None:
        """Start the thread that moves spans to disk; called with the lock held."""
        self._thread.start()

    def take(self) -> Batch:
        """Return the oldest batch; one that is on disk stays there until it is settled."""
        with self._taking:
            if not self._account.spooled:
                self._in_flight = batch = self._memory.take()
                return batch
            spans, written = self._spool.take()
        batch = Batch(self._memory.exporter, is_from_disk=bool(spans))
        for span in spans:
            batch.add(span, 0, span)
        missing = written - len(spans)
        if missing:
            self._log.warn("spool", f"{self._spool.trouble}: {missing:,} spans are lost")
            with self._account.lock:
                self._account.spooled -= missing
                self._account.settled += missing
                self._account.lost["spool_unreadable"] += missing
            if not spans:
                self._spool.settle()
        return batch

    def settle(self, batch: Batch, report: BatchReport) -> bool:
        """Put the unsent spans of a batch on disk; False if the batch was settled before, when time was up."""
        with self._account.lock:
            if self._account.is_abandoned:
                return False
            self._in_flight = None
            self._is_in_trouble = self._is_in_trouble and not report.delivered
        unsent = report.unsent
        is_on_disk = batch.is_from_disk and len(unsent) == len(batch.queued)
        # On disk again before the file that they were read from goes.
        if unsent and not is_on_disk and not self._spool.append(unsent, is_forced=batch.is_from_disk):
            report.lost[report.unsent_reason] += len(unsent)
            report.unsent = []
        if batch.is_from_disk and not is_on_disk:
            self._spool.settle()
        return True

    def make_room(self) -> None:
        """Wake the thread that moves spans to disk; called with the lock held."""
        self._room.notify()

    def note_trouble(self) -> None:
        """Move all spans to disk from now on if a shutdown has begun; called with the lock held."""
        self._is_in_trouble = True
        if self._deadline is not None:
            # There is no time for the disk after further attempts.
            self.spill_bytes = 0
            self._room.notify()

    def begin_shutdown(self, deadline: float) -> float:
        """Return the deadline for attempts, which leaves the disk its time until `deadline`; with the lock held."""
        self._deadline = deadline
        left = max(0.0, deadline - monotonic())
        if self._is_in_trouble:
            self.note_trouble()
        return deadline - min(left * MAX_RESERVED_SHARE, 1.0 + self._account.queued_bytes / SPILL_BYTES_PER_SECOND)

    def spill_all(self) -> None:
        """Move all spans in memory to disk, as far as time and room allow."""
        while self.spans and monotonic() < (self._deadline or 0.0) and self._spill_batch():
            pass

    def await_spill(self) -> None:
        """Have the thread move everything to disk, also the batch of an attempt that hangs, and wait for it."""
        with self._account.lock:
            self._must_spill_all = True
            self._room.notify_all()
        if self._thread.is_started:
            self._account.await_progress(lambda: self._has_spilled, self._deadline or 0.0)

    def close(self, deadline: float) -> None:
        """Close the files, at most until `deadline`, and log how to deliver the spans in them."""
        self._spool.close(deadline)
        if self._account.spooled:
            _logger.warning(
                "%s: %s spans wait on disk; once the backend is back: otel-rollout replay %s --backend %s --remove",
                self._memory.exporter,
                f"{self._account.spooled:,}",
                self._spool.folder,
                self._memory.exporter,
            )

    # --- on the thread that moves spans to disk

    def _run(self) -> None:
        try:
            while self._await_full_memory():
                if not self._spill_batch():
                    with self._account.lock:
                        self._room.wait_for(lambda: self._must_spill_all, SECONDS_AFTER_A_FAULT)
            self.spill_all()
            self._spill_in_flight()
        finally:
            with self._account.lock:
                self._has_spilled = True
                self._account.progress.notify_all()

    def _await_full_memory(self) -> bool:
        """Wait until memory holds more than it should; False if all must go to disk."""
        account = self._account
        with account.lock:
            self._room.wait_for(
                lambda: self._must_spill_all or (self.spans and account.queued_bytes > self.spill_bytes)
            )
            return not self._must_spill_all

    def _spill_in_flight(self) -> None:
        account = self._account
        with account.lock:
            batch, self._in_flight = self._in_flight, None
            # The attempt hangs: its result is not counted any more.
            account.is_abandoned = account.is_abandoned or batch is not None
        if batch is not None and self._spool.append(batch.spans):
            self._count_spooled(batch)

    def _spill_batch(self) -> bool:
        """Move the oldest spans in memory to disk; False if the disk did not take them."""
        with self._taking:
            batch = self._memory.take()
            if not batch.queued:
                return True
            if batch.spans and not self._spool.append(batch.spans):
                self.spans.extendleft(reversed(batch.queued))
                self._log.warn("spool", f"{self._spool.trouble}: spans stay in memory, within its bound")
                return False
            self._count_spooled(batch)
        self._log.warn("spooling", f"the backend does not keep up: spans wait on disk, in {self._spool.folder}")
        return True

    def _count_spooled(self, batch: Batch) -> None:
        for span, _ in batch.queued:
            self._memory.reader.release(span)
        account = self._account
        with account.lock:
            if account.is_closed:
                account.spooled_after_close(len(batch.spans))
                return
            account.spooled += len(batch.spans)
            account.queued_bytes -= batch.queued_bytes
            if batch.unreadable:
                account.settled += batch.unreadable
                account.lost["internal_error"] += batch.unreadable
                account.progress.notify_all()
            account.work.notify()
