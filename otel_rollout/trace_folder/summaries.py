"""The summaries of many trajectories, from the indexes of a trace folder."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any, Final

from otel_rollout.analysis.trajectory_summary import TrajectorySummary
from otel_rollout.trace_folder.index_entry import Row, place_of
from otel_rollout.trace_folder.reader import RecordedTrajectory
from otel_rollout.trace_folder.stored_file import StoredFile

__all__ = ["summaries_of"]

_OFFSET: Final = place_of("offset")
_TRACE_ID: Final = place_of("trace_id")
_SUMMARY: Final = place_of("summary")


def summaries_of(
    trajectories: Iterable[RecordedTrajectory], *, on_progress: Callable[[int, int], None] | None = None
) -> Iterator[TrajectorySummary]:
    """Yield the summary of each trajectory, in order.

    Those that an index of an earlier version lacks are made from the spans, and kept in the index if the folder can be
    written and no process writes the file.

    Args:
        trajectories: Trajectories that `read` gave.
        on_progress: Called with the number of lines that are read and of all, while summaries are made.

    Raises:
        UnreadableTraceError: A file is damaged or gone.
    """
    trajectories = list(trajectories)
    lacking: dict[StoredFile, int] = {}
    for trajectory in trajectories:
        for file, row in trajectory.parts:
            if not row[_SUMMARY]:
                lacking[file] = lacking.get(file, 0) + 1
    made: dict[tuple[StoredFile, Any, Any], Row] = {}
    done, total = 0, sum(lacking.values())

    def count() -> None:
        nonlocal done
        done += 1
        if on_progress is not None:
            on_progress(min(done, total), total)

    for file in lacking:
        made |= {(file, row[_OFFSET], row[_TRACE_ID]): row for row in file.make_summaries(count)}
    for trajectory in trajectories:
        if made:
            trajectory.parts = [
                (file, made.get((file, row[_OFFSET], row[_TRACE_ID]), row)) for file, row in trajectory.parts
            ]
        yield trajectory.summary
