"""Fills a catalog from the files of trace folders: of what has changed since somebody looked, only the new lines."""

from __future__ import annotations

import os
import sqlite3
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from hashlib import blake2b
from itertools import groupby
from operator import itemgetter
from pathlib import Path
from typing import Any, Final, NamedTuple, TypeAlias

import orjson

from otel_rollout.catalog.records import delete, insert
from otel_rollout.errors import NoTracesError, UnreadableTraceError
from otel_rollout.facts.table import TrajectorySummary
from otel_rollout.folder.index import IndexEntry
from otel_rollout.folder.index_reading import listed_of
from otel_rollout.folder.layout import worker_of
from otel_rollout.folder.reader import RecordedTrajectory, main_row, parts_by_trace
from otel_rollout.folder.selection import Selection
from otel_rollout.folder.stored_file import NOTHING_READ, Extent, LineCache, Part, Reading, ReadProblem, StoredFile
from otel_rollout.folder.trace_files import EVERYTHING, TraceFile, find_trace_files
from otel_rollout.guard.clock import monotonic

OnProblem: TypeAlias = Callable[[ReadProblem], None]
OnProgress: TypeAlias = Callable[[int, int, str], None]
"""Called with the number of things that have been read, of those to read, and their name, if that takes a while."""

SECONDS_BETWEEN_COMMITS: Final = 1.0
"""Others wait no longer for the lock, and a reader that is killed leaves what it has done."""
SECONDS_UNTIL_PROGRESS: Final = 0.5
"""Nobody needs to know how far a shorter reading is."""
MAX_FILES: Final = 4
"""The files whose rows with their summaries are kept to join the lines of a trajectory."""
IDS_AT_ONCE: Final = 8192


@dataclass(frozen=True, slots=True)
class FoundFile:
    """A file of a trace folder.

    Args:
        file: The file.
        status: Its device, inode, time of change and size.
    """

    file: TraceFile
    status: str


Found: TypeAlias = Mapping[bytes, FoundFile]
"""Files by their places, which are the same however the trace folder is named."""


def find_files(folders: Sequence[Path], selection: Selection = EVERYTHING) -> Found:
    """Return the files of trace folders, by name and size; nothing of them is opened.

    Args:
        folders: The folders; one without traces is left out if another has some.
        selection: The filters; folders of other steps are not listed.

    Raises:
        NoTracesError: None of them has traces.
    """
    found: dict[bytes, FoundFile] = {}
    missing: list[NoTracesError] = []
    for number, folder in enumerate(map(os.fspath, folders)):
        try:
            files = find_trace_files(folder, selection)
        except NoTracesError as error:
            missing.append(error)
            continue
        for file in files:
            status = status_of(file.place)
            if status is not None:
                found[os.fsencode(f"{number}/{file.place[len(folder) :].lstrip('/')}")] = FoundFile(file, status)
    if len(missing) == len(folders):
        raise missing[0]
    return found


def has_other_processes(connection: sqlite3.Connection, folders: Sequence[Path]) -> bool:
    """Return True if a process has written files of folders, and none of them was read."""
    names = {place.rpartition(b"/")[2] for (place,) in connection.execute("SELECT place FROM files")}
    read = {worker_of(os.fsdecode(name)) for name in names}
    for folder in folders:
        with suppress(NoTracesError, OSError):
            others = {file.place.rpartition("/")[2] for file in find_trace_files(folder)}
            if not read.issuperset(map(worker_of, others)):
                return True
    return False


def version_of(found: Found) -> str:
    """Return a text that differs once a file has changed."""
    digest = blake2b(digest_size=8)
    for place, each in found.items():
        digest.update(b"%b %b\n" % (place, each.status.encode()))
    return digest.hexdigest()


def status_of(place: str) -> str | None:
    """Return a text that differs once a file has changed; None if it is gone."""
    try:
        status = os.stat(place)  # noqa: PTH116 - one of many
    except OSError as error:
        # Reading a link to nowhere reports that.
        return None if not os.path.lexists(place) else f"0 0 {error.errno} 0"
    return f"{status.st_dev} {status.st_ino} {status.st_ctime_ns} {status.st_size}"


class _Known(NamedTuple):
    """A file as the catalog has it."""

    number: int
    steps: str
    status: str
    known: str
    problems: str
    is_open: int


