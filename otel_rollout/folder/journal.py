"""A worker's journal: lines of spans whose root has not ended yet, on disk so that memory stays small.

The latest lines are kept in memory too. After a crash readers find the file. Each line is sealed with a checksum.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from otel_rollout.folder.append_file import AppendFile, FileGoneError
from otel_rollout.folder.layout import NEW
from otel_rollout.folder.lines import SEAL_BYTES, seal_of, unseal
from otel_rollout.otlp.json_writing import is_line

__all__ = ["Journal", "JournalPart"]

MIN_DEAD_BYTES: Final = 64 * 2**20
"""With fewer bytes that are no longer needed, a journal is not rewritten."""
COPY_BYTES: Final = 2**20
MAX_KEPT_BYTES: Final = 64 * 2**20
"""The latest lines are kept in memory up to this, so that they need not be read."""
_END: Final = b"}\n"


@dataclass(eq=False, slots=True)
class JournalPart:
    """The place of a line in the journal; `offset` changes when the journal is rewritten."""

    offset: int
    length: int


class Journal:
    """Lines of one worker, in a file that exists while there are any."""

    def __init__(self, path: Path, within: Path | None = None) -> None:
        self.path = path
        self.live_bytes = 0
        """The size of all lines that are still needed."""
        self._within = within
        self._file: AppendFile | None = None
        self._kept: OrderedDict[JournalPart, bytes] = OrderedDict()
        self._kept_bytes = 0

    def append(self, lines: Sequence[bytes], live: Iterable[JournalPart]) -> list[JournalPart]:
        """Append lines in one write, and return their places.

        Args:
            lines: The lines, with their line ends.
            live: The parts that are still needed, in case the file was removed.

        Raises:
            OSError: The disk did not take all of them, and has none of them.
        """
        if self._file is None:
            self._file = AppendFile(self.path, self._within)
        pieces = [piece for line in lines for piece in _seal(line)]
        try:
            offset = self._file.append(pieces)
        except FileGoneError:
            self._rewrite(live)
            offset = self._file.append(pieces)
        parts = []
        for line in lines:
            part = JournalPart(offset, len(line) + SEAL_BYTES - len(_END) + 1)
            parts.append(part)
            self._kept[part] = line
            offset += part.length
        size = sum(part.length for part in parts)
        self.live_bytes += size
        self._kept_bytes += size
        while self._kept_bytes > MAX_KEPT_BYTES:
            self._kept_bytes -= self._kept.popitem(last=False)[0].length
        return parts

    def read(self, parts: Iterable[JournalPart]) -> list[bytes]:
        """Return lines, with their line ends, without those that another process has damaged."""
        lines: list[bytes] = []
        for part in parts:
            line = self._kept.get(part)
            if line is None and self._file is not None:
                with suppress(OSError, ValueError):
                    line = unseal(self._file.read(part.offset, part.length))
            if line is not None and is_line(line):
                lines.append(line)
        return lines

    def release(self, parts: Iterable[JournalPart]) -> None:
        """Mark lines as no longer needed."""
        for part in parts:
            self.live_bytes -= part.length
            if self._kept.pop(part, None) is not None:
                self._kept_bytes -= part.length

    def compact(self, live: Iterable[JournalPart]) -> None:
        """Free disk space: truncate the file if no line is needed, rewrite it if most aren't.

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
        """Close the file, and remove it if no line is needed."""
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
        self._kept.clear()
        self._kept_bytes = 0

    def _rewrite(self, live: Iterable[JournalPart]) -> None:
        """Replace the file by one with the needed lines alone."""
        old, parts = self._file, sorted(live, key=lambda part: part.offset)
        if old is None:
            return
        # Not a name that readers take for a journal.
        new = AppendFile(self.path.with_name(f".{self.path.name}{NEW}"), self._within)
        offsets: list[int] = []
        try:
            new.clear()
            pieces: list[bytes | memoryview] = []
            size = 0
            for part in parts:
                offsets.append(new.end + size)
                # A line that can't be read is noticed by `read`.
                with suppress(OSError):
                    line = self._kept.get(part)
                    pieces += (old.read(part.offset, part.length),) if line is None else _seal(line)
                    size += part.length
                if size >= COPY_BYTES:
                    new.append(pieces)
                    pieces, size = [], 0
            new.append(pieces)
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


def _seal(line: bytes) -> tuple[memoryview, bytes]:
    """Return a line in two pieces, the second its checksum, so that the payload is not copied."""
    start = memoryview(line)[: -len(_END)]
    return start, seal_of(start)
