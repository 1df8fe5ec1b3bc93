"""Groups and steps say the same as a naive recomputation from all spans, whatever the folder's files are."""

from __future__ import annotations

import math
import sys
import tempfile
from collections import defaultdict
from dataclasses import asdict, replace
from pathlib import Path

import orjson
import pytest
from hypothesis import given, settings

from otel_rollout.catalog import GroupSummary, Run, StepSummary, signals_of, summarise_runs
from otel_rollout.facts import SpanError, ToolCounts, TrajectorySummary, from_json
from otel_rollout.look.terminal import advantages
from otel_rollout.text import INT64_MAX
from tests.run.made_folders import TRAJECTORIES, Made, naive_group, naive_step, write

SECOND = 1_000_000_000


def rollout(number: int = 0, reward: float | None = None, **fields) -> TrajectorySummary:
    """Return a summary; those with the same number are of several runs."""
    fields = {"step": 1, "sample_index": 0, "rollout_n": number, "has_root": True, "end_time": SECOND, **fields}
    return TrajectorySummary(f"{fields.get('run_id', 0)}{number:031x}", reward=reward, **fields)


def step_of(summaries: list[TrajectorySummary]) -> StepSummary:
    """Return the summary of one step."""
    (run,) = summarise_runs(summaries)
    return run.summary


def groups_of(summaries: list[TrajectorySummary]) -> list[GroupSummary]:
    """Return the groups of all steps and runs."""
    return [group for run in summarise_runs(summaries) for group in run.groups]


def group_of(*summaries: TrajectorySummary) -> GroupSummary:
    """Return the only group."""
    [group] = groups_of(list(summaries))
    return group


class TestAgainstAllSpans:
    """A folder with trajectories of any kind, in files of any kind."""

    @settings(max_examples=40)
    @given(TRAJECTORIES)
    def test_steps_and_groups(self, made: list[Made]) -> None:
        """Each figure is that of a recomputation; a second reader takes the same from the steps' files."""
        steps: dict[tuple, list[Made]] = defaultdict(list)
        for each in made:
            steps[each.step, each.validate, each.experiment].append(each)
        with tempfile.TemporaryDirectory() as folder:
            write(Path(folder), made)
            run = Run([Path(folder)])
            summaries = run.steps()
            assert Run([Path(folder)]).steps() == summaries
            assert len(summaries) == len(steps)
            for summary in summaries:
                found = steps[summary.step, summary.validate, summary.experiment_name]
                expected = naive_step(found)
                shown = asdict(summary)
                assert {key: shown[key] for key in expected} == pytest.approx(expected)
                groups = run.groups(summary)
                assert sum(len(group.trace_ids) for group in groups) == len(found)
                for group in groups:
                    members = [each for each in found if str(each.sample) == str(group.sample_index)]
                    own = [
                        each for key, each in steps.items() if key[1:] == (summary.validate, summary.experiment_name)
                    ]
                    expected = naive_group(members, own)
                    assert {key: getattr(group, key) for key in expected} == expected


