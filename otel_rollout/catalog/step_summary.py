"""A training step as one row: rewards, groups without signal, failures, lengths, stragglers."""

# ruff: noqa: RUF009 - each default is a row of the table

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from otel_rollout.catalog.reward_scale import SOLVED, Scale
from otel_rollout.catalog.sql import count_if, figure, is_same
from otel_rollout.catalog.step_figures import LENGTH_REASONS
from otel_rollout.facts.table import Count, StepSums

_LENGTH_REASONS: Final = ", ".join(f"'{each}'" for each in sorted(LENGTH_REASONS))
CUT_OFF: Final = f"(status = 'truncated' OR (status = 'completed' AND finish_reason IN ({_LENGTH_REASONS})))"
"""The condition of `is_cut_off`."""
_FIRST_ERROR: Final = (
    "CASE errors WHEN '[]' THEN error_type "
    "ELSE coalesce(nullif(json_extract(errors, '$[0][2]'), ''), error_type, '') END"
)


@dataclass(frozen=True, kw_only=True)
class StepIdentity:
    """The trajectories that a step's summary is made of."""

    step: int | None = figure("the step; null for trajectories without one", "step", of="runs")
    validate: bool = figure("true for the step's validation", "validate", of="runs")
    experiment_name: str | None = figure("the experiment given to `init`", "experiment_name", of="runs")
    run_id: str | None = figure(
        "the run, if several runs of the experiment have the same rollouts; else null", "run_id", of="runs"
    )
    sole_run_id: str | None = figure(
        "the run of all of its trajectories; null if they are of several",
        "CASE WHEN count(run_id) = count(*) AND min(run_id) = max(run_id) THEN min(run_id) END",
        of="runs",
    )
    trajectories: Count = figure("the number of trajectories", "count(*)", of="runs")
    groups: Count = figure("the number of prompts", "count(sample_index)", of="groups")
    start_time: int = figure("the start of its first trajectory, since 1970", "min(start_time)", unit="ns", of="runs")
    end_time: int = figure("the end of its last, since 1970", "max(end_time)", unit="ns", of="runs")

    @property
    def identity(self) -> tuple[int | None, bool, str | None, str | None]:
        """The step, whether it is its validation, the experiment and the run: no other step has them all."""
        return self.step, self.validate, self.experiment_name, self.run_id


@dataclass(frozen=True, kw_only=True)
class StepSummary(StepSums, StepIdentity):
    """An experiment's trajectories in one step, or in its validation; None is unknown."""

    rewarded: Count = figure("the number of trajectories with a reward", "count(reward)")
    reward_std: float | None = figure("the standard deviation of rewards over all trajectories", "stddev(reward)")
    reward_lowest: float | None = figure("the lowest reward", "min(reward)", of="runs")
    reward_highest: float | None = figure("the highest reward", "max(reward)", of="runs")
    group_std: float | None = figure(
        "the mean of the groups' standard deviations of rewards", "mean(reward_std)", of="groups"
    )
    scale_lowest: float | None = figure(
        "the worst reward on the run's scale: the lowest, without the tenth of its steps with the lowest",
        "NULL",
        of="runs",
    )
    scale_highest: float | None = figure("the best, in the same way", "NULL", of="runs")
    solved: float | None = figure(
        "the share of rewards in the upper half of the run's scale; above 0 if the run has one reward",
        f"(SELECT 1.0 * {count_if(SOLVED.format('value'))} / nullif(count(value), 0) "
        "FROM group_figures g, json_each(g.rewards) WHERE g.run = step_figures.run)",
        of="scale",
    )
    comparable_groups: Count = figure(
        "the number of groups with two known rewards or more", "count(reward_std)", of="groups"
    )
    zero_variance: Mapping[str, Count] = figure(
        "the number of comparable groups without variance, by `best`, `worst`, `other`",
        "(SELECT coalesce(counts(zero_variance), '{}') FROM group_figures g WHERE g.run = step_figures.run)",
        of="scale",
    )
    errors: Count = figure("the trajectories that ended in an error", count_if("status = 'error'"))
    truncated: Count = figure("the trajectories that were cut off", count_if("status = 'truncated'"))
    cancelled: Count = figure("the trajectories that were cancelled", count_if("status = 'cancelled'"))
    rootless: Count = figure(
        "the trajectories without a root: they are running, or their process ended before they did",
        count_if("NOT has_root"),
    )
    truncated_with_worst_reward: Count = figure(
        "those that were cut off, also by the engine, and have the step's lowest reward",
        count_if(f"{CUT_OFF} AND {is_same('reward', 'run.reward_lowest')}"),
    )
    error_types: Mapping[str, Count] = figure(
        "the number of trajectories by the type of their first error", f"coalesce(counts({_FIRST_ERROR}), '{{}}')"
    )
    last_5_percent_share: float | None = figure(
        "the share of the step's wall time after 95% of the trajectories had ended; null for fewer than 20",
        "CASE WHEN run.trajectories >= 20 THEN (run.end_time - highest_of_95_percent(end_time)) * 1.0 / "
        "nullif(max(run.end_time - run.start_time, 0), 0) END",
    )
    duplicates: Count = figure(
        "the number of rollouts that equal an earlier one of their group", "sum(duplicates)", of="groups"
    )

    @property
    def scale(self) -> Scale | None:
        """The scale of the run's rewards; None if there are none."""
        if self.scale_lowest is None or self.scale_highest is None:
            return None
        return Scale(self.scale_lowest, self.scale_highest)
