"""The spool: spans of an outbox on disk, oldest first, in the trace folder's format; they keep their order.

A thread of its own moves them there and back, since the outbox's thread may hang in an attempt. Spans that are on disk
at the end of the process stay there, for `otel-rollout replay`.
"""

from __future__ import annotations

import contextlib
import math
import os
import re
import tempfile
import threading
from array import array
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING, Final

from opentelemetry.sdk.trace import ReadableSpan

from otel_rollout.errors import ConfigurationError
from otel_rollout.export.lane import Entry
from otel_rollout.files.file_modes import make_folder, open_private
from otel_rollout.folder.append_file import FileGoneError
from otel_rollout.folder.frames import FrameFile, read_frame, require_zstandard
from otel_rollout.folder.layout import FRAMES, new_worker
from otel_rollout.guard.background_thread import BackgroundThread
from otel_rollout.guard.clock import monotonic
from otel_rollout.guard.safe_logger import SafeLogger
from otel_rollout.otlp import decode_spans, encode_spans

if TYPE_CHECKING:
    from otel_rollout.deliver.span_outbox import SpanOutbox

_logger = SafeLogger()

MIN_FILE_BYTES: Final = 64 * 1024 * 1024
"""A file of this size is followed by a new one, since delivered spans are removed a file at a time."""
MAX_FILES: Final = 256
SPILL_SHARE: Final = 0.5
"""Above this part of the bound on memory, the oldest batches go to disk."""
SPILL_BYTES_PER_SECOND: Final = 20e6
"""The disk's assumed speed, which decides how much of a shutdown's time is kept for it."""
MAX_RESERVED_SHARE: Final = 0.5
SECONDS_AFTER_A_FAULT: Final = 5.0
"""The pause after the disk did not take a batch."""


def open_spool(folder: str, exporter: str, max_bytes: int) -> Spool:
    """Create the folder of one exporter's spool in the `folder` of all spools, and return the spool.

    Raises:
        ConfigurationError: The folder can't be created or written to.
        MissingExtraError: zstandard isn't installed.
    """
    require_zstandard()
    path = Path(folder, re.sub(r"[^\w.-]+", "_", exporter))
    try:
        make_folder(Path(folder))
        make_folder(path, Path(folder))
        with tempfile.TemporaryFile(dir=path):
            pass
    except OSError as error:
        raise ConfigurationError(
            f"spool={folder!r} (OTEL_ROLLOUT_SPOOL): this should be a folder that can be written to: {error}"
        ) from None
    return Spool(path, max_bytes)


