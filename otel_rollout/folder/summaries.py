"""The summaries of many trajectories, from the indexes of a trace folder."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from otel_rollout.errors import UnreadableTraceError
from otel_rollout.facts.table import TrajectorySummary
from otel_rollout.folder.index import IndexEntry
from otel_rollout.folder.index_reading import listed_of
from otel_rollout.folder.reader import RecordedTrajectory, main_row

__all__ = ["summaries_of"]


def summaries_of(trajectories: Iterable[RecordedTrajectory]) -> Iterator[TrajectorySummary]:
    """Yield the summary of each trajectory, in order; of one that can't be read, only the facts of its index entry.

    Args:
        trajectories: Trajectories that `read` gave.
    """
    yield from map(_summary_of, trajectories)


def _summary_of(trajectory: RecordedTrajectory) -> TrajectorySummary:
    try:
        return trajectory.summary
    except UnreadableTraceError:
        return _summary_of_entry(trajectory)


def _summary_of_entry(trajectory: RecordedTrajectory) -> TrajectorySummary:
    summary = TrajectorySummary(**listed_of(main_row(trajectory.parts), trajectory.parts[0][0].worker))
    summary.start_time, summary.end_time = trajectory.start_time, trajectory.end_time
    summary.spans = sum(IndexEntry._make(row).spans for _, row in trajectory.parts)
    summary.bytes, summary.stored_bytes = trajectory.size_bytes, trajectory.stored_bytes
    return summary
