"""One file of lines: the rows of its traces, by its index or by scanning it, and their spans."""

from __future__ import annotations

import os
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from itertools import accumulate
from math import inf
from operator import attrgetter
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple, TypeAlias
from zlib import crc32

# Its names are imported at first use: lists need none of them.
from otel_rollout import otlp
from otel_rollout.files.file_lock import size_of
from otel_rollout.folder.frames import CHECKSUM_BYTES, MAGIC, Frame, read_frame, read_range, scan_frames
from otel_rollout.folder.index import IndexEntry
from otel_rollout.folder.index_reading import entries_of, read_rows_from
from otel_rollout.folder.otlp_file import NoOtlpFileError, OtlpFile, request_in
from otel_rollout.folder.trace_files import TraceFile
from otel_rollout.text.sanitize import replace_surrogates

if TYPE_CHECKING:
    from opentelemetry.sdk.trace import ReadableSpan

    from otel_rollout.otlp import StoredSpan

MAX_CACHED_BYTES: Final = 32 * 2**20
"""The most bytes of requests; a larger one is cached by itself."""

MAX_DECOMPRESSED_BYTES: Final = 2**28
"""A file of another program that is compressed as a whole is read in memory, up to this."""
_FRAME_FAULTS: Final = ("torn frame", "damaged frame")
_REQUEST_FAULTS: Final = ("torn request", "unreadable request")


class MovedError(FileNotFoundError):
    """The line is no longer here: a journal's lines are removed once their trajectory has ended."""


@dataclass(frozen=True)
class ReadProblem:
    """Something that could not be read, and was skipped.

    Args:
        what: `torn frame` or `torn request` (the file ends within it), `damaged frame`, `unreadable request`,
            `unreadable file`, `file without OTLP`, or a compressed file that `import` reads.
        path: The file.
        offset: The first byte of it.
    """

    what: str
    path: Path
    offset: int

    def __str__(self) -> str:
        return f"{self.what} skipped in {self.path} at byte {self.offset}"


class LineCache:
    """Caches the spans of requests with several traces: each would be read for each of them."""

    def __init__(self) -> None:
        self._lines: OrderedDict[tuple[str, int], tuple[int, dict[bytes, list[StoredSpan]]]] = OrderedDict()
        self._lock = threading.Lock()

    def spans_of(self, trace_id: str, path: str, offset: int, read: Callable[[], bytes]) -> list[ReadableSpan]:
        """Return the spans of a trace in the request at `offset` of `path`; `read` returns that."""
        number = bytes.fromhex(trace_id)
        if (known := self._lines.get((path, offset))) is not None and number in known[1]:
            return [*known[1][number]]
        request = read()
        traces = otlp.traces_of(request)
        if len(traces) > 1:
            with self._lock:
                self._lines[path, offset] = len(request), traces
                while len(self._lines) > 1 and sum(size for size, _ in self._lines.values()) > MAX_CACHED_BYTES:
                    self._lines.popitem(last=False)
        return [*traces.get(number, ())]


class Extent(NamedTuple):
    """The part of a file of frames that its index has, without a gap.

    Args:
        end: The end of the last frame.
        index_end: The end of its line in the index.
    """

    end: int
    index_end: int


NOTHING_READ: Final = Extent(0, 0)


class Reading(NamedTuple):
    """The rows of a file that were read.

    Args:
        rows: The rows.
        start: The offset from which on they are all that there are; the rows before it were read earlier.
        known: The part that the index has; the next reading may go on from there.
    """

    rows: Sequence[IndexEntry]
    start: int = 0
    known: Extent = NOTHING_READ