def fill(
    connection: sqlite3.Connection, folders: Sequence[Path], selection: Selection, on_progress: OnProgress
) -> Found:
    """Read what has changed since a catalog was filled last, and return the files that there are.

    Args:
        connection: The catalog.
        folders: The trace folders.
        selection: Look only at the files that can have these trajectories.
        on_progress: Called with the number of files read, and of those to read, if that takes a while.

    Raises:
        NoTracesError: None of the folders has traces.
    """
    # Before the files: of those that come meanwhile, another reader may put some into the catalog.
    known = _known_files(connection)
    found = find_files(folders, selection)
    loose = [place for place in _changed(found, known) if found[place].file.bundle is None]
    if loose:
        _read_files(connection, folders, found, loose, on_progress)
        if any(found[place].file.is_journal for place in loose):
            # A trajectory that has ended meanwhile is in a step's folder.
            found = find_files(folders, selection)
    changed = [place for place in _changed(found, known) if place not in loose]
    gone = [place for place, each in known.items() if place not in found and _is_in(each.steps, selection)]
    if changed or gone:
        _read_files(connection, folders, found, [*gone, *changed], on_progress)
    return found


def _read_files(
    connection: sqlite3.Connection,
    folders: Sequence[Path],
    found: Found,
    places: Sequence[bytes],
    on_progress: OnProgress,
) -> None:
    """Read files, in transactions of a second each."""
    waiting, total = list(places)[::-1], len(places)
    long = monotonic() + SECONDS_UNTIL_PROGRESS
    while waiting:
        connection.execute("BEGIN IMMEDIATE")
        batch = _Batch(connection, folders, found)
        end = monotonic() + SECONDS_BETWEEN_COMMITS
        while waiting:
            batch.read(waiting.pop())
            if monotonic() >= long:
                on_progress(total - len(waiting), total, "file")
            if monotonic() >= end:
                break
        batch.finish()
        connection.execute("COMMIT")


def _changed(found: Found, known: Mapping[bytes, _Known]) -> list[bytes]:
    return [
        place
        for place, each in found.items()
        if place not in known or known[place].status != each.status or known[place].is_open
    ]


def _known_files(connection: sqlite3.Connection, where: str = "1", values: Sequence[Any] = ()) -> dict[bytes, _Known]:
    select = f"SELECT place, id, steps, status, known, problems, is_open FROM files WHERE {where}"
    return {place: _Known(*rest) for place, *rest in connection.execute(select, values)}


def _is_in(steps: str, selection: Selection) -> bool:
    """Return True if a file would have been listed."""
    has_no_step, step, validate = orjson.loads(steps) or (None, 0, False)
    if has_no_step:
        return selection.takes_step(None, validate=False)
    return has_no_step is None or selection.takes_bundle(step, validate=validate)


def note_problems(connection: sqlite3.Connection, found: Found, on_problem: OnProblem) -> None:
    """Report everything that can't be read in files.

    Args:
        connection: The catalog.
        found: The files.
        on_problem: Called for each problem.
    """
    for place, problems in connection.execute("SELECT place, problems FROM files WHERE problems <> '[]'"):
        if place in found:
            for what, offset in orjson.loads(problems):
                on_problem(ReadProblem(what, found[place].file.path, offset))


def summaries_of(trajectories: Iterable[RecordedTrajectory]) -> Iterator[TrajectorySummary]:
    """Yield the summary of each trajectory, in order; of one that can't be read, only the facts of its index entry."""
    return map(_summary_of, trajectories)


def _summary_of(trajectory: RecordedTrajectory) -> TrajectorySummary:
    with suppress(UnreadableTraceError):
        return trajectory.summary
    summary = TrajectorySummary(**listed_of(main_row(trajectory.parts), trajectory.parts[0][0].worker))
    summary.start_time, summary.end_time = trajectory.start_time, trajectory.end_time
    summary.spans = sum(row.spans for _, row in trajectory.parts)
    summary.bytes, summary.stored_bytes = trajectory.size_bytes, trajectory.stored_bytes
    return summary


