"""The summaries of many trajectories, from the indexes of a trace folder."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

from otel_rollout.errors import UnreadableTraceError
from otel_rollout.facts.span_values import count_of
from otel_rollout.facts.table import TrajectorySummary
from otel_rollout.folder.index import place_of
from otel_rollout.folder.index_reading import listed_of
from otel_rollout.folder.reader import RecordedTrajectory, main_row
from otel_rollout.semconv import INPUT_TOKENS, OUTPUT_TOKENS, TURNS

__all__ = ["listed_summaries_of", "summaries_of"]

_SPANS: Final = place_of("spans")
_ATTRIBUTES: Final = place_of("attributes")


def summaries_of(trajectories: Iterable[RecordedTrajectory]) -> Iterator[TrajectorySummary]:
    """Yield the summary of each trajectory, in order; of one that can't be read, only the facts of its index entry.

    Args:
        trajectories: Trajectories that `read` gave.
    """
    yield from map(_summary_of, trajectories)


def listed_summaries_of(trajectories: Iterable[RecordedTrajectory]) -> Iterator[TrajectorySummary]:
    """Yield the summary of each trajectory, in order, with what a list has of it: identity, outcome and amounts.

    Of a rollout whose root has totals, the columns of the summary stay unparsed, and the service is None.

    Args:
        trajectories: Trajectories that `read` gave.
    """
    for trajectory in trajectories:
        listed = _listed(trajectory)
        if listed is None:
            listed = _summary_of(trajectory)
        yield listed


def _listed(trajectory: RecordedTrajectory) -> TrajectorySummary | None:
    """Return the facts that a list has of a trajectory; None if its index entry lacks them."""
    # Without a prompt it is listed by its service, which is a column.
    if len(trajectory.parts) > 1 or not trajectory.has_root or trajectory.sample_index is None:
        return None
    attributes = trajectory.parts[0][1][_ATTRIBUTES]
    turns, given, generated = (count_of(attributes.get(key)) for key in (TURNS, INPUT_TOKENS, OUTPUT_TOKENS))
    if turns is None and given is None and generated is None:
        return None
    summary = _summary_of_entry(trajectory)
    summary.turns, summary.input_tokens, summary.output_tokens = turns, given, generated
    return summary


def _summary_of(trajectory: RecordedTrajectory) -> TrajectorySummary:
    try:
        return trajectory.summary
    except UnreadableTraceError:
        return _summary_of_entry(trajectory)


def _summary_of_entry(trajectory: RecordedTrajectory) -> TrajectorySummary:
    summary = TrajectorySummary(**listed_of(main_row(trajectory.parts), trajectory.parts[0][0].worker))
    summary.start_time, summary.end_time = trajectory.start_time, trajectory.end_time
    summary.spans = sum(row[_SPANS] for _, row in trajectory.parts)
    summary.bytes, summary.stored_bytes = trajectory.size_bytes, trajectory.stored_bytes
    return summary
