"""The figures of steps and groups, from the facts of their trajectories."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import zip_longest
from typing import Any, Final, NamedTuple, TypeAlias

from otel_rollout.catalog.group_summary import GroupSummary, Spread
from otel_rollout.catalog.grouping import prompt_order, rollout_of, step_key, step_order
from otel_rollout.catalog.reward_scale import Scale, scale_of
from otel_rollout.catalog.sql import counts_of, quantile_of
from otel_rollout.catalog.step_figures import is_cut_off, mean_of_known, straggler_share
from otel_rollout.catalog.step_summary import StepSummary
from otel_rollout.facts.amounts import deviation_of, is_same_reward, mean_of, sum_of
from otel_rollout.facts.table import SUMS, Percentiles, Sum, TrajectorySummary

NEEDED: Final = tuple(
    dict.fromkeys(
        (
            *("trace_id", "step", "validate", "experiment_name", "run_id", "sample_index", "rollout_n"),
            *("start_time", "end_time", "has_root", "status", "reward", "finish_reason", "errors", "error_type"),
            *("prompt", "turns", "output_tokens", "tools", "turn_hashes"),
            *(fact for _, fact, _ in SUMS if fact != "seconds"),
        )
    )
)
"""The facts that figures are of."""


class SummarisedRun(NamedTuple):
    """One run's trajectories in a step.

    Args:
        trajectories: The trajectories, in the order of prompts and rollouts.
        groups: Their groups, in the order of prompts.
        summary: Their summary.
    """

    trajectories: Sequence[TrajectorySummary]
    groups: Sequence[GroupSummary]
    summary: StepSummary


def summarise_runs(
    trajectories: Iterable[TrajectorySummary],
    scales: Mapping[tuple[str | None, bool], Scale | None] | None = None,
) -> list[SummarisedRun]:
    """Return the summaries of each step and run that trajectories are of, in order.

    Args:
        trajectories: The trajectories.
        scales: The scales of rewards by experiment and validation; by default these trajectories have them.
    """
    by_id = {each.trace_id: each for each in trajectories}
    found = figures_of(by_id.values())
    own = scales_of(each.summary for each in found)
    runs = []
    for members, groups, step in found:
        scale = (scales or {}).get((step.experiment_name, step.validate), own[series_of(step)])
        summary, judged = judge(step, groups, step.run_id, scale)
        runs.append(SummarisedRun(members, judged, summary))
    return runs


def figures_of(trajectories: Iterable[TrajectorySummary]) -> list[SummarisedRun]:
    """Return the figures of each step and run, in order, but for those that `judge` adds."""
    steps: dict[Any, list[TrajectorySummary]] = {}
    for each in trajectories:
        steps.setdefault(step_key(each), []).append(each)
    found = []
    for key in sorted(steps, key=lambda key: (*step_order(key[0], validate=key[1]), key[2] or "")):
        found += [_figures(run_id, sorted(members, key=prompt_order)) for run_id, members in _split(steps[key])]
    return found


def _split(members: Sequence[TrajectorySummary]) -> list[tuple[str | None, Sequence[TrajectorySummary]]]:
    """Return a step's trajectories by run if two runs have a rollout of the same number of the same prompt.

    Processes that share no `OTEL_ROLLOUT_RUN_ID` have an id each: together they are one run.
    """
    owners: dict[Any, str | None] = {}
    for each in members:
        rollout = rollout_of(each)
        if rollout is not None and owners.setdefault(rollout, each.run_id) != each.run_id:
            break
    else:
        return [(None, members)]
    runs: dict[str | None, list[TrajectorySummary]] = {}
    for each in sorted(members, key=lambda each: each.start_time):
        runs.setdefault(each.run_id, []).append(each)
    return list(runs.items())


def _figures(run_id: str | None, members: Sequence[TrajectorySummary]) -> SummarisedRun:
    prompts: dict[str | None, list[TrajectorySummary]] = {}
    for each in members:
        prompts.setdefault(None if each.sample_index is None else str(each.sample_index), []).append(each)
    groups = [_group_of(run_id, group) for group in prompts.values()]
    return SummarisedRun(members, groups, _step_of(run_id, members, groups))


def _step_of(run_id: str | None, members: Sequence[TrajectorySummary], groups: Sequence[GroupSummary]) -> StepSummary:
    first, runs = members[0], {each.run_id for each in members}
    rewards = [each.reward for each in members if each.reward is not None]
    lowest = min(rewards, default=None)
    deviations = [each.reward_std for each in groups if each.reward_std is not None]
    statuses = Counter(each.status for each in members)
    sums = {name: _SUMS[how]([getattr(each, fact) for each in members]) for name, fact, how in SUMS}
    return StepSummary(
        step=first.step,
        validate=first.validate,
        experiment_name=first.experiment_name,
        run_id=run_id,
        sole_run_id=first.run_id if len(runs) == 1 else None,
        attempt=None,
        trajectories=len(members),
        groups=sum(each.sample_index is not None for each in groups),
        start_time=min(each.start_time for each in members),
        end_time=max(each.end_time for each in members),
        rewarded=len(rewards),
        reward_std=deviation_of(rewards) if rewards else None,
        reward_lowest=lowest,
        reward_highest=max(rewards, default=None),
        group_std=mean_of_known(deviations),
        scale_lowest=None,
        scale_highest=None,
        solved=None,
        comparable_groups=len(deviations),
        zero_variance={},
        errors=statuses["error"],
        truncated=statuses["truncated"],
        cancelled=statuses["cancelled"],
        rootless=sum(not each.has_root for each in members),
        truncated_with_worst_reward=sum(
            is_cut_off(each) and each.reward is not None and lowest is not None and is_same_reward(each.reward, lowest)
            for each in members
        ),
        error_types=counts_of([kind for each in members if (kind := _first_error(each)) is not None]),
        last_5_percent_share=straggler_share(members),
        duplicates=sum(each.duplicates for each in groups),
        **sums,
    )


def _group_of(run_id: str | None, members: Sequence[TrajectorySummary]) -> GroupSummary:
    first = members[0]
    is_prompt = first.sample_index is not None
    rewards = [each.reward for each in members if each.reward is not None]
    known = [each.turn_hashes for each in members if each.turn_hashes and all(each.turn_hashes)]
    calls = [counts for each in members for counts in each.tools.values()]
    return GroupSummary(
        step=first.step,
        validate=first.validate,
        experiment_name=first.experiment_name,
        run_id=run_id,
        sample_index=first.sample_index,
        prompt=next((each.prompt for each in members if each.prompt and is_prompt), ""),
        trace_ids=tuple(each.trace_id for each in members),
        rollout_ns=tuple(each.rollout_n for each in members),
        rewards=tuple(each.reward for each in members),
        statuses=tuple(each.status for each in members),
        reward_std=deviation_of(rewards) if is_prompt and len(rewards) > 1 else None,
        solved=None,
        zero_variance=None,
        tokens=_spread([each.output_tokens for each in members]),
        turns=_spread([each.turns for each in members]),
        seconds=_spread([each.seconds for each in members]),
        duplicates=len(known) - len(set(known)) if is_prompt else 0,
        first_divergence=_first_divergence([each.turn_hashes for each in members]) if is_prompt else None,
        tool_calls=sum_of(each.calls for each in calls),
        tool_errors=sum_of(each.errors for each in calls),
        end_time=max(each.end_time for each in members),
    )


def _first_error(each: TrajectorySummary) -> str | None:
    return each.errors[0].type or each.error_type or "" if each.errors else each.error_type


def _first_divergence(hashes: Sequence[Sequence[str]]) -> int | None:
    """Return the first turn that differs: a missing turn does, a turn without a hash doesn't."""
    known = [each for each in hashes if any(each)]
    if not known or all(each == known[0] for each in known):
        return None
    for turn, said in enumerate(zip_longest(*known), 1):
        if len(set(said) - {""}) > 1 or (None in said and set(said) != {None}):
            return turn
    return None