class Reader:
    """Makes trajectories of a catalog's parts.

    Args:
        connection: The catalog.
        folders: The trace folders.
        found: Their files, as far as they were looked for.
        find: Finds the parts of a trace whose spans are no longer in place.
    """

    def __init__(
        self,
        connection: sqlite3.Connection,
        folders: Sequence[Path],
        found: Found,
        find: Callable[[str], Sequence[Part]] = lambda _: (),
    ) -> None:
        self._connection = connection
        self._folders = folders
        self._found = found
        self._find = find
        self._cache = LineCache()
        self._files: dict[int, StoredFile | None] = {}

    def trajectories(
        self,
        condition: str,
        arguments: Sequence[Any],
        known: Callable[[str], TrajectorySummary | None] = lambda trace_id: None,
    ) -> list[RecordedTrajectory]:
        """Return the trajectories whose traces match a condition in SQL, in the order of their places.

        Args:
            condition: The condition, of `p`.
            arguments: The values of its question marks.
            known: Returns the summary of a trace.
        """
        return [
            RecordedTrajectory(main_row(parts), parts, self._find, known)
            for parts in self.parts(condition, arguments).values()
        ]

    def parts(self, condition: str, arguments: Sequence[Any]) -> dict[str, list[Part]]:
        """Return the parts of each trace that matches a condition; their rows lack the summary."""
        rows = self._connection.execute(
            "SELECT p.file, p.offset, p.traces, p.line FROM parts p JOIN files f ON f.id = p.file"
            f" WHERE {condition} ORDER BY f.steps IS 'null', f.place, p.offset",
            arguments,
        )
        return parts_by_trace([part for row in rows if (part := self._part(*row)) is not None])

    def _part(self, number: int, offset: int, traces: int, line: str) -> Part | None:
        file = self.file(number)
        if file is not None and traces > 1:
            file.shared[offset] = traces
        return None if file is None else (file, IndexEntry(*orjson.loads(line)))

    def file(self, number: int) -> StoredFile | None:
        """Return a file by its number in the catalog; None if it is gone."""
        if number not in self._files:
            rows = self._connection.execute("SELECT place FROM files WHERE id = ?", (number,)).fetchall()
            self._files[number] = next((self._stored(place) for (place,) in rows), None)
        return self._files[number]

    def _stored(self, place: bytes) -> StoredFile | None:
        if place in self._found:
            file = self._found[place].file
        else:
            # The folders were looked at for another step.
            number, _, name = os.fsdecode(place).partition("/")
            try:
                [file] = find_trace_files(os.path.join(self._folders[int(number)], name))  # noqa: PTH118
            except (NoTracesError, OSError, ValueError):
                return None
        return StoredFile(file, self._cache, lambda problem: None)


