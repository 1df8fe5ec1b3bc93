"""A training step as one row: rewards, groups without signal, failures, lengths, stragglers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from otel_rollout.catalog.group_summary import GroupSummary, RewardRange
from otel_rollout.catalog.step_signals import StepSignals, step_signals
from otel_rollout.facts.amounts import deviation_of, is_same_reward, mean_of, sum_of
from otel_rollout.facts.trajectory_summary import ToolCounts, TrajectorySummary

__all__ = ["Percentiles", "StepSummary", "summarise_step"]

_LAST_PART: Final = 20
"""The last of this many trajectories are the last 5 percent."""


@dataclass(frozen=True, slots=True)
class Percentiles:
    """The distribution of an amount over trajectories; percentiles are interpolated as in numpy.

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
        sole_run_id: The run of all of its trajectories; None if they are of several.
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
        last_5_percent_share: The share of the step's wall time after 95% of the trajectories had ended; None for fewer
            than 20 trajectories.
        duplicates: The number of rollouts that equal an earlier one of their group.
        prefix_breaks: The number of trajectories with a prefix break.
        staleness: The distribution of staleness.
        fates: The number of trajectories by fate.
        dropped_spans: The spans that tracing dropped.
        truncated_bytes: The payload bytes that tracing cut.
        redacted: The secrets that redaction replaced.
        spans: The number of spans.
        bytes: Their size as OTLP.
        stored_bytes: Their size on disk, without the index.
        signals: The signs of trouble, which findings are made of.
    """

    step: int | None
    validate: bool
    experiment_name: str | None
    run_id: str | None
    sole_run_id: str | None
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
    redacted: int
    spans: int
    bytes: int
    stored_bytes: int
    signals: StepSignals = field(default_factory=StepSignals)


def summarise_step(summaries: Sequence[TrajectorySummary], groups: Sequence[GroupSummary]) -> StepSummary:
    """Return the summary of one run's step.

    Args:
        summaries: Its trajectories, one at least.
        groups: Its groups.
    """
    first, named = groups[0], [group for group in groups if group.sample_index is not None]
    rewards = [each.reward for each in summaries if each.reward is not None]
    known = RewardRange.of(rewards)
    runs = {each.run_id for each in summaries}
    statuses = Counter(each.status for each in summaries)
    deviations = [
        deviation_of(found) for group in named if len(found := [each for each in group.rewards if each is not None]) > 1
    ]
    start, ends = min(each.start_time for each in summaries), sorted(each.end_time for each in summaries)
    return StepSummary(
        step=first.step,
        validate=first.validate,
        experiment_name=first.experiment_name,
        run_id=first.run_id,
        sole_run_id=runs.pop() if len(runs) == 1 else None,
        trajectories=len(summaries),
        groups=len(named),
        start_time=start,
        end_time=ends[-1],
        rewarded=len(rewards),
        reward_mean=_mean(rewards),
        reward_std=deviation_of(rewards) if rewards else None,
        reward_lowest=known.lowest if known else None,
        reward_highest=known.highest if known else None,
        group_std=_mean(deviations),
        solved=sum(map(known.is_solved, rewards)) / len(rewards) if known else None,
        comparable_groups=len(deviations),
        zero_variance=_counts(group.zero_variance for group in named),
        reward_parts=_part_means(summaries),
        errors=statuses["error"],
        truncated=statuses["truncated"],
        cancelled=statuses["cancelled"],
        rootless=sum(not each.has_root for each in summaries),
        truncated_with_worst_reward=sum(
            known is not None
            and each.status == "truncated"
            and each.reward is not None
            and is_same_reward(each.reward, known.lowest)
            for each in summaries
        ),
        error_types=_counts(_first_error_type(each) for each in summaries),
        tools=_sum_tools(summaries),
        turns=_percentiles(each.turns for each in summaries),
        tokens=_percentiles(each.output_tokens for each in summaries),
        seconds=_percentiles((each.end_time - each.start_time) / 1e9 for each in summaries),
        last_5_percent_share=_last_share(start, ends),
        duplicates=sum(group.duplicates for group in groups),
        prefix_breaks=sum(each.prefix_breaks > 0 for each in summaries),
        staleness=_percentiles(each.staleness for each in summaries),
        fates=_counts(each.fate for each in summaries),
        dropped_spans=sum_of(each.dropped_spans for each in summaries),
        truncated_bytes=sum_of(each.truncated_bytes for each in summaries),
        redacted=sum_of(each.redacted for each in summaries),
        spans=sum_of(each.spans for each in summaries),
        bytes=sum_of(each.bytes for each in summaries),
        stored_bytes=sum_of(each.stored_bytes for each in summaries),
        signals=step_signals(summaries),
    )


def _mean(amounts: Sequence[float]) -> float | None:
    return mean_of(amounts) if amounts else None


def _percentiles(amounts: Iterable[float | None]) -> Percentiles | None:
    known = sorted(amount for amount in amounts if amount is not None)
    if not known:
        return None
    return Percentiles(mean_of(known), _quantile(known, 0.5), _quantile(known, 0.99), known[-1])


def _quantile(ordered: Sequence[float], share: float) -> float:
    place = share * (len(ordered) - 1)
    below = int(place)
    above = min(below + 1, len(ordered) - 1)
    return ordered[below] + (ordered[above] - ordered[below]) * (place - below)


def _counts(names: Iterable[str | None]) -> dict[str, int]:
    return dict(Counter(name for name in names if name is not None).most_common())


def _part_means(summaries: Sequence[TrajectorySummary]) -> dict[str, float]:
    parts: dict[str, list[float]] = {}
    for each in summaries:
        for name, value in each.reward_parts.items():
            parts.setdefault(name, []).append(value)
    return {name: mean_of(values) for name, values in parts.items()}


def _sum_tools(summaries: Sequence[TrajectorySummary]) -> dict[str, ToolCounts]:
    counts: dict[str, list[ToolCounts]] = {}
    for each in summaries:
        for name, tool in each.tools.items():
            counts.setdefault(name, []).append(tool)
    tools = {
        name: ToolCounts(sum_of(tool.calls for tool in found), sum_of(tool.errors for tool in found))
        for name, found in counts.items()
    }
    return dict(sorted(tools.items(), key=lambda tool: (-tool[1].calls, tool[0])))


def _first_error_type(summary: TrajectorySummary) -> str | None:
    if summary.errors:
        return summary.errors[0].type or summary.error_type or ""
    return summary.error_type


def _last_share(start: int, ends: Sequence[int]) -> float | None:
    last = len(ends) // _LAST_PART
    if not last or ends[-1] <= start:
        return None
    return (ends[-1] - ends[-1 - last]) / (ends[-1] - start)
