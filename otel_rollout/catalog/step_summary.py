"""A training step as one row: rewards, groups without signal, failures, lengths, stragglers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final, TypeVar

from otel_rollout.catalog.group_summary import GroupSummary, RewardRange
from otel_rollout.catalog.step_figures import is_cut_off
from otel_rollout.catalog.step_signals import StepSignals, step_signals
from otel_rollout.facts.amounts import deviation_of, is_same_reward, mean_of, sum_of
from otel_rollout.facts.table import SUMS, Count, Percentiles, StepSums, Sum, ToolCounts, TrajectorySummary

Each = TypeVar("Each")

_LAST_PART: Final = 20
"""The last of this many trajectories are the last 5 percent."""


@dataclass(frozen=True, kw_only=True)
class StepIdentity:
    """The trajectories that a step's summary is made of.

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
    """

    step: int | None
    validate: bool
    experiment_name: str | None
    run_id: str | None
    sole_run_id: str | None
    trajectories: Count
    groups: Count
    start_time: int
    end_time: int


@dataclass(frozen=True, kw_only=True)
class StepSummary(StepSums, StepIdentity):
    """An experiment's trajectories in one step, or in its validation; None is unknown.

    Args:
        rewarded: The number of trajectories with a reward.
        reward_std: The standard deviation of rewards over all trajectories.
        reward_lowest: The lowest reward.
        reward_highest: The highest reward.
        group_std: The mean of the groups' standard deviations of rewards.
        solved: The share of rewards in the upper half of the step's range.
        comparable_groups: The number of groups with two known rewards or more.
        zero_variance: The number of comparable groups without variance, by `best`, `worst`, `other`.
        errors: The trajectories that ended in an error.
        truncated: The trajectories that were cut off.
        cancelled: The trajectories that were cancelled.
        rootless: The trajectories without a root: they are running, or their process ended before they did.
        truncated_with_worst_reward: Those, and those that the engine cut off, that have the step's lowest reward.
        error_types: The number of trajectories by the type of their first error.
        last_5_percent_share: The share of the step's wall time after 95% of the trajectories had ended; None for fewer
            than 20 trajectories.
        duplicates: The number of rollouts that equal an earlier one of their group.
        signals: The signs of trouble, which findings are made of.
    """

    rewarded: Count
    reward_std: float | None
    reward_lowest: float | None
    reward_highest: float | None
    group_std: float | None
    solved: float | None
    comparable_groups: Count
    zero_variance: Mapping[str, Count]
    errors: Count
    truncated: Count
    cancelled: Count
    rootless: Count
    truncated_with_worst_reward: Count
    error_types: Mapping[str, Count]
    last_5_percent_share: float | None
    duplicates: Count
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
        reward_std=deviation_of(rewards) if rewards else None,
        reward_lowest=known.lowest if known else None,
        reward_highest=known.highest if known else None,
        group_std=_mean(deviations),
        solved=sum(map(known.is_solved, rewards)) / len(rewards) if known else None,
        comparable_groups=len(deviations),
        zero_variance=_counts(group.zero_variance for group in named),
        errors=statuses["error"],
        truncated=statuses["truncated"],
        cancelled=statuses["cancelled"],
        rootless=sum(not each.has_root for each in summaries),
        truncated_with_worst_reward=sum(
            known is not None
            and is_cut_off(each)
            and each.reward is not None
            and is_same_reward(each.reward, known.lowest)
            for each in summaries
        ),
        error_types=_counts(_first_error_type(each) for each in summaries),
        last_5_percent_share=_last_share(start, ends),
        duplicates=sum(group.duplicates for group in groups),
        signals=step_signals(summaries),
        **{name: _SUMS[how]([getattr(each, fact) for each in summaries]) for name, fact, how in SUMS},
    )


def _mean(amounts: Iterable[float | None]) -> float | None:
    known = [amount for amount in amounts if amount is not None]
    return mean_of(known) if known else None


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


def _means_by_name(mappings: Iterable[Mapping[str, float]]) -> dict[str, float]:
    return {name: mean_of(values) for name, values in _by_name(mappings).items()}


def _sums_by_name(mappings: Iterable[Mapping[str, ToolCounts]]) -> dict[str, ToolCounts]:
    counts = {
        name: ToolCounts(sum_of(each.calls for each in found), sum_of(each.errors for each in found))
        for name, found in _by_name(mappings).items()
    }
    return dict(sorted(counts.items(), key=lambda tool: (-tool[1].calls, tool[0])))


def _by_name(mappings: Iterable[Mapping[str, Each]]) -> dict[str, list[Each]]:
    found: dict[str, list[Each]] = {}
    for mapping in mappings:
        for name, value in mapping.items():
            found.setdefault(name, []).append(value)
    return found


_SUMS: Final[Mapping[Sum, Callable[[list[Any]], Any]]] = {
    "mean": _mean,
    "percentiles": _percentiles,
    "sum": sum_of,
    "above 0": lambda amounts: sum(amount > 0 for amount in amounts),
    "by value": _counts,
    "mean by name": _means_by_name,
    "sum by name": _sums_by_name,
}


def _first_error_type(summary: TrajectorySummary) -> str | None:
    if summary.errors:
        return summary.errors[0].type or summary.error_type or ""
    return summary.error_type


def _last_share(start: int, ends: Sequence[int]) -> float | None:
    last = len(ends) // _LAST_PART
    if not last or ends[-1] <= start:
        return None
    return (ends[-1] - ends[-1 - last]) / (ends[-1] - start)


def with_run_ids(steps: Sequence[StepSummary]) -> list[StepSummary]:
    """Give steps that only one of several runs has that run's id, so that a run's steps are one series.

    Args:
        steps: All steps; those with an id are of runs that have the same rollouts.
    """
    known: dict[str | None, set[str]] = {}
    for step in steps:
        if step.run_id is not None:
            known.setdefault(step.experiment_name, set()).add(step.run_id)
    return [
        replace(step, run_id=step.sole_run_id)
        if step.run_id is None and step.sole_run_id in known.get(step.experiment_name, ())
        else step
        for step in steps
    ]