class _Batch(Reader):
    """Files that are read in one transaction."""

    def __init__(self, connection: sqlite3.Connection, folders: Sequence[Path], found: Found) -> None:
        super().__init__(connection, folders, found)
        self._changed: set[str] = set()
        """Traces whose lines are to be joined anew."""
        self._rows: OrderedDict[int, dict[tuple[str, int], IndexEntry]] = OrderedDict()

    def read(self, place: bytes) -> None:
        """Read a file, unless another reader has read it as it is."""
        known = _known_files(self._connection, "place = ?", (place,)).get(place)
        file = self._found[place].file if place in self._found else None
        status = None if file is None else status_of(file.place)
        if file is None or status is None:
            if known is not None:
                self._delete_parts(known.number, 0)
                self._connection.execute("DELETE FROM files WHERE id = ?", (known.number,))
            return
        if known is not None and known.status == status and not known.is_open:
            return
        problems: list[ReadProblem] = []
        stored = StoredFile(file, self._cache, problems.append)
        start, size = _start(known, status), int(status.rsplit(" ", 1)[1])
        reading = stored.read(start)
        # While it is being written, its end may be half a line, which is no damage.
        is_open = not problems and _end_of(reading) < size
        if is_open and not stored.is_being_written():
            reading, is_open = stored.read(start), False
        number = self._number_of(known, place)
        gone = self._delete_parts(number, reading.start)
        self._add(number, stored, reading, gone)
        self._connection.execute(
            "UPDATE files SET steps = ?, status = ?, known = ?, problems = ?, is_open = ? WHERE id = ?",
            (
                orjson.dumps(file.bundle and tuple(file.bundle)).decode(),
                status,
                orjson.dumps(tuple(reading.known)).decode(),
                orjson.dumps([(each.what, each.offset) for each in dict.fromkeys(problems)]).decode(),
                is_open,
                number,
            ),
        )

    def _number_of(self, known: _Known | None, place: bytes) -> int:
        if known is not None:
            return known.number
        number = self._connection.execute("INSERT INTO files (place) VALUES (?)", (place,)).lastrowid
        return number or 0

    def _delete_parts(self, number: int, start: int) -> set[str]:
        """Delete the rows of a file from an offset on, and return their traces."""
        where = "FROM parts WHERE file = ? AND offset >= ?"
        gone = {trace_id for (trace_id,) in self._connection.execute(f"SELECT trace_id {where}", (number, start))}
        if gone:
            self._connection.execute(f"DELETE {where}", (number, start))
            self._changed |= gone
        return gone

    def _add(self, number: int, stored: StoredFile, reading: Reading, gone: set[str]) -> None:
        """Insert the rows of a file; a trajectory with one line is inserted as it is."""
        rows = reading.rows
        ids = [row.trace_id for row in rows]
        several = self._known_ids(ids)
        if len(set(ids)) < len(ids):
            seen: set[str] = set()
            several |= {each for each in ids if each in seen or seen.add(each)}  # type: ignore[func-returns-value]
        self._connection.executemany(
            "INSERT INTO parts VALUES (?, ?, ?, ?, ?)",
            ((row.trace_id, number, row.offset, stored.shared.get(row.offset, 1), _line_of(row)) for row in rows),
        )
        single = [row for row in rows if row.trace_id not in several] if several else rows
        self._insert(RecordedTrajectory(row, ((stored, row),), self._find) for row in single)
        self._changed.difference_update(row.trace_id for row in single)
        self._changed |= several
        if (several or gone) and not reading.start:
            self._keep(number, rows)

    def _insert(self, trajectories: Iterable[RecordedTrajectory]) -> None:
        lacking: list[tuple[str]] = []

        def summaries() -> Iterator[TrajectorySummary]:
            for each in trajectories:
                summary = each.listed_summary
                if summary is not None and each.lacks_inferred:
                    lacking.append((each.trace_id,))
                yield summary or _summary_of(each)

        insert(self._connection, summaries())
        self._connection.executemany("INSERT OR REPLACE INTO inferred VALUES (?, 0)", lacking)

    def _known_ids(self, ids: Sequence[str]) -> set[str]:
        """Return the traces that have a line already."""
        select = "SELECT value FROM json_each(?) WHERE EXISTS (SELECT 1 FROM parts WHERE trace_id = value)"
        return {trace_id for (trace_id,) in self._connection.execute(select, (orjson.dumps(ids).decode(),))}

    def finish(self) -> None:
        """Join the lines of the traces that have several, and delete those that have none."""
        changed = sorted(self._changed)
        for at in range(0, len(changed), IDS_AT_ONCE):
            part = changed[at : at + IDS_AT_ONCE]
            lines = self._connection.execute(
                "SELECT trace_id, file, offset, traces, line FROM parts"
                " WHERE trace_id IN (SELECT value FROM json_each(?)) ORDER BY trace_id, file, offset",
                (orjson.dumps(part).decode(),),
            ).fetchall()
            traces = {trace_id: list(group) for trace_id, group in groupby(lines, key=itemgetter(0))}
            delete(self._connection, (each for each in part if each not in traces))
            # One file after the other: each is read once.
            ordered = sorted(traces.values(), key=lambda lines: [number for _, number, *_ in lines])
            self._insert(self._joined(ordered))
        self._changed.clear()

    def _joined(self, of_traces: Iterable[Sequence[tuple[str, int, int, int, str]]]) -> Iterator[RecordedTrajectory]:
        for lines in of_traces:
            parts: list[Part] = []
            for trace_id, number, offset, traces, line in lines:
                if (part := self._part(number, offset, traces, line)) is not None:
                    parts.append((part[0], self._rows_of(number, part[0]).get((trace_id, offset), part[1])))
            for found in parts_by_trace(parts).values():
                yield RecordedTrajectory(main_row(found), found, self._find)

    def _rows_of(self, number: int, file: StoredFile) -> Mapping[tuple[str, int], IndexEntry]:
        """Return the rows of a file with their summaries."""
        if number not in self._rows:
            self._keep(number, file.read().rows)
        return self._rows[number]

    def _keep(self, number: int, rows: Sequence[IndexEntry]) -> None:
        self._rows[number] = {(row.trace_id, row.offset): row for row in rows}
        if len(self._rows) > MAX_FILES:
            self._rows.popitem(last=False)


def _start(known: _Known | None, status: str) -> Extent:
    """Return the part of a file that is known, if the file has only grown."""
    if known is None or known.problems != "[]" or known.status.split(" ")[:2] != status.split(" ")[:2]:
        return NOTHING_READ
    return Extent(*orjson.loads(known.known))


def _end_of(reading: Reading) -> int:
    return max((row.offset + row.length for row in reading.rows), default=reading.start)


def _line_of(row: IndexEntry) -> str:
    """Return a row without its summary, as JSON."""
    return orjson.dumps(row[:-1]).decode()
