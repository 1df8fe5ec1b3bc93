"""What one file holds: a part of a trace for each trace of each line, and the spans behind it."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from operator import itemgetter
from pathlib import Path
from typing import TypeAlias

from opentelemetry.sdk.trace import ReadableSpan

from otel_rollout.trace_folder.frames import DamagedFrameError, Frame, read_frame, scan_frames
from otel_rollout.trace_folder.index import entries_of, read_rows
from otel_rollout.trace_folder.index_entry import IndexEntry, Row, place_of
from otel_rollout.trace_folder.lazy_span import lazy_spans
from otel_rollout.trace_folder.otlp_json import decode_line
from otel_rollout.trace_folder.trace_files import TraceFile

__all__ = ["LineCache", "MovedError", "Part", "ReadProblem", "StoredFile"]


_length = itemgetter(place_of("length"))


class MovedError(FileNotFoundError):
    """What stood here has moved on: a journal's lines go once their trajectory has ended."""


@dataclass(frozen=True)
class ReadProblem:
    """Something that could not be read, and was left out.

    Args:
        what: What it is: `torn frame`, `torn line`, `unreadable line`.
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
            rows = self._frames() if self._file.is_compressed else list(self._lines())
        except FileNotFoundError:
            # Old steps may be removed while they are read.
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
            with self._file.path.open("rb") as file:
                file.seek(entry.offset)
                return file.read(entry.length)

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
        rows = read_rows(self._file.index_place) if self._file.index_place else ()
        # After the index: what a running process adds meanwhile is more than the index says, never less.
        size = os.stat(self._place).st_size  # noqa: PTH116 - one of many
        if sum(map(_length, rows)) == size:
            return rows
        found: list[IndexEntry] = []
        end = 0
        for entry in map(IndexEntry._make, rows):
            if end < min(entry.offset, size):
                found += self._scan(end, min(entry.offset, size))
            if entry.offset + entry.length <= size:
                found.append(entry)
            elif not end < size <= entry.offset:
                self._on_problem(ReadProblem("torn frame", self._file.path, entry.offset))
            end = max(end, entry.offset + entry.length)
        if end < size:
            found += self._scan(end, size)
        return found

    def _scan(self, start: int, end: int) -> Iterator[IndexEntry]:
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
                    yield from self._entries(line, frame.offset, frame.length)
                    continue
            elif start >= end and self._file.is_being_written():
                return
            if not is_damaged:
                self._on_problem(ReadProblem("torn frame", self._file.path, frame.offset))
            is_damaged = True

    def _lines(self) -> Iterator[IndexEntry]:
        offset = 0
        with self._file.path.open("rb") as lines:
            for line in lines:
                if line.endswith(b"\n"):
                    yield from self._entries(line, offset, len(line))
                elif not self._file.is_being_written():
                    self._on_problem(ReadProblem("torn line", self._file.path, offset))
                offset += len(line)

    def _entries(self, line: bytes, offset: int, length: int) -> list[IndexEntry]:
        if line.isspace():
            return []
        try:
            return entries_of(line, offset, length)
        except ValueError:
            self._on_problem(ReadProblem("unreadable line", self._file.path, offset))
            return []


Part: TypeAlias = tuple[StoredFile, Row]
"""Spans of one trace in one line: the file, and where in it."""


def _of_trace(trace_id: str, spans: list[ReadableSpan]) -> list[ReadableSpan]:
    number = int(trace_id, 16)
    return [span for span in spans if span.context and span.context.trace_id == number]
