"""A worker's journal: lines of spans whose root has not ended yet, on disk so that memory stays small.

The latest of what is in it is held in memory too, the rest is not but for its place. A crash leaves it behind, for
readers to find. Each line ends with its checksum, as a name more that OTLP's readers pass over.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final

from otel_rollout.trace_folder.append_file import AppendFile, FileGoneError
from otel_rollout.trace_folder.layout import NEW
from otel_rollout.trace_folder.otlp_json import is_line
from otel_rollout.trace_folder.sealed_line import SEAL_BYTES, is_sealed, is_whole, seal_of

__all__ = ["Journal", "JournalPart", "unsealed"]

MIN_DEAD_BYTES: Final = 64 * 2**20
"""With less than this that is no longer needed, a journal is not worth writing anew."""
COPY_BYTES: Final = 2**20
MAX_KEPT_BYTES: Final = 64 * 2**20
"""Lines are kept in memory up to this, so that they need not be read; beyond it, the latest."""
_END: Final = b"}\n"


class JournalPart:
    """Where a line stands in the journal.

    Args:
        offset: Its first byte; another one once the journal was written anew.
        length: How many bytes it has, with its end.
    """

    __slots__ = ("length", "offset")

    def __init__(self, offset: int, length: int) -> None:
        self.offset = offset
        self.length = length


class Journal:
    """Lines of one worker; the file is there while there are any.

    Args:
        path: The file.
        within: The trace folder.
    """

    def __init__(self, path: Path, within: Path | None = None) -> None:
        self.path = path
        self._within = within
        self._file: AppendFile | None = None
        self._live_bytes = 0
        self._kept: OrderedDict[JournalPart, bytes] = OrderedDict()
        self._kept_bytes = 0

    @property
    def live_bytes(self) -> int:
        """How many bytes are still needed."""
        return self._live_bytes

    def append(self, lines: Sequence[bytes], live: Iterable[JournalPart]) -> list[JournalPart]:
        """Append lines in one write, and return where they stand.

        Args:
            lines: The lines, with their ends.
            live: The parts that are still needed, in case somebody has removed the file.

        Raises:
            OSError: The disk did not take all of them, and has none of them.
        """
        if self._file is None:
            self._file = AppendFile(self.path, self._within)
        pieces = [piece for line in lines for piece in _sealed(line)]
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
        self._live_bytes += size
        self._kept_bytes += size
        while self._kept_bytes > MAX_KEPT_BYTES:
            self._kept_bytes -= self._kept.popitem(last=False)[0].length
        return parts

    def read(self, parts: Iterable[JournalPart]) -> list[bytes]:
        """Return lines, with their ends; without those that are no longer there, because somebody changed the file.

        Args:
            parts: Where they stand.
        """
        lines: list[bytes] = []
        for part in parts:
            line = self._kept.get(part)
            if line is None and self._file is not None:
                with suppress(OSError, ValueError):
                    line = unsealed(self._file.read(part.offset, part.length))
            if line is not None and is_line(line):
                lines.append(line)
        return lines

    def release(self, parts: Iterable[JournalPart]) -> None:
        """Take note that lines are no longer needed.

        Args:
            parts: Where they stand.
        """
        for part in parts:
            self._live_bytes -= part.length
            if self._kept.pop(part, None) is not None:
                self._kept_bytes -= part.length

    def tidy(self, live: Iterable[JournalPart]) -> None:
        """Give space back: empty the file where nothing in it is needed, write it anew where most isn't.

        Args:
            live: The parts that are still needed.

        Raises:
            OSError: The disk did not let us; nothing is lost.
        """
        if self._file is None or not self._file.end:
            return
        if not self._live_bytes:
            self._file.clear()
        elif self._file.end - self._live_bytes > max(MIN_DEAD_BYTES, self._live_bytes):
            self._rewrite(live)

    def close(self) -> None:
        """Let go of the file, and remove it where nothing in it is needed."""
        if self._file is None:
            return
        if not self._live_bytes:
            with suppress(OSError):
                self.path.unlink()
        self.forget()

    def forget(self) -> None:
        """Let go of the file as it is; in a forked child, where it is the parent's."""
        if self._file is not None:
            self._file.close()
        self._file, self._live_bytes = None, 0
        self._kept.clear()
        self._kept_bytes = 0

    def _rewrite(self, live: Iterable[JournalPart]) -> None:
        """Put a file in the journal's place that has only what is still needed."""
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
                # What is no longer there is noticed when it is read.
                with suppress(OSError):
                    line = self._kept.get(part)
                    pieces += (old.read(part.offset, part.length),) if line is None else _sealed(line)
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


def unsealed(line: bytes, *, may_have_none: bool = False) -> bytes:
    """Return a line of a journal without its checksum.

    Args:
        line: The line, with its end.
        may_have_none: Whether one that has none is returned as it is: another tool's.

    Raises:
        ValueError: It is not what was written.
    """
    body = line[:-1]
    if may_have_none and not is_sealed(body):
        return line
    if not is_whole(body):
        raise ValueError("its checksum is another one")
    return body[:-SEAL_BYTES] + _END


def _sealed(line: bytes) -> tuple[memoryview, bytes]:
    """Return a line in two pieces, the second its checksum: payload is not copied for it."""
    start = memoryview(line)[: -len(_END)]
    return start, seal_of(start)