def _spread(amounts: Sequence[float | None]) -> Spread | None:
    known = [amount for amount in amounts if amount is not None]
    return Spread(min(known), mean_of(known), max(known)) if known else None


def _percentiles(amounts: Sequence[float | None]) -> Percentiles | None:
    known = sorted(amount for amount in amounts if amount is not None)
    if not known:
        return None
    return Percentiles(mean_of(known), quantile_of(known, 0.5), quantile_of(known, 0.99), known[-1])


def _means_by_name(parts: Sequence[Mapping[str, float]]) -> dict[str, float]:
    found: dict[str, list[float]] = {}
    for each in parts:
        for name, value in each.items():
            found.setdefault(name, []).append(value)
    return {name: mean_of(values) for name, values in found.items()}


def _sums_by_name(tools: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return the calls and errors by tool, the busiest tool first."""
    found: dict[str, list[Any]] = {}
    for each in tools:
        for name, counts in each.items():
            found.setdefault(name, []).append(counts)
    sums = {name: type(counts[0])(*map(sum_of, zip(*counts, strict=True))) for name, counts in found.items()}
    return dict(sorted(sums.items(), key=lambda tool: (-tool[1][0], tool[0])))


_SUMS: Final[Mapping[Sum, Callable[[Sequence[Any]], Any]]] = {
    "mean": mean_of_known,
    "percentiles": _percentiles,
    "sum": sum_of,
    "above 0": lambda amounts: sum(amount > 0 for amount in amounts),
    "by value": lambda values: counts_of([value for value in values if value is not None]),
    "mean by name": _means_by_name,
    "sum by name": _sums_by_name,
}


Series: TypeAlias = tuple[str | None, bool, str | None]
"""The steps whose rewards have one scale: their experiment, whether they are validations, and their run."""


def series_of(step: Any) -> Series:
    """Return the series of a step, or of what has its fields."""
    return step.experiment_name, step.validate, step.run_id


def scales_of(steps: Iterable[Any]) -> dict[Series, Scale | None]:
    """Return the scale of each series' rewards."""
    ranges: dict[Series, list[tuple[float | None, float | None]]] = {}
    for step in steps:
        ranges.setdefault(series_of(step), []).append((step.reward_lowest, step.reward_highest))
    return {series: scale_of(found) for series, found in ranges.items()}


def judge(
    step: StepSummary, groups: Sequence[GroupSummary], run_id: str | None, scale: Scale | None
) -> tuple[StepSummary, list[GroupSummary]]:
    """Return figures with their run, and with those that compare rewards with a scale.

    Args:
        step: The step.
        groups: Its groups.
        run_id: The run.
        scale: The scale of the run's rewards; None if there are none.
    """
    judged = [
        replace(
            each,
            run_id=run_id,
            solved=_solved(each.rewards, scale),
            zero_variance=_zero_variance(each, scale),
        )
        for each in groups
    ]
    lowest, highest = (None, None) if scale is None else scale
    summary = replace(
        step,
        run_id=run_id,
        scale_lowest=lowest,
        scale_highest=highest,
        solved=_solved([reward for each in groups for reward in each.rewards], scale),
        zero_variance=counts_of([each.zero_variance for each in judged if each.zero_variance is not None]),
    )
    return summary, judged


def _solved(rewards: Sequence[float | None], scale: Scale | None) -> float | None:
    known = [reward for reward in rewards if reward is not None]
    return sum(map(scale.is_solved, known)) / len(known) if scale is not None and known else None


def _zero_variance(group: GroupSummary, scale: Scale | None) -> str | None:
    known = [reward for reward in group.rewards if reward is not None]
    if group.reward_std is None or scale is None or not is_same_reward(min(known), max(known)):
        return None
    # Rewards that differ by rounding are at the better end.
    return "best" if scale.end_of(max(known)) == "best" else scale.end_of(min(known))
