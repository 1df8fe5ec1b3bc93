"""A trace folder as the source of a replay: its trajectories, one by one."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

from opentelemetry.sdk.trace import ReadableSpan

from otel_rollout.replay.source import Total, Unit, UnreadableError
from otel_rollout.trace_folder.reader import ReadProblem, read
from otel_rollout.trace_folder.recorded_trajectory import RecordedTrajectory
from otel_rollout.trace_folder.selection import Filters
from otel_rollout.trace_folder.stored_file import LineCache, MovedError, StoredFile
from otel_rollout.trace_folder.trace_files import find_trace_files

__all__ = ["TrajectorySource"]


class TrajectorySource:
    """The trajectories of a trace folder that filters let through, but for those that are still running.

    Args:
        folder: The folder.
        filters: Which of its trajectories.
    """

    unit_name = "trajectory"
    goes_alone = False

    def __init__(self, folder: Path, filters: Filters) -> None:
        self._folder = folder
        self._filters = filters
        self._running = _running_traces(folder)
        self._left = 0
        self._rootless = 0
        self._problems: Counter[tuple[str, str]] = Counter()

    def total(self) -> Total:
        """Return how much there is; indexes are read, spans are not."""
        units = size = 0
        for trajectory in read(self._folder, **self._filters, on_problem=lambda problem: None):
            if trajectory.trace_id not in self._running:
                units += 1
                size += trajectory.size_bytes
        return Total(units, size)

    def units(self) -> Iterator[Unit]:
        """Yield the trajectories in the order of their steps."""
        for trajectory in read(self._folder, **self._filters, on_problem=self._note):
            if trajectory.trace_id in self._running:
                self._left += 1
                continue
            self._rootless += not trajectory.has_root
            yield Unit(_token(trajectory), trajectory.size_bytes, lambda each=trajectory: _spans_of(each))  # type: ignore[misc]

    def settled(self, unit: Unit, *, is_delivered: bool) -> None:
        """Do nothing: an archive stays as it is."""

    def notes(self) -> list[str]:
        """Return what was left alone and what was missing, in words."""
        notes = []
        if self._rootless:
            notes.append(f"{self._rootless} without a root: their process ended before they did")
        if self._left:
            notes.append(f"{self._left} left for later: their process has not finished them")
        return notes + [
            f"{count} {what}{'' if count == 1 else 's'} skipped in {path}"
            for (what, path), count in self._problems.items()
        ]

    def _note(self, problem: ReadProblem) -> None:
        self._problems[problem.what, str(problem.path)] += 1


def _running_traces(folder: Path) -> set[str]:
    """Return the traces that a process is not done with: in its journal, or in its spool."""
    cache = LineCache()
    return {
        entry.trace_id
        for file in find_trace_files(folder)
        if file.key is None and file.is_being_written()
        for _, entry in StoredFile(file, cache, lambda problem: None).parts()
    }


def _token(trajectory: RecordedTrajectory) -> str:
    # With every span that comes to it, its size and its end change: then it is another one, and is sent again.
    times = f"{trajectory.start_time} {trajectory.end_time}"
    return f"{trajectory.trace_id} {trajectory.size_bytes} {times}"


def _spans_of(trajectory: RecordedTrajectory) -> Sequence[ReadableSpan]:
    try:
        return trajectory.spans
    except (OSError, ValueError, MovedError) as error:
        raise UnreadableError(str(error)) from error
