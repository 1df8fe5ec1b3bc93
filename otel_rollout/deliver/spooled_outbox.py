"""An outbox with a part on disk, for spans that memory can't hold, and for those that are left at the end.

A thread of its own moves them to disk, since the outbox's thread may hang in an attempt. They keep their order.
"""

from __future__ import annotations

import math
import threading
from collections import deque
from collections.abc import Sequence
from typing import Any, Final

from otel_rollout.deliver.span_outbox import SpanOutbox
from otel_rollout.deliver.spool import Spool, StoredBatch
from otel_rollout.export.lane import Entry, Lane, NotYet
from otel_rollout.export.outcome import Outcome, Verdict
from otel_rollout.guard.background_thread import BackgroundThread
from otel_rollout.guard.clock import monotonic
from otel_rollout.guard.safe_logger import SafeLogger
from otel_rollout.guard.wake import Wake

_logger = SafeLogger()

SPILL_SHARE: Final = 0.5
"""Above this part of the bound on memory, the oldest batches go to disk."""
SPILL_BYTES_PER_SECOND: Final = 20e6
"""The disk's assumed speed, which decides how much of a shutdown's time is kept for it."""
MAX_RESERVED_SHARE: Final = 0.5
SECONDS_AFTER_A_FAULT: Final = 5.0
"""The pause after the disk did not take a batch."""
SECONDS_OF_ATTEMPTS: Final = 2.0
"""The seconds that attempts go on after the first that fails during a shutdown: the spool can keep the rest."""


