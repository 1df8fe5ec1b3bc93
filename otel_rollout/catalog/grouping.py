"""Puts trajectories in order."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeAlias

if TYPE_CHECKING:
    from otel_rollout.facts.table import TrajectorySummary
    from otel_rollout.folder.reader import RecordedTrajectory

    Tagged: TypeAlias = TrajectorySummary | RecordedTrajectory
    """A trajectory with its tags."""
StepKey: TypeAlias = tuple[int | None, bool, str | None]
"""A step, whether it is its validation, and the experiment."""


def step_key(trajectory: Tagged) -> StepKey:
    """Return the step of a trajectory."""
    return trajectory.step, trajectory.validate, trajectory.experiment_name


def prompt_order(trajectory: Tagged) -> tuple[Any, ...]:
    """Return the sort key of a trajectory by step, experiment, prompt and rollout; validation is after training."""
    return (
        *(trajectory.step is None, trajectory.step or 0, trajectory.validate),
        str(trajectory.experiment_name or ""),
        sortable(trajectory.sample_index),
        sortable(trajectory.rollout_n),
        trajectory.start_time,
    )


def sortable(value: object) -> tuple[int, float, str]:
    """Return the sort key of a tag: numbers by value, then text, then None; other programs write any type."""
    if value is None:
        return 2, 0, ""
    return (0, value, "") if isinstance(value, (int, float)) else (1, 0, str(value))
