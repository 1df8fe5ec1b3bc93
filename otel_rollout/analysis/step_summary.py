"""A training step as one row: rewards, groups without signal, failures, lengths, stragglers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from otel_rollout.analysis.step_signals import StepSignals
from otel_rollout.analysis.trajectory_summary import ToolCounts

__all__ = ["Percentiles", "StepSummary"]


@dataclass(frozen=True, slots=True)
class Percentiles:
    """The distribution of an amount over trajectories.

    Args:
        mean: The mean.
        p50: The median.
        p99: The 99th percentile.
        highest: The highest.
    """

    mean: float
    p50: float
    p99: float
    highest: float


@dataclass(frozen=True, slots=True)
class StepSummary:
    """An experiment's trajectories in one step, or in its validation; None is unknown.

    Args:
        step: The step; None for trajectories without one.
        validate: True if this is the step's validation.
        experiment_name: The experiment given to `init`.
        run_id: The run, if several runs of the experiment have the same trajectories in this step; else None.
        trajectories: The number of trajectories.
        groups: The number of prompts.
        start_time: The start of the first trajectory, in nanoseconds since 1970.
        end_time: The end of the last.
        rewarded: The number of trajectories with a reward.
        reward_mean: The mean reward.
        reward_std: The standard deviation of rewards over all trajectories.
        reward_lowest: The lowest reward.
        reward_highest: The highest reward.
        group_std: The mean of the groups' standard deviations of rewards.
        solved: The share of rewards in the upper half of the step's range.
        comparable_groups: The number of groups with two known rewards or more.
        zero_variance: The number of comparable groups without variance, by `best`, `worst`, `other`.
        reward_parts: The mean of each part of the reward.
        errors: The trajectories that ended in an error.
        truncated: The trajectories that were cut off.
        cancelled: The trajectories that were cancelled.
        rootless: The trajectories without a root: they are running, or their process ended before they did.
        truncated_with_worst_reward: The truncated ones that have the step's lowest reward.
        error_types: The number of trajectories by the type of their first error.
        tools: The calls by tool.
        turns: The distribution of turns.
        tokens: The distribution of output tokens.
        seconds: The distribution of durations.
        last_5_percent_share: The share of the step's wall time after 95% of the trajectories had ended.
        duplicates: The number of rollouts that equal an earlier one of their group.
        prefix_breaks: The number of trajectories with a prefix break.
        staleness: The distribution of staleness.
        fates: The number of trajectories by fate.
        dropped_spans: The spans that tracing dropped.
        truncated_bytes: The payload bytes that tracing cut.
        spans: The number of spans.
        bytes: Their size as OTLP JSON.
        stored_bytes: Their size on disk, without the index.
        signals: The signs of trouble, which findings are made of.
    """

    step: int | None
    validate: bool
    experiment_name: str | None
    run_id: str | None
    trajectories: int
    groups: int
    start_time: int
    end_time: int
    rewarded: int
    reward_mean: float | None
    reward_std: float | None
    reward_lowest: float | None
    reward_highest: float | None
    group_std: float | None
    solved: float | None
    comparable_groups: int
    zero_variance: Mapping[str, int]
    reward_parts: Mapping[str, float]
    errors: int
    truncated: int
    cancelled: int
    rootless: int
    truncated_with_worst_reward: int
    error_types: Mapping[str, int]
    tools: Mapping[str, ToolCounts]
    turns: Percentiles | None
    tokens: Percentiles | None
    seconds: Percentiles | None
    last_5_percent_share: float | None
    duplicates: int
    prefix_breaks: int
    staleness: Percentiles | None
    fates: Mapping[str, int]
    dropped_spans: int
    truncated_bytes: int
    spans: int
    bytes: int
    stored_bytes: int
    signals: StepSignals = field(default_factory=StepSignals)