class TestGroups:
    """The summary of a prompt's rollouts."""

    @pytest.mark.parametrize(
        ("rewards", "expected"),
        [
            ((1.0, 1.0), "best"),
            ((0.0, 0.0), "worst"),
            ((0.5, 0.5), "other"),
            ((1.0, 0.0), None),
            ((1.0, None), None),
            ((None, None), None),
            ((1.0, None, 1.0), "best"),
            ((0.1 + 0.2, 0.3), "other"),
            ((1.0, 0.7 + 0.2 + 0.1), "best"),
            ((0.3 - 0.2 - 0.1, 0.0), "worst"),
        ],
    )
    def test_without_variance(self, rewards, expected):
        """Equal known rewards, two at least, are the run's best, its worst, or another."""
        others = [rollout(7, 0.0, sample_index=1), rollout(8, 1.0, sample_index=1)]
        first, _ = groups_of([*(rollout(n, reward) for n, reward in enumerate(rewards)), *others])
        assert first.zero_variance == expected

    def test_rounding_makes_no_failures(self):
        """Rewards that are sums of the same parts in another order are the same: none of them is the worst."""
        summaries = [rollout(n, 0.1 + 0.2 if n == 0 else 0.3) for n in range(4)]
        (group,) = groups_of(summaries)
        step = step_of(summaries)
        assert group.zero_variance == "best"
        assert (signals_of(summaries).failures, step.truncated_with_worst_reward) == ({}, 0)

    def test_an_outlier_of_one_step_is_no_scale(self):
        """A reward of 50 in one of ten steps leaves the others solved and all best, and is as good as the best."""
        rewards = [(1.0, 1.0, 0.0), *[(1.0, 1.0)] * 9]
        made = [
            rollout(10 * step + n, reward if (step, n) != (3, 1) else 50.0, step=step, sample_index=n == 2)
            for step, each in enumerate(rewards)
            for n, reward in enumerate(each)
        ]
        runs = summarise_runs(made)
        assert {(run.summary.scale_lowest, run.summary.scale_highest) for run in runs} == {(0.0, 1.0)}
        assert [run.summary.solved for run in runs] == [2 / 3, *[1.0] * 9]
        assert [run.groups[0].zero_variance for run in runs] == ["best"] * 3 + [None] + ["best"] * 6

    def test_a_step_of_one_reward_is_judged_by_the_others(self):
        """A step in which all have 0.1 is all worst once another step has 1, whatever it was before."""
        same = [rollout(n, 0.1) for n in range(2)]
        later = [rollout(n, float(n), step=2) for n in range(2, 4)]
        assert group_of(*same).zero_variance == "best"
        first, _ = summarise_runs([*same, *(replace(each, reward=each.reward or 0.1) for each in later)])
        assert (first.groups[0].zero_variance, first.summary.solved) == ("worst", 0.0)

    @pytest.mark.parametrize(("reward", "expected"), [(1.0, "best"), (0.0, "worst"), (-1.0, "worst")])
    def test_if_the_whole_step_has_one_reward(self, reward, expected):
        """Above 0 it counts as the best and as solved, else as the worst."""
        group = group_of(rollout(0, reward), rollout(1, reward))
        assert (group.zero_variance, group.solved) == (expected, float(reward > 0))

    def test_solved_is_the_upper_half_of_the_runs_scale(self):
        """Rewards above the middle between the run's lowest and highest are solved, the middle is not."""
        assert group_of(*(rollout(n, reward) for n, reward in enumerate((-1.0, 0.0, 0.1, 1.0)))).solved == 0.5

    def test_any_two_rewards_have_a_middle(self):
        """Rewards near the largest float don't overflow."""
        assert group_of(*(rollout(n, reward) for n, reward in enumerate((-1.7e308, 1.0, 1.7e308)))).solved == 2 / 3
        assert group_of(*(rollout(n, reward) for n, reward in enumerate((1.6e308, 1.69e308, 1.7e308)))).solved == 2 / 3

    def test_rollouts_are_in_order(self):
        """Numbers by value, then text, whatever the order in which they ended; 7 and "7" are one prompt."""
        numbers = [10, "b", 2, "a"]
        summaries = [rollout(n, rollout_n=number, sample_index=(7, "7")[n % 2]) for n, number in enumerate(numbers)]
        assert group_of(*summaries).rollout_ns == (2, 10, "a", "b")

    def test_where_they_diverge(self):
        """The first turn that not all say, counted from 1; a turn that one lacks differs, an unknown one may not."""
        ab, ac, a = ("a", "b"), ("a", "c"), ("a",)
        assert group_of(rollout(0, turn_hashes=ab), rollout(1, turn_hashes=ac)).first_divergence == 2
        assert group_of(rollout(0, turn_hashes=ab), rollout(1, turn_hashes=a)).first_divergence == 2
        assert group_of(rollout(0, turn_hashes=ab), rollout(1, turn_hashes=ab)).first_divergence is None
        assert group_of(rollout(0, turn_hashes=ab), rollout(1, turn_hashes=("a", ""))).first_divergence is None
        assert group_of(rollout(0, turn_hashes=ab), rollout(1, turn_hashes=())).first_divergence is None

    def test_duplicates(self):
        """Rollouts that say what an earlier one says, with all turns known."""
        said = [("a", "b"), ("a", "b"), ("a", ""), ("a", ""), (), (), ("a",)]
        assert group_of(*(rollout(n, turn_hashes=each) for n, each in enumerate(said))).duplicates == 1

    def test_trajectories_without_a_prompt_are_not_compared(self):
        """They are one group, the last, without zero variance, duplicates or divergence, and no prompt of the step."""
        loose = [rollout(n, 1.0, sample_index=None, turn_hashes=("a",)) for n in range(2)]
        summaries = [*loose, rollout(3, 1.0)]
        *_, last = groups_of(summaries)
        assert (last.sample_index, last.zero_variance, last.duplicates) == (None, None, 0)
        assert step_of(summaries).groups == 1

    def test_runs_are_told_apart_if_they_have_the_same_rollouts(self):
        """Two runs of an experiment with the same rollout have groups of their own; processes of one run share them."""
        again = [rollout(0, run_id="x"), rollout(0, run_id="y")]
        assert [group.run_id for group in groups_of(again)] == ["x", "y"]
        assert [group.run_id for group in groups_of([rollout(0, run_id="x"), rollout(1, run_id="y")])] == [None]


