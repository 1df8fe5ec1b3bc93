"""The rollouts of one prompt, as one row: rewards, spread, duplicates, the turn at which they part."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["GroupSummary", "Spread"]


@dataclass(frozen=True, slots=True)
class Spread:
    """The lowest, mean and highest of an amount.

    Args:
        lowest: The lowest.
        mean: The mean.
        highest: The highest.
    """

    lowest: float
    mean: float
    highest: float


@dataclass(frozen=True, slots=True)
class GroupSummary:
    """The rollouts of one prompt in one step; lists are in the order of rollouts, None is unknown.

    Args:
        step: The step; None for trajectories without one.
        validate: True if it is the step's validation.
        experiment_name: The experiment.
        run_id: The run, if several runs of the experiment have this step; else None.
        sample_index: The prompt in the dataset.
        prompt: The first line of the prompt, shortened.
        trace_ids: The trajectories.
        rollout_ns: Their numbers.
        rewards: Their rewards.
        statuses: Their statuses; None without a root.
        solved: The share of known rewards in the upper half of the step's range; None without rewards.
        zero_variance: `best`, `worst` or `other` if all known rewards are equal and there are two or more: the step's
            best reward, its worst, or another; else None.
        tokens: The output tokens.
        turns: The turns.
        seconds: The durations.
        duplicates: The number of rollouts that say in each turn what an earlier one says.
        first_divergence: The first turn, from 1, that not all rollouts have alike; None if all are alike.
        tool_calls: The sum of tool calls.
        tool_errors: The sum of failed tool calls.
        end_time: The end of the last, in nanoseconds since 1970.
    """

    step: int | None
    validate: bool
    experiment_name: str | None
    run_id: str | None
    sample_index: int | str | None
    prompt: str
    trace_ids: tuple[str, ...]
    rollout_ns: tuple[int | str | None, ...]
    rewards: tuple[float | None, ...]
    statuses: tuple[str | None, ...]
    solved: float | None
    zero_variance: str | None
    tokens: Spread | None
    turns: Spread | None
    seconds: Spread | None
    duplicates: int
    first_divergence: int | None
    tool_calls: int
    tool_errors: int
    end_time: int
