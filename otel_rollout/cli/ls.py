"""`otel-rollout ls`: list the steps of a trace folder, or the trajectories of one."""

from __future__ import annotations

import argparse
from typing import Any

import orjson

from otel_rollout.cli.reading import ProblemLog, complain, in_order_of_prompts, print_json, require_reader, selected
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
    if arguments.json:
        trajectories = selected(arguments, problems)
        for row in summarise_steps(trajectories) if arguments.step is None else map(_as_dict, trajectories):
            print_json(orjson.dumps(row))
    else:
        _print_table(arguments, problems)
    problems.print()
    return 0


def _print_table(arguments: argparse.Namespace, problems: ProblemLog) -> None:
    require_reader()
    from otel_rollout.cli.tables import step_table, trajectory_table
    from otel_rollout.terminal.screen import open_screen

    screen = open_screen()
    trajectories = selected(arguments, problems)
    if arguments.step is None:
        table = step_table(summarise_steps(trajectories))
    else:
        table = trajectory_table(in_order_of_prompts(trajectories), width=screen.width if screen.is_terminal else None)
    if table.row_count:
        screen.print(table)
    else:
        complain(f"no trajectory in {arguments.folder} is like that")


def _as_dict(trajectory: RecordedTrajectory) -> dict[str, Any]:
    row = {name: getattr(trajectory, _RENAMED.get(name, name)) for name in _FIELDS}
    return {**row, "attributes": dict(trajectory.attributes)}
