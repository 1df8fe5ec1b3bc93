"""`otel-rollout ls`: list the steps of a trace folder, the trajectories of a step, or the rollouts of a prompt."""

from __future__ import annotations

import argparse
from typing import Any

import orjson

from otel_rollout.cli.reading import (
    ProblemLog,
    complain,
    in_order_of_prompts,
    nothing_matches,
    print_json,
    require_reader,
    selected,
)
from otel_rollout.trace_folder.folder_stats import summarise_steps
from otel_rollout.trace_folder.reader import RecordedTrajectory

__all__ = ["run"]

# The names in the JSON, and the attributes of a trajectory, where they differ.
_RENAMED = {"spans": "span_count", "bytes": "size_bytes"}
_FIELDS = (
    "trace_id",
    "name",
    "step",
    "sample_index",
    "rollout_n",
    "validate",
    "experiment_name",
    "project_name",
    "run_id",
    "status",
    "reward",
    "has_root",
    "start_time",
    "end_time",
    "spans",
    "bytes",
    "stored_bytes",
)


def run(arguments: argparse.Namespace) -> int:
    """Run the command and return its exit code."""
    problems = ProblemLog()
    if arguments.perfetto is not None:
        from otel_rollout.cli.timeline_file import write_timeline

        if not write_timeline(selected(arguments, problems), arguments.perfetto):
            complain(nothing_matches(arguments))
        problems.print()
        return 0
    is_by_step = arguments.step is None and arguments.sample_index is None
    if arguments.json:
        trajectories = selected(arguments, problems)
        for row in summarise_steps(trajectories) if is_by_step else map(_as_dict, trajectories):
            print_json(orjson.dumps(row))
    else:
        _print_tables(arguments, problems, is_by_step=is_by_step)
    problems.print()
    return 0


def _print_tables(arguments: argparse.Namespace, problems: ProblemLog, *, is_by_step: bool) -> None:
    require_reader()
    from otel_rollout.cli.groups import print_groups
    from otel_rollout.cli.tables import step_table, trajectory_table
    from otel_rollout.terminal.screen import open_screen
    from otel_rollout.terminal.table import print_lines

    screen = open_screen()
    trajectories = selected(arguments, problems)
    if arguments.sample_index is not None:
        has_any = print_groups(screen, in_order_of_prompts(trajectories), problems)
    else:
        table = (
            step_table(summarise_steps(trajectories), is_terminal=screen.is_terminal)
            if is_by_step
            else trajectory_table(in_order_of_prompts(trajectories), is_terminal=screen.is_terminal)
        )
        has_any = bool(table.rows)
        if has_any:
            print_lines(screen, table)
    if not has_any:
        complain(nothing_matches(arguments))


def _as_dict(trajectory: RecordedTrajectory) -> dict[str, Any]:
    row = {name: getattr(trajectory, _RENAMED.get(name, name)) for name in _FIELDS}
    return {**row, "attributes": dict(trajectory.attributes)}
