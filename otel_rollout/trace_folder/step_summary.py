"""What the trajectories of each step come to."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import groupby

from otel_rollout.trace_folder.recorded_trajectory import RecordedTrajectory

__all__ = ["StepSummary", "summarise_steps"]


@dataclass(frozen=True)
class StepSummary:
    """The trajectories of one step, or of its validation.

    Args:
        step: The step; None for what has none.
        validate: Whether this is the step's validation.
        trajectories: How many trajectories.
        samples: How many prompts they are rollouts of.
        mean_reward: The mean of the rewards that are known; None where none is.
        errors: How many ended in an error.
        rootless: How many have no root: they are running, or their process ended before they did.
        spans: How many spans.
        bytes: The bytes of OTLP JSON that they are.
        stored_bytes: The bytes that they take on disk, without the index.
    """

    step: int | None
    validate: bool
    trajectories: int
    samples: int
    mean_reward: float | None
    errors: int
    rootless: int
    spans: int
    bytes: int
    stored_bytes: int


def summarise_steps(trajectories: Iterable[RecordedTrajectory]) -> Iterator[StepSummary]:
    """Yield a summary for each step as soon as it is complete; only one step's trajectories are in memory.

    Args:
        trajectories: Trajectories in the order in which `read` gives them.
    """
    for (step, validate), group in groupby(trajectories, lambda each: (each.step, each.validate)):
        yield _summarise(step, validate=validate, trajectories=list(group))


def _summarise(step: int | None, *, validate: bool, trajectories: list[RecordedTrajectory]) -> StepSummary:
    rewards = [each.reward for each in trajectories if each.reward is not None]
    return StepSummary(
        step=step,
        validate=validate,
        trajectories=len(trajectories),
        samples=len(
            {(each.experiment_name, str(each.sample_index)) for each in trajectories if each.sample_index is not None}
        ),
        mean_reward=sum(rewards) / len(rewards) if rewards else None,
        errors=sum(each.failed for each in trajectories),
        rootless=sum(not each.has_root for each in trajectories),
        spans=sum(each.span_count for each in trajectories),
        bytes=sum(each.size_bytes for each in trajectories),
        stored_bytes=sum(each.stored_bytes for each in trajectories),
    )
