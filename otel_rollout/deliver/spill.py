"""Moves the oldest spans of an outbox from memory to disk, and reads them back; they keep their order.

A thread of its own does that, since the outbox's thread may hang in an attempt. Spans that are on disk at the end of
the process stay there, for `otel-rollout replay`.
"""

from __future__ import annotations

import threading
from collections import deque
from contextlib import suppress
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING, Final

from otel_rollout.export.lane import Entry
from otel_rollout.guard.background_thread import BackgroundThread
from otel_rollout.guard.clock import monotonic
from otel_rollout.guard.safe_logger import SafeLogger

if TYPE_CHECKING:
    from otel_rollout.deliver.span_outbox import SpanOutbox
    from otel_rollout.deliver.spool import Spool, StoredBatch

_logger = SafeLogger()

SPILL_SHARE: Final = 0.5
"""Above this part of the bound on memory, the oldest batches go to disk."""
SPILL_BYTES_PER_SECOND: Final = 20e6
"""The disk's assumed speed, which decides how much of a shutdown's time is kept for it."""
MAX_RESERVED_SHARE: Final = 0.5
SECONDS_AFTER_A_FAULT: Final = 5.0
"""The pause after the disk did not take a batch."""


class Spill:
    """The part of an outbox that is on disk.

    Args:
        outbox: The outbox.
        spool: The place on disk.
        max_bytes: The bound on memory.
    """

    def __init__(self, outbox: SpanOutbox, spool: Spool, max_bytes: int) -> None:
        self.spans = 0
        """The number of spans on disk; changed with the outbox's lock held, as is the next."""
        self.unread = 0
        """The number of batches on disk that are not in the lane."""
        self.spill_bytes: float = max_bytes * SPILL_SHARE
        """Above this many bytes in memory, spans go to disk."""
        self._outbox = outbox
        self._spool = spool
        # Held while spans leave memory, and until they are on disk: younger ones have to wait.
        self._taking = threading.Lock()
        self._wakes: SimpleQueue[None] = SimpleQueue()
        self._thread = BackgroundThread(f"otel-rollout-{outbox.name}-spool", self._run)
        self._settled: deque[StoredBatch] = deque()
        self._is_idle = self._has_spilled = self._must_spill_all = self._is_in_trouble = False
        self._deadline: float | None = None

    # --- with the outbox's lock held

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def make_room(self) -> None:
        """Wake the thread if it waits for work."""
        if self._is_idle:
            self._is_idle = False
            self._wakes.put(None)

    def note_trouble(self) -> None:
        """Called when the backend is away, or refuses us: all spans go to disk if a shutdown has begun."""
        self._is_in_trouble = True
        if self._deadline is not None:
            # There is no time for the disk after further attempts.
            self.spill_bytes = 0
            self.make_room()

    def begin_shutdown(self, deadline: float, queued_bytes: int) -> float:
        """Return the deadline for attempts, which leaves the disk its time for bytes in memory until `deadline`."""
        self._deadline = deadline
        left = max(0.0, deadline - monotonic())
        if self._is_in_trouble:
            self.note_trouble()
        return deadline - min(left * MAX_RESERVED_SHARE, 1.0 + queued_bytes / SPILL_BYTES_PER_SECOND)

    def note_settled(self, entry: Entry) -> None:
        """Count a span that was read from disk as settled."""
        self._is_in_trouble = False
        self.spans -= 1
        entry.place.left -= 1
        if not entry.place.left:
            self._settled.append(entry.place)

    # --- on the outbox's thread

    def take(self) -> list[Entry]:
        """Return the oldest batch; one that is on disk stays there until all of it is settled."""
        with self._taking:
            batch = self._spool.take() if self.unread else None
            if batch is None:
                return self._outbox.take_memory()
        missing = batch.written - len(batch.spans)
        batch.left = len(batch.spans)
        if missing:
            self._outbox.warn("spool", f"{self._spool.trouble}: {missing:,} spans are lost")
        self._outbox.note_read_back(batch.number, missing)
        if not batch.spans:
            self._spool.settle(batch)
        return [
            Entry(batch.number + index, span, 0, batch.number + index, source=span, place=batch)
            for index, span in enumerate(batch.spans)
        ]

    def remove_settled(self) -> None:
        """Remove batches from disk of which all spans are settled."""
        while self._settled:
            self._spool.settle(self._settled.popleft())

    def spill_all(self) -> None:
        """Move all spans in memory to disk, the lane's too, as far as time and room allow."""
        self._spill_lane()
        while self._outbox.has_queued and monotonic() < (self._deadline or 0.0) and self._spill_batch():
            pass

    # --- on the thread that joins

    def await_spill(self) -> None:
        """Have the thread move everything to disk, also the batch of an attempt that hangs, and wait for it."""
        self._must_spill_all = True
        self._wakes.put(None)
        if self._thread.is_started:
            self._outbox.await_progress(lambda: self._has_spilled, self._deadline or 0.0)

    def close(self, deadline: float) -> None:
        """Close the files, at most until `deadline`, and log how to deliver the spans in them."""
        self._spool.close(deadline)
        if self.spans:
            _logger.warning(
                "%s: %s spans wait on disk; once the backend is back: otel-rollout replay %s --backend %s --remove",
                self._outbox.name,
                f"{self.spans:,}",
                self._spool.folder,
                self._outbox.name,
            )

    # --- on the thread that moves spans to disk

    def _run(self) -> None:
        try:
            while not self._must_spill_all:
                # Before it is asked: a span may come in between.
                self._is_idle = True
                if not self._outbox.is_over(self.spill_bytes):
                    self._wakes.get()
                elif not self._spill_batch():
                    self._pause()
            self.spill_all()
        finally:
            self._has_spilled = True
            self._outbox.note_progress()

    def _pause(self) -> None:
        end = monotonic() + SECONDS_AFTER_A_FAULT
        while not self._must_spill_all and (left := end - monotonic()) > 0:
            with suppress(Empty):
                self._wakes.get(timeout=left)

    def _spill_lane(self) -> None:
        """Move the batch that is being sent to disk; what its attempt comes to is not counted any more."""
        with self._taking:
            entries = self._outbox.take_lane()
            fresh = [entry for entry in entries if entry.place is None]
            again = [
                entry for entry in entries if entry.place is not None and entry.place.left < len(entry.place.spans)
            ]
            if fresh and not self._append(fresh, is_forced=False):
                self._outbox.put_back(fresh)
            # On disk again before the file that they were read from goes.
            if again and self._append(again, is_forced=True):
                for place in {id(entry.place): entry.place for entry in again}.values():
                    self._spool.settle(place)

    def _spill_batch(self) -> bool:
        """Move the oldest spans in memory to disk; False if the disk did not take them."""
        with self._taking:
            entries = self._outbox.take_memory()
            is_on_disk = not entries or self._append(entries, is_forced=False)
            if not is_on_disk:
                self._outbox.put_back(entries)
        if not is_on_disk:
            self._outbox.warn("spool", f"{self._spool.trouble}: spans stay in memory, within its bound")
            return False
        if entries:
            self._outbox.warn("spooling", f"the backend does not keep up: spans wait on disk, in {self._spool.folder}")
        return True

    def _append(self, entries: list[Entry], *, is_forced: bool) -> bool:
        spans, number = [entry.whole for entry in entries], min(entry.number for entry in entries)
        if not self._spool.append(spans, number, is_forced=is_forced):
            return False
        self._outbox.note_spilled([entry for entry in entries if entry.place is None])
        return True
