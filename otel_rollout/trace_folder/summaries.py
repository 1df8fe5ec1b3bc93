"""The summaries of many trajectories, from the indexes of a trace folder."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from otel_rollout.analysis.trajectory_summary import TrajectorySummary
from otel_rollout.trace_folder.reader import RecordedTrajectory

__all__ = ["summaries_of"]


def summaries_of(
    trajectories: Iterable[RecordedTrajectory], *, on_progress: Callable[[int, int], None] | None = None
) -> Iterator[TrajectorySummary]:
    """Yield the summary of each trajectory, in order.

    Args:
        trajectories: Trajectories that `read` gave.
        on_progress: Called with the number of trajectories done and of all, while summaries are made that the
            indexes lack.

    Raises:
        UnreadableTraceError: A file is damaged or gone.
    """
    for trajectory in trajectories:
        yield trajectory.summary