class TestSteps:
    """The summary of a step."""

    def test_percentiles_are_interpolated(self):
        """As numpy and pandas do by default."""
        step = step_of([rollout(n, turns=n + 1) for n in range(4)])
        assert step.turns == (2.5, 2.5, pytest.approx(3.97), 4)

    def test_the_wait_for_the_last_ones(self):
        """The share of the wall time after 19 of 20 had ended, or all but one of 8; a cancelled one is not awaited."""
        ends = [rollout(n, end_time=10 * SECOND) for n in range(19)]
        last, gone = rollout(19, end_time=40 * SECOND), rollout(20, end_time=90 * SECOND, status="cancelled")
        assert step_of([*ends, last, gone]).last_5_percent_share == 0.75
        assert step_of([*ends[:7], last]).last_5_percent_share == 0.75
        assert step_of([*ends[:6], last, gone]).last_5_percent_share is None

    def test_tools_and_errors(self):
        """Calls are added up by tool, the busiest first; a trajectory counts by its first error's type."""
        error = SpanError("search", "TOOL", "Timeout", 0)
        summaries = [
            rollout(0, tools={"search": ToolCounts(2, 1)}, errors=(error, error._replace(type="Other"))),
            rollout(1, tools={"search": ToolCounts(1, 0), "run": ToolCounts(9, 0)}, error_type="OutOfMemory"),
            rollout(2),
        ]
        step = step_of(summaries)
        assert list(step.tools.items()) == [("run", ToolCounts(9, 0)), ("search", ToolCounts(3, 1))]
        assert step.error_types == {"Timeout": 1, "OutOfMemory": 1}

    def test_any_rewards_and_counts_have_figures(self):
        """Rewards as large as a float, and counts of 64 bits that another program wrote."""
        most = sys.float_info.max
        large = 0.6 * most
        calls = {"search": ToolCounts(INT64_MAX, INT64_MAX)}
        amounts = {"reward_parts": {"a": most}, "tools": calls, "dropped_spans": INT64_MAX, "bytes": INT64_MAX}
        summaries = [rollout(number, (large, -large, large)[number], **amounts) for number in range(3)]
        step, group = step_of(summaries), group_of(*summaries)
        assert step.reward_mean == pytest.approx(large / 3)
        assert step.reward_std == pytest.approx(large * (math.sqrt(8) / 3))
        assert step.reward_parts == {"a": pytest.approx(most)}
        assert (step.dropped_spans, step.bytes, step.tools) == (INT64_MAX, INT64_MAX, calls)
        assert from_json(StepSummary, orjson.loads(orjson.dumps(step, default=tuple))) == step
        assert from_json(GroupSummary, orjson.loads(orjson.dumps(group, default=tuple))) == group
        assert all(map(math.isfinite, advantages([each.reward for each in summaries])))

    def test_means_of_reward_parts(self):
        """Over the trajectories that have the part."""
        parts = [{"format": 1.0}, {"format": 0.0, "exact": 1.0}]
        step = step_of([rollout(n, reward_parts=each) for n, each in enumerate(parts)])
        assert step.reward_parts == {"format": 0.5, "exact": 1.0}
