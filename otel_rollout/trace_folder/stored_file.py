"""What one file holds: a part of a trace for each trace of each line, and the spans behind it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate, islice
from operator import itemgetter
from pathlib import Path
from typing import Final, TypeAlias

from opentelemetry.sdk.trace import ReadableSpan

from otel_rollout.trace_folder.file_lock import size_of
from otel_rollout.trace_folder.frames import DamagedFrameError, Frame, checksum_at, read_frame, scan_frames
from otel_rollout.trace_folder.index import entries_of, read_rows
from otel_rollout.trace_folder.index_entry import IndexEntry, Row, place_of
from otel_rollout.trace_folder.journal import unsealed
from otel_rollout.trace_folder.journal_index import MIN_BYTES, write_journal_index
from otel_rollout.trace_folder.lazy_span import lazy_spans
from otel_rollout.trace_folder.otlp_json import decode_line
from otel_rollout.trace_folder.plain_lines import read_piece, scan_lines
from otel_rollout.trace_folder.sealed_line import checksum_of
from otel_rollout.trace_folder.trace_files import TraceFile

__all__ = ["LineCache", "MovedError", "Part", "ReadProblem", "StoredFile"]


_OFFSET: Final = place_of("offset")
_LENGTH: Final = place_of("length")
_CHECKSUM: Final = place_of("checksum")
_MAX_BLANK_BYTES: Final = 4096


class MovedError(FileNotFoundError):
    """What stood here has moved on: a journal's lines go once their trajectory has ended."""


@dataclass(frozen=True)
class ReadProblem:
    """Something that could not be read, and was left out.

    Args:
        what: What it is: `torn frame`, `torn line`, `unreadable line`, `unreadable file`.
        path: The file.
        offset: Where in it.
    """

    what: str
    path: Path
    offset: int

    def __str__(self) -> str:
        return f"{self.what} skipped in {self.path} at byte {self.offset}"


class LineCache:
    """The line that was read last: the traces of a line that holds several are asked for one after the other."""

    __slots__ = ("_last",)

    def __init__(self) -> None:
        self._last: tuple[str, int, list[ReadableSpan]] | None = None

    def spans_of(self, trace_id: str, path: str, offset: int, read: Callable[[], bytes]) -> list[ReadableSpan]:
        """Return the spans of a trace in a line.

        Args:
            trace_id: The trace, 32 hexadecimal digits.
            path: The line's file.
            offset: Where it stands in it.
            read: Reads it.
        """
        last = self._last
        if last is not None and (last[0], last[1]) == (path, offset):
            spans = _of_trace(trace_id, last[2])
            if spans:
                return spans
        line = read()
        lazy = lazy_spans(line, trace_id)
        if lazy is not None:
            return lazy
        everything = decode_line(line)
        spans = _of_trace(trace_id, everything)
        self._last = (path, offset, everything) if len(spans) < len(everything) else None
        return spans