class Spool:
    """A bounded FIFO queue of batches on disk; other processes read it once this one has ended.

    Args:
        folder: The folder of the files.
        max_bytes: The bound on their size.
    """

    def __init__(self, folder: Path, max_bytes: int) -> None:
        self.folder = folder
        self.trouble = ""
        """Why the last `append` or `take` failed."""
        self._max_bytes = max_bytes
        # Each file is held open, and a process has about a thousand file descriptors.
        self._file_bytes = max(MIN_FILE_BYTES, max_bytes // MAX_FILES)
        self._reset()

    def _reset(self) -> None:
        self._lock = threading.Lock()
        self._worker = new_worker()
        self._number = 0
        self._bytes = 0
        self._files: deque[_SpoolFile] = deque()

    def append(self, spans: Sequence[ReadableSpan], number: int = 0, *, is_forced: bool = False) -> bool:
        """Append a batch; False if that failed, and `trouble` has the reason.

        Args:
            spans: The batch.
            number: The number of its first span in the outbox.
            is_forced: Ignore the bound: the spans are on disk already, in the batch that is settled next.
        """
        try:
            request = encode_spans(spans)
        except Exception as error:
            self.trouble = f"a batch can't be encoded ({type(error).__name__}: {error})"
            return False
        with self._lock:
            if self._bytes >= self._max_bytes and not is_forced:
                self.trouble = f"the spool is full ({self._max_bytes:,} bytes)"
                return False
            try:
                try:
                    file = self._files[-1] if self._files else self._next_file()
                    if file.bytes >= self._file_bytes:
                        file = self._next_file()
                    self._bytes += file.append(request, len(spans), number)
                except FileGoneError:
                    # Somebody removed it; `take` reports its batches as missing.
                    self._bytes += self._next_file().append(request, len(spans), number)
            except OSError as error:
                self.trouble = f"the spool can't be written to ({error})"
                return False
        return True

    def take(self) -> StoredBatch | None:
        """Read the oldest batch that was not read yet; it stays on disk until it is settled."""
        with self._lock:
            file = next((file for file in self._files if file.unread), None)
            if file is None:
                return None
            offset, length, count, number = file.unread.popleft()
            file.being_sent[offset] = length
        batch = StoredBatch(file, offset, length, [], count, number)
        try:
            batch.spans = decode_spans(read_frame(file.path, offset, length))
        except (OSError, ValueError) as error:
            self.trouble = f"{file.path} can't be read: {error}"
        return batch

    def settle(self, batch: StoredBatch) -> None:
        """Remove a batch that `take` returned: it is delivered, lost, or on disk again."""
        with self._lock:
            file = batch.file
            if file not in self._files or file.being_sent.pop(batch.offset, None) is None:
                return
            if not (file.unread or file.being_sent):
                self._files.remove(file)
                self._bytes -= file.bytes
                with contextlib.suppress(OSError):
                    # A file that can't be removed is at worst delivered again, by a replay.
                    file.path.unlink(missing_ok=True)
                file.frames.close()

    def close(self, deadline: float = math.inf) -> None:
        """Close the files, and leave them to `otel-rollout replay`.

        Args:
            deadline: In seconds of `time.monotonic`; if the disk hangs until then, the process's end closes them.
        """
        if not self._lock.acquire(timeout=min(max(0.0, deadline - monotonic()), threading.TIMEOUT_MAX)):
            return
        try:
            while self._files:
                file = self._files.popleft()
                with contextlib.suppress(OSError):
                    if monotonic() < deadline:
                        file.remove_settled()
                file.frames.close()
        finally:
            self._lock.release()

    def after_fork(self) -> None:
        """Start empty in a forked child: the files are its parent's."""
        for file in self._files:
            file.frames.close()
        self._reset()

    def _next_file(self) -> _SpoolFile:
        self._number += 1
        file = _SpoolFile(self.folder / f"{self._worker}-{self._number:06d}{FRAMES}")
        self._files.append(file)
        return file


@dataclass(eq=False)
class StoredBatch:
    """A batch that was read from disk: its place there, and its spans, or none if it can't be read.

    Args:
        written: The number of spans that were written.
        number: The number of its first span in the outbox.
        left: The number of its spans that are not settled.
    """

    file: _SpoolFile
    offset: int
    length: int
    spans: list[ReadableSpan]
    written: int
    number: int
    left: int = 0


class _SpoolFile:
    """One file, with the places of its batches."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.bytes = 0
        self.frames = FrameFile(path)
        # Offset, length, number of spans and number of the first span of each batch that was not read yet, one after
        # the other: there may be many.
        self.unread: deque[array[int]] = deque()
        self.being_sent: dict[int, int] = {}
        """The lengths of the batches that are read and not settled, by offset."""

    def append(self, request: bytes, spans: int, number: int) -> int:
        """Append a batch and return its size on disk."""
        frame = self.frames.append(request)
        self.unread.append(array("Q", (frame.offset, frame.length, spans, number)))
        self.bytes += frame.length
        return frame.length

    def remove_settled(self) -> None:
        """Rewrite the file without the settled batches, which would be delivered again.

        Raises:
            OSError: The disk failed; the file is unchanged.
        """
        left = sorted([*self.being_sent.items(), *((offset, length) for offset, length, _, _ in self.unread)])
        if not left:
            self.path.unlink(missing_ok=True)
        elif sum(length for _, length in left) < self.bytes:
            rest = self.path.with_name(f"{self.path.name}.rest")
            try:
                with (
                    self.path.open("rb") as source,
                    os.fdopen(open_private(rest, os.O_WRONLY | os.O_TRUNC), "wb") as target,
                ):
                    for offset, length in left:
                        source.seek(offset)
                        target.write(source.read(length))
                rest.replace(self.path)
            except OSError:
                rest.unlink(missing_ok=True)
                raise


class Spill:
    """The part of an outbox that is on disk."""

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
                    end = monotonic() + SECONDS_AFTER_A_FAULT
                    while not self._must_spill_all and (left := end - monotonic()) > 0:
                        with contextlib.suppress(Empty):
                            self._wakes.get(timeout=left)
            self.spill_all()
        finally:
            self._has_spilled = True
            self._outbox.note_progress()

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
