"""Fills a catalog from the files of trace folders: of what has changed since somebody looked, only the new lines."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from hashlib import blake2b
from itertools import groupby, islice
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
from otel_rollout.folder.stored_file import NOTHING_READ, Extent, LineCache, Part, ReadProblem, StoredFile
from otel_rollout.folder.trace_files import EVERYTHING, TraceFile, find_trace_files
from otel_rollout.guard.clock import monotonic

OnProblem: TypeAlias = Callable[[ReadProblem], None]
OnProgress: TypeAlias = Callable[[int, int, str], None]
"""Called with the number of things that have been read, of those to read, and their name, if that takes a while."""

SECONDS_BETWEEN_COMMITS: Final = 1.0
"""Others wait no longer for the lock, and a reader that is killed leaves what it has done."""
SECONDS_UNTIL_PROGRESS: Final = 0.5
"""Nobody needs to know how far a shorter reading is."""
IDS_AT_ONCE: Final = 1024


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
    read = {worker_of(os.fsdecode(place)) for (place,) in connection.execute("SELECT place FROM files")}
    for folder in folders:
        with suppress(NoTracesError, OSError):
            if any(file.worker not in read for file in find_trace_files(folder)):
                return True
    return False


def version_of(found: Found) -> str:
    """Return a text that differs once a file has changed."""
    lines = (b"%b %b\n" % (place, each.status.encode()) for place, each in found.items())
    return blake2b(b"".join(lines), digest_size=8).hexdigest()


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
    _read_files(connection, folders, found, loose, on_progress)
    if any(found[place].file.is_journal for place in loose):
        # A trajectory that has ended meanwhile is in a step's folder.
        found = find_files(folders, selection)
    changed = [place for place in _changed(found, known) if place not in loose]
    gone = [place for place, each in known.items() if place not in found and _is_in(each.steps, selection)]
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
        end = monotonic() + SECONDS_BETWEEN_COMMITS
        while waiting:
            place = waiting.pop()
            _join(connection, folders, _read_file(connection, place, found.get(place)))
            if monotonic() >= long:
                on_progress(total - len(waiting), total, "file")
            if monotonic() >= end:
                break
        connection.execute("COMMIT")


def _changed(found: Found, known: Mapping[bytes, _Known]) -> list[bytes]:
    return [place for place, each in found.items() if place not in known or known[place].status != each.status]


def _known_files(connection: sqlite3.Connection, where: str = "1", values: Sequence[Any] = ()) -> dict[bytes, _Known]:
    select = f"SELECT place, id, steps, status, known, problems FROM files WHERE {where}"
    return {place: _Known(*rest) for place, *rest in connection.execute(select, values)}


def _is_in(steps: str, selection: Selection) -> bool:
    """Return True if a file would have been listed."""
    # The lines of those without steps may be of any.
    has_no_step, step, validate = orjson.loads(steps) or (True, 0, False)
    return has_no_step or selection.takes_bundle(step, validate=validate)


def problems_of(connection: sqlite3.Connection, found: Found) -> list[ReadProblem]:
    """Return everything in files that a catalog could not read."""
    rows = connection.execute("SELECT place, problems FROM files WHERE problems <> '[]'")
    known = ((found[place].file, orjson.loads(problems)) for place, problems in rows if place in found)
    return [ReadProblem(what, file.path, offset) for file, problems in known for what, offset in problems]


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


def parts_of(
    connection: sqlite3.Connection, folders: Sequence[Path], condition: str, arguments: Sequence[Any]
) -> dict[str, list[Part]]:
    """Return the lines of each trace that matches a condition in SQL, in the order of their places.

    Args:
        connection: The catalog.
        folders: The trace folders.
        condition: The condition, of `p`.
        arguments: The values of its question marks.
    """
    rows = connection.execute(
        "SELECT f.place, p.offset, p.traces, p.line, p.facts FROM parts p JOIN files f ON f.id = p.file"
        f" WHERE {condition} ORDER BY f.steps IS 'null', f.place, p.offset",
        arguments,
    )
    parts: list[Part] = []
    cache = LineCache()
    for place, of_file in groupby(rows, key=itemgetter(0)):
        number, _, name = os.fsdecode(place).partition("/")
        # Its index is not asked for, and whether it is still there shows when it is read.
        file = TraceFile(os.fspath(folders[int(number)] / name), None, None)
        stored = StoredFile(file, cache, lambda problem: None)
        for _, offset, traces, line, facts in of_file:
            if traces > 1:
                stored.shared[offset] = traces
            parts.append((stored, IndexEntry._make((*orjson.loads(line), facts))))
    return parts_by_trace(parts)


def _read_file(connection: sqlite3.Connection, place: bytes, found: FoundFile | None) -> dict[str, None]:
    """Read a file, unless another reader has read it as it is; return the traces whose lines have changed, in order."""
    connection.execute("INSERT OR IGNORE INTO files (place) VALUES (?)", (place,))
    known = _known_files(connection, "place = ?", (place,))[place]
    status = None if found is None else status_of(found.file.place)
    if found is None or status is None:
        connection.execute("DELETE FROM files WHERE id = ?", (known.number,))
        return _delete_parts(connection, known.number, 0)
    if known.status == status:
        return {}
    problems: list[ReadProblem] = []
    stored = StoredFile(found.file, LineCache(), problems.append)
    is_written = found.file.is_being_written()
    identity, _, size = status.rsplit(" ", 2)
    # If it has only grown, its new lines are read.
    has_grown = known.problems == "[]" and f"{known.status} ".startswith(f"{identity} ")
    reading = stored.read(Extent(*orjson.loads(known.known)) if has_grown else NOTHING_READ)
    end = max((row.offset + row.length for row in reading.rows), default=reading.start)
    gone = _delete_parts(connection, known.number, reading.start)
    traces = stored.shared.get
    connection.executemany(
        "INSERT INTO parts VALUES (?, ?, ?, ?, ?, ?)",
        (
            (row.trace_id, known.number, row.offset, traces(row.offset, 1), orjson.dumps(row[:-1]), row.summary)
            for row in reading.rows
        ),
    )
    connection.execute(
        "UPDATE files SET steps = ?, status = ?, known = ?, problems = ? WHERE id = ?",
        (
            orjson.dumps(found.file.bundle and tuple(found.file.bundle)).decode(),
            # While it is being written, its end may be half a line, which is no damage: it is read again.
            identity if is_written and not problems and end < int(size) else status,
            orjson.dumps(tuple(reading.known)).decode(),
            orjson.dumps([(each.what, each.offset) for each in dict.fromkeys(problems)]).decode(),
            known.number,
        ),
    )
    return gone | dict.fromkeys(row.trace_id for row in reading.rows)


def _delete_parts(connection: sqlite3.Connection, number: int, start: int) -> dict[str, None]:
    """Delete the lines of a file from an offset on, and return their traces."""
    where = "FROM parts WHERE file = ? AND offset >= ?"
    gone = connection.execute(f"SELECT trace_id, NULL {where}", (number, start)).fetchall()
    connection.execute(f"DELETE {where}", (number, start))
    return dict(gone)


def _join(connection: sqlite3.Connection, folders: Sequence[Path], changed: Iterable[str]) -> None:
    """Join the lines of traces, and delete those that have none."""
    waiting = iter(changed)
    while ids := list(islice(waiting, IDS_AT_ONCE)):
        of_ids = "p.trace_id IN (SELECT value FROM json_each(?))"
        found = parts_of(connection, folders, of_ids, (orjson.dumps(ids).decode(),))
        delete(connection, (each for each in ids if each not in found))
        joined = [RecordedTrajectory(main_row(parts), parts, lambda _: ()) for parts in found.values()]
        listed = [each.listed_summary for each in joined]
        insert(connection, (known or _summary_of(each) for each, known in zip(joined, listed, strict=True)))
        lacking = (
            (each.trace_id,)
            for each, known in zip(joined, listed, strict=True)
            if known is not None and each.lacks_inferred
        )
        connection.executemany("INSERT OR REPLACE INTO inferred VALUES (?, 0)", lacking)