class StoredFile:
    """A file of lines.

    Args:
        file: The file.
        cache: The spans of requests with several traces.
        on_problem: Called for everything in it that can't be read.
    """

    def __init__(self, file: TraceFile, cache: LineCache, on_problem: Callable[[ReadProblem], None]) -> None:
        self.file = file
        self._place = file.place
        self._cache = cache
        self._on_problem = on_problem
        # A file that another program named may have any bytes.
        self.worker = replace_surrogates(file.worker)
        """The name of the process that wrote it."""
        self.shared: dict[int, int] = {}
        """The number of traces in the line at an offset, if it is more than one."""

    def stored_bytes(self, row: IndexEntry) -> int:
        """Return the size of a row's trace on disk: its share of a line that has several."""
        return row.length // self.shared.get(row.offset, 1)

    @cached_property
    def _foreign(self) -> OtlpFile | None:
        """The file as one of another program; None if it is one of ours."""
        # Spans in a line that is known are read without looking at its start.
        if self.file.has_frames:
            return None
        found = OtlpFile(self.file.path)
        return None if found.form == "frames" else found

    def parts(self) -> list[Part]:
        """Return the file's traces; none once the file is gone."""
        return [(self, row) for row in self.read().rows]

    def read(self, known: Extent = NOTHING_READ) -> Reading:
        """Read the rows of the file, from its index as far as that reaches; none once the file is gone.

        Args:
            known: The part that was read before; it is not read again if the file has only grown.
        """
        try:
            if (foreign := self._foreign) is None:
                return self._frames(known)
            if not foreign.encoding or self._data() is not None:
                return Reading([*self._entries(foreign.requests())])
            self._report("large compressed file for `otel-rollout import`", 0)
        except NoOtlpFileError:
            self._report("file without OTLP", 0)
        except FileNotFoundError:
            # Old steps may be removed meanwhile.
            pass
        except OSError:
            self._report("unreadable file", 0)
        return Reading(())

    def read_spans(self, row: IndexEntry) -> list[ReadableSpan]:
        """Return the spans of a row.

        Raises:
            MovedError: They are no longer here.
            OSError: The file can't be read.
            ValueError: The frame is damaged.
        """
        try:
            spans = self._cache.spans_of(row.trace_id, self._place, row.offset, lambda: self.read_request(row))
        except (FileNotFoundError, ValueError):
            if not self.file.is_journal:
                raise
            spans = []
        if not spans:
            raise MovedError(f"{row.trace_id} is no longer at byte {row.offset} of {self._place}")
        return spans

    def read_ids(self, row: IndexEntry) -> list[bytes]:
        """Return the ids of a row's spans; raises what `read_spans` raises."""
        return [span.context.span_id.to_bytes(8, "big") for span in self.read_spans(row) if span.context is not None]

    def read_request(self, row: IndexEntry) -> bytes:
        """Return the request that a row is of.

        Raises:
            OSError: The file can't be read.
            ValueError: The frame is damaged, or another request is there.
        """
        offset, length, checksum = row.offset, row.length, row.checksum
        if (foreign := self._foreign) is None:
            return read_frame(self._place, offset, length, checksum)
        data = self._data() or b"" if foreign.encoding else None
        body = read_range(self._place, offset, length) if data is None else data[offset : offset + length]
        request, is_json = request_in(body)
        if f"{crc32(request):08x}" != checksum:
            raise ValueError("another request")
        return otlp.request_of_json(request) if is_json else request

    def _frames(self, known: Extent) -> Reading:
        rows, index_end = read_rows_from(self.file.index_place, known.index_end)
        if known.end:
            # Lines that have moved into the closed index come again.
            rows = [row for row in rows if row.offset >= known.end]
        # After the index: what a process appends meanwhile is missing there, and not missing here.
        size = size_of(self._place)
        *offsets, end = accumulate((row.length for row in rows), initial=known.end)
        has_no_gap = offsets == [row.offset for row in rows]
        is_sound = has_no_gap and (end == size or (end < size and (not rows or self._is_frame(rows[-1]))))
        if not is_sound and known.end:
            return self._frames(NOTHING_READ)
        found: list[IndexEntry] = []
        at = known.end
        for row in rows if is_sound else sorted(rows, key=attrgetter("offset")):
            # A line may be missing, doubled, or of another file: check each.
            if not is_sound and (row.offset < at or not self._is_frame(row)):
                if row.offset >= size:
                    self._report("torn frame", row.offset)
                continue
            if at < row.offset:
                found += self._entries(scan_frames(self._place, at), row.offset)
            found.append(row)
            at = row.offset + row.length
        if at < size:
            found += self._entries(scan_frames(self._place, at), size)
        return Reading(found, known.end, Extent(end, index_end) if is_sound and end else NOTHING_READ)

    def _entries(self, requests: Iterable[Frame], end: float = inf) -> Iterator[IndexEntry]:
        """Yield the rows of requests that begin before an offset, and report what is none."""
        torn, damaged = _FRAME_FAULTS if self._foreign is None else _REQUEST_FAULTS
        for each in requests:
            if each.offset >= end:
                return
            if each.request is None:
                if not (each.is_cut_off and self.file.is_being_written()):
                    self._report(torn if each.is_cut_off else damaged, each.offset)
                continue
            try:
                request = otlp.request_of_json(each.request) if each.is_json else each.request
                checksum = each.checksum or f"{crc32(each.request):08x}"
                entries = entries_of(request, each._replace(checksum=checksum))
            except ValueError:
                self._report("unreadable request", each.offset)
                continue
            if len(entries) > 1:
                self.shared[each.offset] = len(entries)
            yield from entries

    def _data(self) -> bytes | None:
        status = os.stat(self._place)  # noqa: PTH116 - as a string, as all others
        return _data_of(self._place, (status.st_size, status.st_mtime_ns))

    def _is_frame(self, row: IndexEntry) -> bool:
        # Only its two ends are read: in a damaged file every line is checked.
        end = read_range(self._place, row.offset + row.length - CHECKSUM_BYTES, CHECKSUM_BYTES)
        return end.hex() == row.checksum and read_range(self._place, row.offset, len(MAGIC)) == MAGIC

    def _report(self, what: str, offset: int) -> None:
        self._on_problem(ReadProblem(what, self.file.path, offset))


Part: TypeAlias = tuple[StoredFile, IndexEntry]
"""The spans of one trace in one line: the file and the row."""


@lru_cache(1)
def _data_of(place: str, identity: tuple[int, int]) -> bytes | None:
    """Return the data of a compressed file; None if it is large. `identity` changes with the file."""
    return OtlpFile(Path(place)).data(MAX_DECOMPRESSED_BYTES)
