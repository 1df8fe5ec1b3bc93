"""The rollouts of one prompt, as one row: rewards, spread, duplicates, the turn at which they part."""

# ruff: noqa: RUF009 - each default is a row of the table

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, NamedTuple

from otel_rollout.catalog.reward_scale import SOLVED
from otel_rollout.catalog.sql import count_if, figure, is_same

_SAID: Final = "CASE WHEN turn_hashes <> '[]' AND instr(turn_hashes, '\"\"') = 0 THEN turn_hashes END"
"""The turns of a rollout, if all are known."""
_ZERO_VARIANCE: Final = (
    f"(SELECT CASE WHEN reward_std IS NULL OR NOT {is_same('min(value)', 'max(value)')} THEN NULL "
    f"WHEN {is_same(':lowest', ':highest')} THEN CASE WHEN max(value) > 0 THEN 'best' ELSE 'worst' END "
    f"WHEN max(value) > :highest OR {is_same('max(value)', ':highest')} THEN 'best' "
    f"WHEN min(value) < :lowest OR {is_same('min(value)', ':lowest')} THEN 'worst' ELSE 'other' END "
    "FROM json_each(rewards))"
)
_SOLVED: Final = f"(SELECT 1.0 * {count_if(SOLVED.format('value'))} / nullif(count(value), 0) FROM json_each(rewards))"


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

    step: int | None = figure("the step; null for trajectories without one", "step", of="runs")
    validate: bool = figure("true for the step's validation", "validate", of="runs")
    experiment_name: str | None = figure("the experiment", "experiment_name", of="runs")
    run_id: str | None = figure(
        "the run, if several runs of the experiment have the same rollouts; else null", "run_id", of="runs"
    )
    sample_index: int | str | None = figure("the prompt in the dataset", "first(place, sample_index)")
    prompt: str = figure(
        "the first line of the prompt, shortened",
        "CASE WHEN sample_index IS NULL THEN '' ELSE coalesce(first(place, nullif(prompt, '')), '') END",
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
        "the share of known rewards in the upper half of the run's scale; null without rewards", _SOLVED, of="scale"
    )
    zero_variance: str | None = figure(
        "`best`, `worst` or `other` if all known rewards are equal and there are two or more: the best reward of the "
        "run's scale, its worst, or another; else null",
        _ZERO_VARIANCE,
        of="scale",
    )
    tokens: Spread | None = figure("the output tokens", "output_tokens", unit="tokens")
    turns: Spread | None = figure("the turns", "turns", unit="turns")
    seconds: Spread | None = figure("the durations", "seconds", unit="s")
    duplicates: int = figure(
        "the number of rollouts with the same text in each turn as an earlier rollout",
        f"CASE WHEN sample_index IS NULL THEN 0 ELSE count({_SAID}) - count(DISTINCT {_SAID}) END",
    )
    first_divergence: int | None = figure(
        "the first turn, from 1, that not all rollouts have alike; null if all are alike",
        "CASE WHEN sample_index IS NOT NULL THEN first_divergence(turn_hashes) END",
    )
    tool_calls: int = figure("the sum of tool calls", "tool_calls(tools)", unit="calls")
    tool_errors: int = figure("the sum of failed tool calls", "tool_errors(tools)", unit="calls")
    end_time: int = figure("the end of the last, since 1970", "max(end_time)", unit="ns")
