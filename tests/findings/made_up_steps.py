"""Steps of made-up trajectories, healthy but for what a test changes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import closing
from dataclasses import replace
from typing import Any

from otel_rollout.catalog import JudgedStep, catalog_of, signals_of
from otel_rollout.catalog import steps as steps_of
from otel_rollout.facts import SpanError, ToolCounts, TrajectorySummary
from otel_rollout.look.findings import Diagnosis, diagnose

SECOND = 1_000_000_000
START = 1_700_000_000 * SECOND
GROUPS, ROLLOUTS = 8, 4

Change = Callable[[int, int, int], Mapping[str, Any]]


def make_trajectory(step: int | None = 1, group: int = 0, rollout: int = 0, **fields: Any) -> TrajectorySummary:
    """Return a healthy trajectory: half of a group's are right, all say something else, all take about a second."""
    start = START + (step or 0) * 100 * SECOND
    made = TrajectorySummary(
        f"{(step or 0) * 10**6 + group * 1000 + rollout + 1:032x}",
        step=step,
        sample_index=group,
        rollout_n=rollout,
        experiment_name="exp",
        has_root=True,
        status="completed",
        reward=float(rollout % 2),
        output_tokens=100,
        start_time=start,
        end_time=start + SECOND + (group * ROLLOUTS + rollout) * SECOND // 100,
        tools={"search": ToolCounts(3, 0)},
        turn_hashes=(f"{step} {group} {rollout}",),
        spans=5,
    )
    return replace(made, **fields)


def make_steps(change: Change = lambda _step, _group, _rollout: {}, steps: int = 1) -> list[list[TrajectorySummary]]:
    """Return the trajectories of each step.

    Args:
        change: Returns the fields of a trajectory that differ, by step, group and rollout.
        steps: The number of steps.
    """
    return [
        [
            make_trajectory(step, group, rollout, **change(step, group, rollout))
            for group in range(GROUPS)
            for rollout in range(ROLLOUTS)
        ]
        for step in range(1, steps + 1)
    ]


def summarise(trajectories: list[TrajectorySummary]) -> JudgedStep:
    """Return the summary of one step with its signs of trouble."""
    with closing(catalog_of(trajectories)) as connection:
        (step,) = steps_of(connection)
    return JudgedStep(**vars(step), signals=signals_of(trajectories), looked_at=step.trajectories)


def diagnosed(steps: list[list[TrajectorySummary]], **options: Any) -> Diagnosis:
    """Run all checks over steps."""
    contents = {(found[0].step, found[0].validate): found for found in steps}
    return diagnose(list(map(summarise, steps)), lambda step: contents[step.step, step.validate], **options)


def failed_tool(error_type: str, *, is_mended: bool = False, ends_it: bool = False) -> dict[str, Any]:
    """Return the fields of a trajectory whose tool call failed.

    Args:
        error_type: The exception.
        is_mended: The next call of the tool succeeds.
        ends_it: The exception ends the trajectory.
    """
    errors = [SpanError("run", "AGENT", error_type, False)] if ends_it else []
    return {
        "errors": (*errors, SpanError("search", "TOOL", error_type, is_mended)),
        "tools": {"search": ToolCounts(1 + is_mended, 1)},
        **({"status": "error", "error_type": error_type, "reward": None} if ends_it else {"reward": 0.0}),
    }