class StoredFile:
    """A file of lines.

    Args:
        file: Which.
        cache: The line that was read last.
        on_problem: Is told of what can't be read.
    """

    def __init__(self, file: TraceFile, cache: LineCache, on_problem: Callable[[ReadProblem], None]) -> None:
        self._file = file
        self._place = file.place
        self._cache = cache
        self._on_problem = on_problem

    @property
    def is_journal(self) -> bool:
        """Whether its lines are plain, so that they can go again."""
        return not self._file.is_compressed

    def parts(self) -> list[Part]:
        """Return what is in the file, from its index as far as that reaches; nothing once the file is gone."""
        try:
            rows = self._frames() if self._file.is_compressed else self._lines()
        except FileNotFoundError:
            # Old steps may be removed while they are read.
            return []
        except OSError:
            self._on_problem(ReadProblem("unreadable file", self._file.path, 0))
            return []
        return [(self, row) for row in rows]

    def read_spans(self, row: Row) -> list[ReadableSpan]:
        """Return the spans of a part.

        Args:
            row: What the index says of it.

        Raises:
            MovedError: They are no longer here.
            OSError: The file can't be read.
            ValueError: The frame is damaged.
        """
        entry = IndexEntry._make(row)

        def read() -> bytes:
            if self._file.is_compressed:
                return read_frame(self._place, entry.offset, entry.length)
            line = read_piece(self._place, entry.offset, entry.length)
            if checksum_of(line[:-1]) != entry.checksum:
                raise ValueError("another line")
            return self._unsealed(line)

        try:
            spans = self._cache.spans_of(entry.trace_id, self._place, entry.offset, read)
        except (FileNotFoundError, ValueError):
            if self._file.is_compressed:
                raise
            spans = []
        if not spans:
            raise MovedError(f"{entry.trace_id} is no longer at byte {entry.offset} of {self._place}")
        return spans

    def _frames(self) -> Sequence[Row]:
        rows = read_rows(self._file.index_place) if self._file.index_place else []
        # After the index: what a running process adds meanwhile is more than the index says, never less.
        size = size_of(self._place)
        end = _covered(rows)
        if end == size:
            return rows
        if rows and (end is None or end > size or not self._is_frame(rows[-1])):
            # Of a line that is missing, doubled, or of another file it is not known which: each is looked at.
            rows = self._standing(rows, size)
        found: list[Row] = []
        end = 0
        for row in rows:
            if end < row[_OFFSET]:
                found += self._scan(end, row[_OFFSET])
            found.append(row)
            end = row[_OFFSET] + row[_LENGTH]
        if end < size:
            found += self._scan(end, size)
        return found

    def _standing(self, rows: Sequence[Row], size: int) -> list[Row]:
        """Return the rows whose frames stand where they say, in order and each once."""
        found: list[Row] = []
        end = 0
        for row in sorted(rows, key=itemgetter(_OFFSET)):
            offset = row[_OFFSET]
            if offset >= size:
                self._on_problem(ReadProblem("torn frame", self._file.path, offset))
            elif offset >= end and self._is_frame(row):
                found.append(row)
                end = offset + row[_LENGTH]
        return found

    def _scan(self, start: int, end: int) -> Iterator[Row]:
        """Yield what stands between two places of a file of frames, where its index says nothing of it."""
        is_damaged = False
        while start < end:
            frame = next(scan_frames(self._place, start), None)
            if frame is None or frame.offset >= end:
                return
            start = frame.offset + frame.length
            if isinstance(frame, Frame):
                try:
                    line = read_frame(self._place, frame.offset, frame.length)
                except DamagedFrameError:
                    # Perhaps it is torn, and what should be its end is the beginning of the next.
                    start = frame.offset + 1
                else:
                    is_damaged = False
                    yield from self._entries(line, frame, checksum_at(self._place, frame))
                    continue
            elif start >= end and self._file.is_being_written():
                return
            if not is_damaged:
                self._on_problem(ReadProblem("torn frame", self._file.path, frame.offset))
            is_damaged = True

    def _lines(self) -> Sequence[Row]:
        index, size = self._file.index_place, size_of(self._place)
        known = read_rows(index) if index else []
        end = _covered(known)
        if not end or end > size or not self._is_last_line(known[-1]):
            known, end = [], 0
        rows = [*known, *self._scan_lines(end)]
        if self._file.is_journal and size - end > MIN_BYTES and _covered(rows):
            write_journal_index(self._file.path, rows)
        return rows

    def _scan_lines(self, start: int) -> Iterator[Row]:
        for offset, length, line in scan_lines(self._place, start):
            if line is None:
                self._on_problem(ReadProblem("unreadable line", self._file.path, offset))
            elif line.endswith(b"\n"):
                yield from self._entries(line, Frame(offset, length), checksum_of(line[:-1]))
            elif not self._file.is_being_written():
                self._on_problem(ReadProblem("torn line", self._file.path, offset))

    def _entries(self, line: bytes, place: Frame, checksum: str) -> Sequence[Row]:
        if len(line) <= _MAX_BLANK_BYTES and line.isspace():
            return []
        try:
            return entries_of(self._unsealed(line), *place, checksum)
        except ValueError:
            self._on_problem(ReadProblem("unreadable line", self._file.path, place.offset))
            return []

    def _is_last_line(self, row: Row) -> bool:
        """Say whether that line stands there and no whole one follows: what was indexed is not written to any more."""
        (_, _, line), *more = islice(scan_lines(self._place, row[_OFFSET]), 2)
        if line is None or not line.endswith(b"\n") or checksum_of(line[:-1]) != row[_CHECKSUM]:
            return False
        return all(rest is not None and not rest.endswith(b"\n") for _, _, rest in more)

    def _unsealed(self, line: bytes) -> bytes:
        return unsealed(line, may_have_none=not self._file.is_journal or line.endswith(b"]}\n"))

    def _is_frame(self, row: Row) -> bool:
        return bool(row[_CHECKSUM] == checksum_at(self._place, Frame(row[_OFFSET], row[_LENGTH])))


Part: TypeAlias = tuple[StoredFile, Row]
"""Spans of one trace in one line: the file, and where in it."""


def _of_trace(trace_id: str, spans: list[ReadableSpan]) -> list[ReadableSpan]:
    number = int(trace_id, 16)
    return [span for span in spans if span.context and span.context.trace_id == number]


def _covered(rows: Sequence[Row]) -> int | None:
    """Return where the last row ends if they stand one behind the other from the first byte on; else None."""
    ends = [0, *accumulate(row[_LENGTH] for row in rows)]
    return ends[-1] if [row[_OFFSET] for row in rows] == ends[:-1] else None
