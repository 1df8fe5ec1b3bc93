"""The rollouts of one prompt, as one row: rewards, spread, duplicates, the turn at which they part."""

# ruff: noqa: RUF009 - each default is a row of the table

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from otel_rollout.catalog.columns import figure


class Spread(NamedTuple):
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
    """

    step: int | None = figure("the step; null for trajectories without one")
    validate: bool = figure("true for the step's validation")
    experiment_name: str | None = figure("the experiment")
    run_id: str | None = figure(
        "the run, if several runs of the experiment have the same rollouts; else null", ":run_id"
    )
    sample_index: int | str | None = figure("the prompt in the dataset", "min(sample_index)")
    prompt: str = figure(
        "the first line of the prompt, shortened",
        "CASE WHEN sample_index IS NULL THEN '' ELSE ifnull(first_in_order(place, nullif(prompt, '')), '') END",
    )
    trace_ids: tuple[str, ...] = figure("the trajectories", "in_order(place, trace_id)")
    rollout_ns: tuple[int | str | None, ...] = figure("their numbers", "in_order(place, rollout_n)")
    rewards: tuple[float | None, ...] = figure("their rewards", "in_order(place, reward)")
    statuses: tuple[str | None, ...] = figure("their statuses; null without a root", "in_order(place, status)")
    reward_std: float | None = figure(
        "the standard deviation of the rewards; null with fewer than two",
        "CASE WHEN sample_index IS NOT NULL AND count(reward) > 1 THEN stddev(reward) END",
    )
    solved: float | None = figure(
        "the share of known rewards in the upper half of the run's scale; null without rewards", "NULL"
    )
    zero_variance: str | None = figure(
        "`best`, `worst` or `other` if all known rewards are equal and there are two or more: the best reward of the "
        "run's scale, its worst, or another; else null",
        "NULL",
    )
    tokens: Spread | None = figure("the output tokens", "output_tokens", unit="tokens")
    turns: Spread | None = figure("the turns", unit="turns")
    seconds: Spread | None = figure("the durations", unit="s")
    duplicates: int = figure(
        "the number of rollouts with the same text in each turn as an earlier rollout",
        "CASE WHEN sample_index IS NULL THEN 0 ELSE duplicates(turn_hashes) END",
    )
    first_divergence: int | None = figure(
        "the first turn, from 1, that not all rollouts have alike; null if all are alike",
        "CASE WHEN sample_index IS NOT NULL THEN first_divergence(turn_hashes) END",
    )
    tool_calls: int = figure("the sum of tool calls", "CAST(total(sum_at(tools, 0)) AS INTEGER)", unit="calls")
    tool_errors: int = figure("the sum of failed tool calls", "CAST(total(sum_at(tools, 1)) AS INTEGER)", unit="calls")
    end_time: int = figure("the end of the last, since 1970", "max(end_time)", unit="ns")
