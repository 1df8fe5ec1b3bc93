"""The summaries of the runs that a step's trajectories are of."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from otel_rollout.catalog.group_summary import GroupSummary, groups_of
from otel_rollout.catalog.grouping import RunStep, split_steps
from otel_rollout.catalog.step_summary import StepSummary, summarise_step
from otel_rollout.facts.table import TrajectorySummary


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
