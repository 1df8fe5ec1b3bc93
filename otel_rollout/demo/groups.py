"""The rollouts of one prompt side by side: which group is worth a look, and its table."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

from rich.table import Table
from rich.text import Text

from otel_rollout.analysis.trace_tree import STATUS_STYLES
from otel_rollout.demo.reward import advantages
from otel_rollout.demo.rollout import Trajectory

__all__ = ["group_table", "most_telling_group", "most_telling_trajectory"]


def most_telling_group(trajectories: Sequence[Trajectory], step: int = 1) -> list[Trajectory]:
    """Return the group of a step that shows most: a tool error that was overcome, and mixed outcomes."""
    groups: dict[int, list[Trajectory]] = defaultdict(list)
    for trajectory in trajectories:
        if trajectory.step == step and not trajectory.validate:
            groups[trajectory.sample_index].append(trajectory)
    return max(groups.values(), key=_variety, default=[])


def most_telling_trajectory(group: Sequence[Trajectory]) -> Trajectory:
    """Return the trajectory that came furthest against most trouble."""
    return max(group, key=lambda trajectory: (_overcame(trajectory), trajectory.reward or 0.0, trajectory.turns))


def group_table(group: Sequence[Trajectory]) -> Table:
    """Return a table with one row a rollout, with the advantage that GRPO would give it."""
    table = Table(box=None, pad_edge=False, header_style="dim")
    table.add_column("rollout", justify="right")
    table.add_column("status", min_width=9)
    for column in ("turns", "tokens", "errors", "seconds", "answer", "reward", "advantage"):
        table.add_column(column, justify="right")
    rewards = [trajectory.reward or 0.0 for trajectory in group]
    for trajectory, advantage in zip(group, advantages(rewards), strict=True):
        known = trajectory.reward is not None
        table.add_row(
            str(trajectory.rollout_n),
            Text(trajectory.status, style=STATUS_STYLES[trajectory.status]),
            str(trajectory.turns) if known else "-",
            str(trajectory.tokens) if known else "-",
            str(trajectory.tool_errors) if known else "-",
            f"{trajectory.seconds:.2f}",
            trajectory.answer or "-",
            f"{trajectory.reward:.1f}" if known else "-",
            f"{advantage:+.2f}",
        )
    return table


def _overcame(trajectory: Trajectory) -> bool:
    return trajectory.tool_errors > 0 and trajectory.reward == 1.0


def _variety(group: Sequence[Trajectory]) -> tuple[bool, int, int]:
    outcomes = {(trajectory.status, trajectory.reward) for trajectory in group}
    statuses = {trajectory.status for trajectory in group}
    return any(map(_overcame, group)), len(outcomes), len(statuses)
