"""A training step as one row: rewards, groups without signal, failures, lengths, stragglers."""

# ruff: noqa: RUF009 - each default is a row of the table

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from otel_rollout.catalog.columns import figure
from otel_rollout.catalog.reward_scale import Scale
from otel_rollout.catalog.step_figures import LENGTH_REASONS
from otel_rollout.facts.table import Count, StepSums

MEMBERS: Final = """
t.step IS :step AND t.validate = :validate AND t.experiment_name IS :experiment_name AND NOT t.overtaken
  AND (:is_sole OR t.run_id IS :run_id)
"""
"""The condition of the trajectories that figures are of."""
_SOLE: Final = "CASE WHEN count(DISTINCT ifnull(run_id, 0)) = 1 THEN max({}) END"
_NUMBER: Final = "count(CASE WHEN {} THEN 1 END)"
_REASONS: Final = ", ".join(map(repr, sorted(LENGTH_REASONS)))
_CUT_OFF: Final = f"status = 'truncated' OR status = 'completed' AND finish_reason IN ({_REASONS})"
"""The trajectories for which `is_cut_off` is true."""
_LOWEST: Final = f"(SELECT min(t.reward) FROM trajectories t WHERE {MEMBERS})"
_START, _END = (f"CASE WHEN status IS NOT 'cancelled' THEN {time} END" for time in ("start_time", "end_time"))
_OF_GROUPS: Final = (
    "(SELECT {} FROM groups g WHERE g.step IS :step AND g.validate = :validate"
    " AND g.experiment_name IS :experiment_name AND g.run_id IS :run_id)"
)


@dataclass(frozen=True, kw_only=True)
class StepIdentity:
    """The trajectories that a step's summary is made of."""

    step: int | None = figure("the step; null for trajectories without one")
    validate: bool = figure("true for the step's validation")
    experiment_name: str | None = figure("the experiment given to `init`")
    run_id: str | None = figure(
        "the run, if several runs of the experiment have the same rollouts; else null", ":run_id"
    )
    sole_run_id: str | None = figure(
        "the run of all of its trajectories; null if they are of several", _SOLE.format("run_id")
    )
    attempt: int | None = figure(
        "the attempt that its trajectories are of, from 1; null if the run was not resumed", _SOLE.format("attempt")
    )
    trajectories: Count = figure("the number of trajectories", "count(*)")
    groups: Count = figure("the number of prompts", "count(DISTINCT CAST(sample_index AS TEXT))")
    start_time: int = figure("the start of its first trajectory, since 1970", "min(start_time)", unit="ns")
    end_time: int = figure("the end of its last, since 1970", "max(end_time)", unit="ns")

    @property
    def identity(self) -> tuple[int | None, bool, str | None, str | None]:
        """The step, whether it is its validation, the experiment and the run: no other step has them all."""
        return self.step, self.validate, self.experiment_name, self.run_id


@dataclass(frozen=True, kw_only=True)
class StepSummary(StepSums, StepIdentity):
    """An experiment's trajectories in one step, or in its validation; None is unknown."""

    rewarded: Count = figure("the number of trajectories with a reward", "count(reward)")
    reward_std: float | None = figure("the standard deviation of rewards over all trajectories", "stddev(reward)")
    reward_lowest: float | None = figure("the lowest reward", "min(reward)")
    reward_highest: float | None = figure("the highest reward", "max(reward)")
    group_std: float | None = figure(
        "the mean of the groups' standard deviations of rewards", _OF_GROUPS.format("mean(reward_std)")
    )
    scale_lowest: float | None = figure(
        "the worst reward on the run's scale: the lowest, without the tenth of its steps with the lowest", "NULL"
    )
    scale_highest: float | None = figure("the best, in the same way", "NULL")
    solved: float | None = figure(
        "the share of rewards in the upper half of the run's scale; above 0 if the run has one reward", "NULL"
    )
    comparable_groups: Count = figure(
        "the number of groups with two known rewards or more", _OF_GROUPS.format("count(reward_std)")
    )
    zero_variance: Mapping[str, Count] = figure(
        "the number of comparable groups without variance, by `best`, `worst`, `other`", "'{}'"
    )
    errors: Count = figure("the trajectories that ended in an error", _NUMBER.format("status = 'error'"))
    truncated: Count = figure("the trajectories that were cut off", _NUMBER.format("status = 'truncated'"))
    cancelled: Count = figure("the trajectories that were cancelled", _NUMBER.format("status = 'cancelled'"))
    rootless: Count = figure(
        "the trajectories without a root: they are running, or their process ended before they did",
        "sum(NOT has_root)",
    )
    truncated_with_worst_reward: Count = figure(
        "those that were cut off, also by the engine, and have the step's lowest reward",
        _NUMBER.format(f"({_CUT_OFF}) AND reward NOT NULL AND is_same_reward(reward, {_LOWEST})"),
    )
    error_types: Mapping[str, Count] = figure(
        "the number of trajectories by the type of their first error",
        "ifnull(counts(CASE errors WHEN '[]' THEN error_type"
        " ELSE coalesce(nullif(json_extract(errors, '$[0][2]'), ''), error_type, '') END), '{}')",
    )
    last_5_percent_share: float | None = figure(
        "the share of the wall time after 95% of its trajectories had ended, without those that were cancelled; of "
        "fewer than 20, after all but the last; null for fewer than 8",
        f"1.0 * (max({_END}) - end_without_last({_END})) / nullif(max(0, max({_END}) - min({_START})), 0)",
    )
    duplicates: Count = figure(
        "the number of rollouts that equal an earlier one of their group",
        _OF_GROUPS.format("CAST(total(duplicates) AS INTEGER)"),
    )

    @property
    def scale(self) -> Scale | None:
        """The scale of the run's rewards; None if there are none."""
        if self.scale_lowest is None or self.scale_highest is None:
            return None
        return Scale(self.scale_lowest, self.scale_highest)
