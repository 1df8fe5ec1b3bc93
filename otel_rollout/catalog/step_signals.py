"""A step's signs of trouble: failure classes, repeated or unknown calls, stragglers."""

# ruff: noqa: RUF009 - each default is a row of the table

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from otel_rollout.catalog.columns import figure
from otel_rollout.catalog.failure_class import BLAMES, ENVIRONMENT, failure_class, is_worst, survived_failures
from otel_rollout.catalog.step_figures import (
    Form,
    Speed,
    disputed_of,
    figures_of_prompts,
    form_of,
    group_sizes,
    is_cut_off,
    is_rewardable,
    mean_of_known,
    speed_of,
    wall_seconds,
)
from otel_rollout.catalog.step_summary import StepSummary
from otel_rollout.facts.amounts import error_of_mean, is_same_reward, mean_of
from otel_rollout.facts.table import TrajectorySummary

REPEATED: Final = 3
"""Calls of one tool with the same arguments from which on they count as repeated."""


@dataclass(frozen=True, slots=True)
class StepSignals:
    """Signs of trouble in one step; findings are made of them."""

    failures: Mapping[str, int] = figure("the trajectories that failed, by class of failure")
    punished: Mapping[str, int] = figure(
        "failures that the model can't be to blame for, and that have the step's worst reward; a tool may fail for its "
        "arguments"
    )
    truncated_reward_mean: float | None = figure(
        "the mean reward of the truncated trajectories; None if none of them has a reward"
    )
    whole_reward_mean: float | None = figure("the mean reward of the others")
    repeated_calls: int = figure("the trajectories with the same call three times or more")
    unknown_tools: int = figure("the trajectories that call a tool that there is not")
    unparsed_calls: int = figure("the trajectories with a tool call that could not be parsed")
    without_tokens: int = figure("the trajectories with turns, and without a number of generated tokens")
    staleness: Mapping[str, int] = figure("the trajectories by staleness, as text")
    lossy: int = figure("the trajectories with dropped spans")
    rolled_out_again: int = figure("the trajectories with the identity of an earlier one")
    cut_off: int = figure("the trajectories that were truncated, or whose last generation reached the limit of tokens")
    rewardable: int = figure("the trajectories that training needs a reward of")
    unrewarded: int = figure("the rewardable trajectories without a reward, and without an invalid one")
    invalid_rewards: int = figure("those whose reward is NaN or infinite")
    odd_results: Mapping[str, int] = figure(
        "the calls by tool whose result is nothing, or reads like an error, without an exception"
    )
    group_sizes: Mapping[str, int] = figure("the groups by their number of rollouts, as text")
    prompts: Mapping[str, tuple[int, float | None, float | None]] = figure(
        "by a prompt's key: its rollouts with a reward, their mean reward, the mean of output tokens"
    )
    speed: Speed = figure("the engine's tokens and seconds, without the slowest trajectories")
    wall_seconds: float = figure("the seconds until nearly all trajectories had ended")
    twins: int = figure("the trajectories with the same turns as a sibling")
    disputed: int = figure("the twins whose siblings have another reward")
    form: Form = figure("the form that most answers share")
    part_errors: Mapping[str, float] = figure(
        "the standard error of the mean of each reward part; the rollouts of a prompt count as one"
    )


@dataclass(frozen=True, kw_only=True)
class JudgedStep(StepSummary):
    """A step with its signs of trouble.

    Args:
        signals: The signs.
        looked_at: The trajectories whose messages were compared, or did not have to be: `two_sides` is of these.
        lost: The spans that the folder lacks, by reason.
    """

    signals: StepSignals
    looked_at: int
    lost: Mapping[str, int] = field(default_factory=dict)


