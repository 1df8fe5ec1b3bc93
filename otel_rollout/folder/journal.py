"""A worker's journal: frames of spans whose root has not ended yet, on disk so that memory stays small.

After a crash readers find the file.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from otel_rollout.folder.append_file import AppendFile, FileGoneError
from otel_rollout.folder.frames import FAST_LEVEL, frame_of, request_of
from otel_rollout.folder.layout import NEW

MIN_DEAD_BYTES: Final = 64 * 2**20
"""With fewer bytes that are no longer needed, a journal is not rewritten."""


@dataclass(eq=False, slots=True)
class JournalPart:
    """The place of a frame in the journal, and the size of its request; the place changes when that is rewritten."""

    offset: int
    length: int
    size: int


class Journal:
    """Requests of one worker, in a file that exists while there are any."""

    def __init__(self, path: Path, within: Path | None = None) -> None:
        self.path = path
        self.live_bytes = 0
        """The size of all frames that are still needed."""
        self._within = within
        self._file: AppendFile | None = None

    def append(self, requests: Sequence[bytes], live: Iterable[JournalPart]) -> list[JournalPart]:
        """Append requests in one write, and return their places.

        Args:
            requests: The requests.
            live: The parts that are still needed, in case the file was removed.

        Raises:
            OSError: The disk did not take all of them, and has none of them.
            MissingExtraError: zstandard isn't installed.
        """
        frames = [frame_of(request, FAST_LEVEL) for request in requests]
        if self._file is None:
            self._file = AppendFile(self.path, self._within)
        try:
            offset = self._file.append(frames)
        except FileGoneError:
            self._rewrite(live)
            offset = self._file.append(frames)
        parts = []
        for request, frame in zip(requests, frames, strict=True):
            part = JournalPart(offset, len(frame), len(request))
            parts.append(part)
            offset += part.length
        self.live_bytes += sum(part.length for part in parts)
        return parts

    def read(self, parts: Iterable[JournalPart]) -> list[bytes]:
        """Return requests, without those that another process has damaged."""
        requests: list[bytes] = []
        for part in parts:
            if self._file is not None:
                with suppress(OSError, ValueError):
                    requests.append(request_of(self._file.read(part.offset, part.length)))
        return requests

    def release(self, parts: Iterable[JournalPart]) -> None:
        """Mark frames as no longer needed."""
        self.live_bytes -= sum(part.length for part in parts)

    def compact(self, live: Iterable[JournalPart]) -> None:
        """Free disk space: truncate the file if no frame is needed, rewrite it if most aren't.

        Args:
            live: The parts that are still needed.

        Raises:
            OSError: The disk failed; nothing is lost.
        """
        if self._file is None or not self._file.end:
            return
        if not self.live_bytes:
            self._file.clear()
        elif self._file.end - self.live_bytes > max(MIN_DEAD_BYTES, self.live_bytes):
            self._rewrite(live)

    def close(self) -> None:
        """Close the file, and remove it if no frame is needed."""
        if self._file is None:
            return
        if not self.live_bytes:
            with suppress(OSError):
                self.path.unlink()
        self.forget()

    def forget(self) -> None:
        """Close the file as it is; in a forked child it is the parent's."""
        if self._file is not None:
            self._file.close()
        self._file, self.live_bytes = None, 0

    def _rewrite(self, live: Iterable[JournalPart]) -> None:
        """Replace the file by one with only the needed frames."""
        old, parts = self._file, sorted(live, key=lambda part: part.offset)
        if old is None:
            return
        # Not a name that readers take for a journal.
        new = AppendFile(self.path.with_name(f".{self.path.name}{NEW}"), self._within)
        offsets: list[int] = []
        try:
            new.clear()
            for part in parts:
                offsets.append(new.end)
                data = b""
                # A frame that can't be read is noticed by `read`.
                with suppress(OSError):
                    data = old.read(part.offset, part.length)
                new.append([data])
            new.path.replace(self.path)
        except OSError:
            new.close()
            with suppress(OSError):
                new.path.unlink()
            raise
        new.path = self.path
        old.close()
        self._file = new
        for part, offset in zip(parts, offsets, strict=True):
            part.offset = offset