class SpooledOutbox(SpanOutbox):
    """A `SpanOutbox` that keeps spans on disk.

    Args:
        spool: The part on disk.
    """

    def __init__(self, *arguments: Any, spool: Spool, **named: Any) -> None:
        super().__init__(*arguments, **named)
        self._spool = spool

    def _reset(self) -> None:
        super()._reset()
        self._spill_bytes = self._limits.max_bytes * SPILL_SHARE
        self._unread = 0
        """The number of batches on disk that are not in the lane."""
        # Held while spans leave memory, and until they are on disk: younger ones have to wait.
        self._taking = threading.Lock()
        self._spill_wake = Wake()
        self._spill_thread = BackgroundThread(f"otel-rollout-{self.name}-spool", self._spill)
        self._settled_batches: deque[StoredBatch] = deque()
        self._is_spill_idle = self._has_spilled = self._must_spill_all = False
        self._is_in_trouble = self._has_full_disk = False

    def after_fork(self) -> None:
        """Start empty in a forked child: what the parent holds, in memory and on disk, is the parent's to deliver."""
        self._spool.after_fork()
        super().after_fork()

    @property
    def preparing(self) -> str:
        """Nothing: the spool keeps what waits."""
        return ""

    # --- with the lock held

    def _make_room(self) -> None:
        self._spill_thread.start()
        if self._is_spill_idle:
            self._is_spill_idle = False
            self._spill_wake.set()

    def _note_backend_away(self) -> None:
        """Have all spans go to disk if a shutdown has begun: there is no time for the disk after further attempts."""
        self._is_in_trouble = True
        if self._thread_end:
            self._spill_bytes = 0
            self._make_room()

    def _begin_shutdown(self, deadline: float) -> float:
        self._thread_end = deadline
        left = max(0.0, deadline - monotonic())
        if self._is_in_trouble:
            self._note_backend_away()
        return deadline - min(left * MAX_RESERVED_SHARE, 1.0 + self._bytes / SPILL_BYTES_PER_SECOND)

    def _shorten_end(self) -> str:
        if self._has_full_disk:
            return super()._shorten_end()
        self._attempts_end = min(self._last_attempts, monotonic() + SECONDS_OF_ATTEMPTS)
        return ""

    def _seconds_to_load(self, now: float) -> float | None:
        return 0.0 if self._unread and self._lane.wants_more else super()._seconds_to_load(now)

    def _note_settled(self, lane: Lane, entries: Sequence[Entry]) -> None:
        super()._note_settled(lane, entries)
        for entry in entries:
            if entry.place is not None:
                self._is_in_trouble = False
                self._spooled -= 1
                entry.place.left -= 1
                if not entry.place.left:
                    self._settled_batches.append(entry.place)

    # --- on the outbox's thread

    def _take_oldest(self) -> list[Entry]:
        """Return the oldest batch; one that is on disk stays there until all of it is settled."""
        with self._taking:
            batch = self._spool.take() if self._unread else None
            if batch is None:
                return super()._take_oldest()
        missing = batch.written - len(batch.spans)
        batch.left = len(batch.spans)
        if missing:
            self.warn("spool", f"{self._spool.trouble}: {missing:,} spans are lost")
        with self._lock:
            self._unread -= 1
            if missing and not self._is_abandoned:
                self._spooled -= missing
                self._account.lose("spool_unreadable", missing)
                for flush in self._flushes:
                    flush.left -= missing * (batch.number <= flush.number)
                self._notify()
        if not batch.spans:
            self._spool.settle(batch)
        return [
            Entry(batch.number + index, span, 0, batch.number + index, source=span, place=batch)
            for index, span in enumerate(batch.spans)
        ]

    def _settle(self, lane: Lane, entries: Sequence[Entry], outcome: Outcome | NotYet) -> None:
        super()._settle(lane, entries, outcome)
        while self._settled_batches:
            self._spool.settle(self._settled_batches.popleft())

    def _finish(self) -> None:
        try:
            self._spill_all()
            # Use the time that is left for spans that the disk did not take.
            self._has_full_disk = True
            self._attempts_end = self._last_attempts
            while (self._queued or self._lane.entries) and self._deliver():
                pass
        finally:
            super()._finish()

    @property
    def _where(self) -> str:
        return f"in memory and on disk ({self._spool.folder})"

    def _note_trouble(self, lane: Lane, outcome: Outcome) -> None:
        super()._note_trouble(lane, outcome)
        if outcome.verdict in (Verdict.RETRY, Verdict.CONFIGURATION_ERROR):
            with self._lock:
                self._note_backend_away()

    # --- on the thread that joins

    def _await_disk(self) -> None:
        """Have the thread move everything to disk, also the batch of an attempt that hangs, and wait for it."""
        self._must_spill_all = True
        self._spill_wake.set()
        self._spill_thread.start()
        if not self._spill_thread.is_started:
            # The interpreter is exiting.
            self._spill_thread.run_here()
        self.await_progress(lambda: self._has_spilled, self._thread_end)

    def _close_disk(self) -> None:
        """Close the files, at most until the deadline, and log how to deliver the spans in them."""
        self._spool.close(self._thread_end if self._thread.is_started else math.inf)
        if self._spooled:
            command = f"otel-rollout replay {self._spool.folder} --backend {self.name}"
            text = "%s: %s spans wait on disk; once the backend is back: %s --remove"
            _logger.warning(text, self.name, f"{self._spooled:,}", command)

    # --- on the thread that moves spans to disk, or on the outbox's at its end

    def _spill(self) -> None:
        try:
            while not self._must_spill_all:
                # Before it is asked: a span may come in between.
                self._is_spill_idle = True
                with self._lock:
                    is_over = bool(self._queued) and self._bytes > self._spill_bytes
                if not is_over:
                    self._spill_wake.wait()
                elif not self._spill_batch():
                    self._is_spill_idle = False
                    self._spill_wake.wait(SECONDS_AFTER_A_FAULT)
            self._spill_all()
        finally:
            self._has_spilled = True
            with self._lock:
                self._notify()

    def _spill_all(self) -> None:
        """Move all spans in memory to disk, the lane's too, as far as time and room allow."""
        self._spill_lane()
        while self._queued and monotonic() < self._thread_end and self._spill_batch():
            pass

    def _spill_lane(self) -> None:
        """Move the batch that is being sent to disk; what its attempt comes to is not counted any more."""
        with self._taking:
            with self._lock:
                entries = list(self._lane.entries.values())
                self._lane.entries.clear()
            fresh = [entry for entry in entries if entry.place is None]
            again = [
                entry for entry in entries if entry.place is not None and entry.place.left < len(entry.place.spans)
            ]
            if fresh:
                self._append(fresh)
            # On disk again before the file that they were read from goes.
            if again and self._write(again, is_forced=True):
                with self._lock:
                    self._unread += 1
                for place in {id(entry.place): entry.place for entry in again}.values():
                    self._spool.settle(place)

    def _spill_batch(self) -> bool:
        """Move the oldest spans in memory to disk; False if the disk did not take them."""
        with self._taking:
            entries = super()._take_oldest()
            is_on_disk = not entries or self._append(entries)
        if not is_on_disk:
            self.warn("spool", f"{self._spool.trouble}: spans stay in memory, within its bound")
        elif entries:
            self.warn("spooling", f"the backend does not keep up: spans wait on disk, in {self._spool.folder}")
        return is_on_disk

    def _append(self, entries: Sequence[Entry]) -> bool:
        """Put spans that were in memory on disk, or back into memory, before the others, if the disk takes none."""
        is_on_disk = self._write(entries)
        with self._lock:
            if not is_on_disk:
                if not self._is_abandoned:
                    self._queued.extendleft((entry.source, entry.size, entry.number) for entry in reversed(entries))
                return False
            self._unread += 1
            self._spooled += len(entries)
            if self._is_abandoned:
                # The disk took longer than the shutdown had time: they were counted as lost, or as unknown.
                unknown = self._unknown & {id(entry) for entry in entries}
                self._unknown -= unknown
                self._account.lose("unknown", -len(unknown))
                self._account.lose(self._end_reason, len(unknown) - len(entries))
            else:
                self._bytes -= sum(entry.size for entry in entries)
            self._wake()
        for entry in entries:
            self._reader.release(entry.source)
        return True

    def _write(self, entries: Sequence[Entry], *, is_forced: bool = False) -> bool:
        number = min(entry.number for entry in entries)
        return self._spool.append([entry.whole for entry in entries], number, is_forced=is_forced)
