"""The spool: batches of spans on disk, oldest first, in the trace folder's format.

Those that are left at the end of the process stay there, for `otel-rollout replay`.
"""

from __future__ import annotations

import contextlib
import math
import os
import re
import tempfile
import threading
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from opentelemetry.sdk.trace import ReadableSpan

from otel_rollout.errors import ConfigurationError
from otel_rollout.files.file_modes import make_folder, open_private
from otel_rollout.folder.append_file import AppendFile, FileGoneError
from otel_rollout.folder.frames import append_frame, read_frame, require_zstandard
from otel_rollout.folder.layout import FRAMES, new_worker
from otel_rollout.guard.clock import monotonic
from otel_rollout.otlp import decode_spans, encode_spans

MIN_FILE_BYTES: Final = 64 * 1024 * 1024
"""A file of this size is followed by a new one, since delivered spans are removed a file at a time."""
MAX_FILES: Final = 256


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
    """A bounded FIFO queue of batches on disk; other processes read it once this one has ended."""

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
            batch = file.unread.popleft()
            file.being_sent.add(batch)
        try:
            batch.spans = decode_spans(read_frame(file.path, batch.offset, batch.length))
        except (OSError, ValueError) as error:
            self.trouble = f"{file.path} can't be read: {error}"
        return batch

    def settle(self, batch: StoredBatch) -> None:
        """Remove a batch that `take` returned: it is delivered, lost, or on disk again."""
        with self._lock:
            file = batch.file
            if file not in self._files or batch not in file.being_sent:
                return
            file.being_sent.remove(batch)
            if not (file.unread or file.being_sent):
                self._files.remove(file)
                self._bytes -= file.bytes
                with contextlib.suppress(OSError):
                    # A file that can't be removed is at worst delivered again, by a replay.
                    file.path.unlink(missing_ok=True)
                file.frames.close()

    def close(self, deadline: float = math.inf) -> None:
        """Close the files for `otel-rollout replay`; if the disk hangs until `deadline`, the process's end does it."""
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


@dataclass(eq=False, slots=True)
class StoredBatch:
    """A batch on disk.

    Args:
        written: The number of spans that were written.
        number: The number of its first span in the outbox.
        spans: Its spans once it is read; none if it can't be.
        left: The number of its spans that are not settled.
    """

    file: _SpoolFile
    offset: int
    length: int
    written: int
    number: int
    spans: Sequence[ReadableSpan] = ()
    left: int = 0


class _SpoolFile:
    """One file, with the places of its batches."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.bytes = 0
        self.frames = AppendFile(path)
        self.unread: deque[StoredBatch] = deque()
        self.being_sent: set[StoredBatch] = set()
        """The batches that are read and not settled."""

    def append(self, request: bytes, spans: int, number: int) -> int:
        """Append a batch and return its size on disk."""
        frame = append_frame(self.frames, request)
        self.unread.append(StoredBatch(self, frame.offset, frame.length, spans, number))
        self.bytes += frame.length
        return frame.length

    def remove_settled(self) -> None:
        """Rewrite the file without the settled batches, which would be delivered again.

        Raises:
            OSError: The disk failed; the file is unchanged.
        """
        left = sorted((batch.offset, batch.length) for batch in (*self.being_sent, *self.unread))
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
