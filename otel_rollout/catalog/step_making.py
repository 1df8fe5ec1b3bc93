"""Makes the summary of a step's folder from its trajectories, and writes its file."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from otel_rollout.catalog.group_summary import GroupSummary, groups_of
from otel_rollout.catalog.grouping import RunStep, split_steps
from otel_rollout.catalog.step_file import StepFile, write_step_file
from otel_rollout.catalog.step_places import StepPlace, with_indexes
from otel_rollout.catalog.step_reading import read_step
from otel_rollout.catalog.step_summary import StepSummary, summarise_step
from otel_rollout.facts.table import TrajectorySummary
from otel_rollout.folder.reader import ReadProblem
from otel_rollout.folder.summaries import summaries_of

__all__ = ["SummarisedRun", "make_step", "summarise_runs"]


@dataclass(frozen=True, slots=True)
class SummarisedRun:
    """One run's trajectories in a step, with their groups.

    Args:
        step: The trajectories.
        groups: Their groups, in the order of prompts.
        summary: Their summary.
    """

    step: RunStep[TrajectorySummary]
    groups: Sequence[GroupSummary]
    summary: StepSummary


def summarise_runs(trajectories: Iterable[TrajectorySummary]) -> list[SummarisedRun]:
    """Return the summaries of each run that the trajectories are of."""
    found = []
    for step in split_steps(trajectories):
        groups = groups_of(step)
        found.append(SummarisedRun(step, groups, summarise_step(step.trajectories, groups)))
    return found


def make_step(place: StepPlace) -> StepFile:
    """Read the trajectories of a step's folder, and write their summary unless another process is writing it."""
    problems: list[ReadProblem] = []
    recorded = read_step([place], {}, lambda _: (), problems.append)
    runs = summarise_runs(summaries_of(recorded))
    content = StepFile(
        [run.summary for run in runs],
        [group for run in runs for group in run.groups],
        list(dict.fromkeys(problems)),
    )
    if not any(file.is_being_written() for file in place.files):
        write_step_file(with_indexes(place), content)
    return content
