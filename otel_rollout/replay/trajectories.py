"""The trajectories of a trace folder, or of a spool, as the source of a replay."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Final, NamedTuple

from opentelemetry.sdk.trace import ReadableSpan

from otel_rollout.errors import UnreadableTraceError
from otel_rollout.folder.index_reading import read_index
from otel_rollout.folder.layout import index_path
from otel_rollout.folder.reader import RecordedTrajectory, read_together, read_trajectories
from otel_rollout.folder.selection import Filters
from otel_rollout.folder.stored_file import ReadProblem
from otel_rollout.replay.spool_files import files_in
from otel_rollout.text.plain_text import counted

MAX_BYTES_AHEAD: Final = 256 * 2**20
"""Trajectories of several lines are read together up to this size: a line that many share is read once for all."""


class Total(NamedTuple):
    """The number of trajectories to replay, and their bytes."""

    units: int
    bytes: int


class Unit(NamedTuple):
    """A trajectory to replay, or something that could not be read.

    Args:
        token: A line of text that stands for exactly these spans.
        bytes: Their size.
        files: The files that they are in.
        read: Reads them in the order of sending; raises `UnreadableTraceError`.
    """

    token: str
    bytes: int
    files: Sequence[Path]
    read: Callable[[], Sequence[ReadableSpan]]


class TrajectorySource:
    """The trajectories of a trace folder or a spool that filters let through, without those that are running."""

    def __init__(self, folder: Path, filters: Filters, trace: str = "") -> None:
        self._folder = folder
        self._trace = trace
        self._filters = filters
        # A dict: a file may be read more than once.
        self._problems: dict[ReadProblem, None] = {}
        files = files_in(folder)
        # Before anything is read: what a file gets later is not seen.
        self.final = {file.path for file in files if file.bundle is not None or not file.is_being_written()}
        """The files that no running process takes anything from, or adds something to what is replayed."""
        self.kept: set[Path] = set()
        """The files that have something that was not delivered."""
        self._is_empty = not files
        self._left = 0
        self._rootless = 0
        self._has_none = False

    def total(self) -> Total:
        """Return the trajectories' number and bytes from the indexes, without reading spans."""
        units = size = 0
        for trajectory in self._trajectories():
            if not self._is_running(trajectory):
                units += 1
                size += trajectory.size_bytes
        return Total(units + sum(map(_is_damage, self._problems)), size)

    def units(self) -> Iterator[Unit]:
        """Yield the trajectories in the order of steps, then the damage."""
        is_any = False
        for trajectory, ahead in self._with_those_ahead():
            is_any = True
            files = [stored.file.path for stored, _ in trajectory.parts]
            if self._is_running(trajectory):
                self._left += 1
                self.kept.update(files)
                continue
            self._rootless += not trajectory.has_root
            # A further span changes the size and the end: then the trajectory is sent again.
            times = f"{trajectory.start_time} {trajectory.end_time}"
            token = f"{trajectory.trace_id} {trajectory.size_bytes} {times}"
            yield Unit(token, trajectory.size_bytes, files, partial(_spans_of, trajectory, ahead))
        for problem in list(self._problems):
            if _is_damage(problem):
                token = f"unreadable {problem.path} {problem.offset}"
                yield Unit(token, 0, [problem.path], partial(_raise, UnreadableTraceError(str(problem))))
        self._has_none = not is_any and any(value not in (None, "") for value in (self._trace, *self._filters.values()))

    def notes(self) -> list[str]:
        """Return lines of text on what was left for later and what was missing."""
        notes = []
        if self._rootless:
            notes.append(f"{self._rootless} without a root: their process ended before they did, or delivered it")
        if self._left:
            notes.append(f"{self._left} left for later: their process has not finished them")
        if self._has_none:
            notes.append(f"no trajectory in {self._folder} matches")
        counts = Counter((problem.what, problem.path) for problem in self._problems)
        return notes + [f"{counted(count, what)} skipped in {path}" for (what, path), count in counts.items()]

    def _trajectories(self) -> Iterator[RecordedTrajectory]:
        if not self._is_empty:
            for trajectory in read_trajectories(self._folder, on_problem=self._note, **self._filters):
                if trajectory.trace_id.startswith(self._trace):
                    yield trajectory

    def _with_those_ahead(self) -> Iterator[tuple[RecordedTrajectory, list[RecordedTrajectory]]]:
        """Yield the trajectories, each with those to read together with it."""
        ahead: list[RecordedTrajectory] = []
        size = 0
        for trajectory in self._trajectories():
            if not ahead and len(trajectory.parts) == 1:
                yield trajectory, []
                continue
            ahead.append(trajectory)
            size += trajectory.size_bytes
            if size > MAX_BYTES_AHEAD:
                yield from _each_with(ahead)
                ahead, size = [], 0
        yield from _each_with(ahead)

    def _note(self, problem: ReadProblem) -> None:
        self._problems[problem] = None

    def _is_running(self, trajectory: RecordedTrajectory) -> bool:
        # A journal keeps what was written to its place for a while: then it adds nothing.
        written = [row for stored, row in trajectory.parts if stored.file.path in self.final]
        if len(written) == len(trajectory.parts):
            return False
        return not trajectory.has_root or trajectory.size_bytes != sum(entry.bytes for entry in written)


def _is_damage(problem: ReadProblem) -> bool:
    """Return if recorded spans were lost: of a frame that only begins at a file's end, none was written whole.

    A frame that the index names was: the index gets a line after the file has it.
    """
    if problem.what == "torn frame":
        return any(entry.offset == problem.offset for entry in read_index(index_path(problem.path)))
    return problem.what in ("unreadable file", "damaged frame", "unreadable request")


def _each_with(
    ahead: list[RecordedTrajectory],
) -> Iterator[tuple[RecordedTrajectory, list[RecordedTrajectory]]]:
    waiting = ahead[::-1]
    while waiting:
        # Not kept: it holds its spans once they were read.
        yield waiting.pop(), ahead


def _spans_of(trajectory: RecordedTrajectory, ahead: list[RecordedTrajectory]) -> Sequence[ReadableSpan]:
    read_together(ahead)
    ahead.clear()
    spans = trajectory.spans
    for span in spans:
        # Spans are parsed on first use: here a bad one is the fault of one trajectory.
        span.get_span_context()
    return spans


def _raise(error: UnreadableTraceError) -> Sequence[ReadableSpan]:
    raise error
