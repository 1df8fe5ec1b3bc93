"""The rollouts of one prompt, as one row: rewards, spread, duplicates, the turn at which they part."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import zip_longest

from otel_rollout.catalog.grouping import RunStep, split_prompts, split_steps
from otel_rollout.facts.amounts import is_same_reward, sum_of
from otel_rollout.facts.table import TrajectorySummary


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

    Trajectories without a prompt's number are one group of their step, which is not compared: it has no zero variance,
    duplicates or divergence.

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
        duplicates: The number of rollouts with the same text in each turn as an earlier rollout.
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


@dataclass(frozen=True, slots=True)
class RewardRange:
    """The rewards of a step, to compare the rewards of its groups with.

    Args:
        lowest: The lowest.
        highest: The highest.
    """

    lowest: float
    highest: float

    @classmethod
    def of(cls, rewards: Iterable[float | None]) -> RewardRange | None:
        """Return the range of the known rewards; None without any."""
        known = [reward for reward in rewards if reward is not None]
        return cls(min(known), max(known)) if known else None

    def is_solved(self, reward: float) -> bool:
        """Return True for a reward in the upper half; if all rewards are the same, for one above 0."""
        if is_same_reward(self.lowest, self.highest):
            return reward > 0
        return reward > self.lowest / 2 + self.highest / 2

    def variance_of(self, rewards: Sequence[float]) -> str | None:
        """Return `best`, `worst` or `other` for two rewards or more that are equal; else None."""
        if len(rewards) < 2 or not is_same_reward(min(rewards), max(rewards)):
            return None
        if is_same_reward(self.lowest, self.highest):
            return "best" if self.is_solved(rewards[0]) else "worst"
        if is_same_reward(rewards[0], self.highest):
            return "best"
        return "worst" if is_same_reward(rewards[0], self.lowest) else "other"


def summarise_groups(summaries: Iterable[TrajectorySummary]) -> list[GroupSummary]:
    """Return the groups of each step and run, in the order of steps, experiments and prompts."""
    return [group for step in split_steps(summaries) for group in groups_of(step)]


def groups_of(step: RunStep[TrajectorySummary]) -> list[GroupSummary]:
    """Return the groups of one run's step, in the order of prompts."""
    rewards = RewardRange.of(each.reward for each in step.trajectories)
    return [_summarise(step, rollouts, rewards) for rollouts in split_prompts(step.trajectories)]


def _summarise(
    step: RunStep[TrajectorySummary], rollouts: Sequence[TrajectorySummary], rewards: RewardRange | None
) -> GroupSummary:
    known = [each.reward for each in rollouts if each.reward is not None]
    is_group = rollouts[0].sample_index is not None
    hashes = [each.turn_hashes for each in rollouts if any(each.turn_hashes)] if is_group else []
    said = [each for each in hashes if all(each)]
    return GroupSummary(
        step=step.step,
        validate=step.validate,
        experiment_name=step.experiment_name,
        run_id=step.run_id,
        sample_index=rollouts[0].sample_index,
        prompt=next((each.prompt for each in rollouts if each.prompt), "") if is_group else "",
        trace_ids=tuple(each.trace_id for each in rollouts),
        rollout_ns=tuple(each.rollout_n for each in rollouts),
        rewards=tuple(each.reward for each in rollouts),
        statuses=tuple(each.status for each in rollouts),
        solved=sum(map(rewards.is_solved, known)) / len(known) if rewards and known else None,
        zero_variance=rewards.variance_of(known) if rewards and is_group else None,
        tokens=_spread(each.output_tokens for each in rollouts),
        turns=_spread(each.turns for each in rollouts),
        seconds=_spread(each.seconds for each in rollouts),
        duplicates=len(said) - len(set(said)),
        first_divergence=_first_divergence(hashes),
        tool_calls=sum_of(tool.calls for each in rollouts for tool in each.tools.values()),
        tool_errors=sum_of(tool.errors for each in rollouts for tool in each.tools.values()),
        end_time=max(each.end_time for each in rollouts),
    )


def _spread(amounts: Iterable[float | None]) -> Spread | None:
    known = [amount for amount in amounts if amount is not None]
    return Spread(min(known), sum(known) / len(known), max(known)) if known else None


def _first_divergence(hashes: Sequence[Sequence[str]]) -> int | None:
    """Return the first turn that differs: a missing turn does, a turn without a hash doesn't."""
    for turn, said in enumerate(zip_longest(*hashes), 1):
        if len(set(said) - {""}) > 1 or (None in said and set(said) != {None}):
            return turn
    return None
