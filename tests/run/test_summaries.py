"""Groups and steps: rewards that rounding, outliers or their size make hard to compare."""

from __future__ import annotations

import math
import sys
from contextlib import closing

import orjson
import pytest

from otel_rollout.catalog import GroupSummary, StepSummary, catalog_of, groups, signals_of, steps
from otel_rollout.facts import ToolCounts, TrajectorySummary, from_json
from otel_rollout.look.terminal import advantages
from otel_rollout.text import INT64_MAX

SECOND = 1_000_000_000


def rollout(number: int = 0, reward: float | None = None, **fields) -> TrajectorySummary:
    """Return a summary; those with the same number are of several runs."""
    fields = {"step": 1, "sample_index": 0, "rollout_n": number, "has_root": True, "end_time": SECOND, **fields}
    return TrajectorySummary(f"{fields.get('run_id', 0)}{number:031x}", reward=reward, **fields)


def steps_of(summaries: list[TrajectorySummary]) -> list[StepSummary]:
    """Return the summaries of all steps."""
    with closing(catalog_of(summaries)) as connection:
        return steps(connection)


def step_of(summaries: list[TrajectorySummary]) -> StepSummary:
    """Return the summary of one step."""
    (step,) = steps_of(summaries)
    return step


def groups_of(summaries: list[TrajectorySummary]) -> list[GroupSummary]:
    """Return the groups of all steps and runs."""
    with closing(catalog_of(summaries)) as connection:
        return groups(connection)


def group_of(*summaries: TrajectorySummary) -> GroupSummary:
    """Return the only group."""
    [group] = groups_of(list(summaries))
    return group


class TestGroups:
    """The summary of a prompt's rollouts."""

    def test_rounding_makes_no_failures(self):
        """Rewards that are sums of the same parts in another order are the same: none of them is the worst."""
        summaries = [rollout(n, 0.1 + 0.2 if n == 0 else 0.3) for n in range(4)]
        (group,) = groups_of(summaries)
        step = step_of(summaries)
        assert group.zero_variance == "best"
        assert (signals_of(summaries).failures, step.truncated_with_worst_reward) == ({}, 0)

    def test_any_two_rewards_have_a_middle(self):
        """Rewards near the largest float don't overflow."""
        assert group_of(*(rollout(n, reward) for n, reward in enumerate((-1.7e308, 1.0, 1.7e308)))).solved == 2 / 3
        assert group_of(*(rollout(n, reward) for n, reward in enumerate((1.6e308, 1.69e308, 1.7e308)))).solved == 2 / 3


class TestSteps:
    """The summary of a step."""

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