def signals_of(summaries: Sequence[TrajectorySummary]) -> StepSignals:
    """Return the signals of one step.

    Args:
        summaries: Its trajectories.
    """
    worst = worst_reward(summaries)
    survived = survived_failures(summaries, worst)
    has_turns = any(each.turns for each in summaries)
    classes = [(failure_class(each, worst, survived, has_turns=has_turns), each) for each in summaries]
    truncated = [each.reward for each in summaries if is_cut_off(each)]
    rewardable = [each for each in summaries if is_rewardable(each)]
    twins, disputed = disputed_of(summaries)
    return StepSignals(
        failures=_counts(name for name, _ in classes),
        punished=_counts(name for name, each in classes if is_punished(name, each, worst)),
        truncated_reward_mean=mean_of_known(truncated),
        whole_reward_mean=mean_of_known(each.reward for each in summaries if not is_cut_off(each)),
        repeated_calls=sum(each.repeated_calls >= REPEATED for each in summaries),
        unknown_tools=sum(each.unknown_tool_calls > 0 for each in summaries),
        without_tokens=sum(map(is_without_tokens, summaries)),
        unparsed_calls=sum(each.unparsed_tool_calls > 0 for each in summaries),
        staleness=_counts(None if each.staleness is None else str(each.staleness) for each in summaries),
        lossy=sum(each.dropped_spans > 0 for each in summaries),
        rolled_out_again=len(rolled_out_again(summaries)),
        cut_off=len(truncated),
        rewardable=len(rewardable),
        unrewarded=sum(is_unrewarded(each) for each in rewardable),
        invalid_rewards=sum(has_invalid_reward(each) for each in summaries),
        odd_results={
            name: sum(each.odd_results.get(name, 0) for each in summaries)
            for name in sorted({name for each in summaries for name in each.odd_results})
        },
        group_sizes=group_sizes(summaries),
        prompts=figures_of_prompts(summaries),
        speed=speed_of(summaries),
        wall_seconds=wall_seconds(summaries),
        twins=len(twins),
        disputed=len(disputed),
        form=form_of(summaries),
        part_errors=_part_errors(summaries),
    )


def _part_errors(summaries: Iterable[TrajectorySummary]) -> dict[str, float]:
    values: dict[str, dict[object, list[float]]] = defaultdict(lambda: defaultdict(list))
    for each in summaries:
        prompt = each.trace_id if each.sample_index is None else each.sample_index
        for name, value in each.reward_parts.items():
            values[name][prompt].append(value)
    return {name: error_of_mean([mean_of(found) for found in of.values()]) for name, of in values.items()}


def is_unrewarded(summary: TrajectorySummary) -> bool:
    """Return True if training needs a reward of a trajectory, and none was given."""
    return is_rewardable(summary) and summary.reward is None and not summary.invalid_rewards


def is_without_tokens(summary: TrajectorySummary) -> bool:
    """Return True if no generation of a trajectory has a number of generated tokens."""
    return summary.has_root and bool(summary.turns) and summary.output_tokens is None


def has_invalid_reward(summary: TrajectorySummary) -> bool:
    """Return True if the reward of a trajectory is NaN or infinite, and none came later that is a number."""
    return summary.invalid_rewards > 0 and summary.reward is None


def rolled_out_again(summaries: Iterable[TrajectorySummary]) -> list[TrajectorySummary]:
    """Return the trajectories of a step whose prompt and number of the rollout an earlier one has, by their starts."""
    first: dict[tuple[str, str], TrajectorySummary] = {}
    known = [each for each in summaries if each.sample_index is not None and each.rollout_n is not None]
    ordered = [((str(each.sample_index), str(each.rollout_n)), each) for each in known]
    ordered.sort(key=lambda pair: pair[1].start_time)
    return [each for rollout, each in ordered if first.setdefault(rollout, each) is not each]


def worst_reward(summaries: Iterable[TrajectorySummary]) -> float | None:
    """Return the lowest reward of a step; None if all rewards are the same, or none is known."""
    rewards = [each.reward for each in summaries if each.reward is not None]
    return min(rewards) if rewards and not is_same_reward(min(rewards), max(rewards)) else None


def is_punished(failure: str | None, summary: TrajectorySummary, worst: float | None) -> bool:
    """Return True for a failure that the model can't be to blame for and that has the worst reward.

    Args:
        failure: The class of its failure.
        summary: The trajectory.
        worst: The worst reward of its step.
    """
    return failure in BLAMES[ENVIRONMENT] and is_worst(summary, worst)


def _counts(names: Iterable[str | None]) -> dict[str, int]:
    return dict(sorted(Counter(name for name in names if name is not None).items()))
