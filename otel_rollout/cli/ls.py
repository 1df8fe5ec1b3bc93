"""`otel-rollout ls`: the steps of a trace folder, or the trajectories of one."""

from __future__ import annotations

import argparse
import sys
from dataclasses import asdict
from typing import Any

from otel_rollout.analysis.trace_tree import printable
from otel_rollout.cli.json_output import print_json
from otel_rollout.cli.reading import ProblemLog, in_order_of_prompts, require_rich, selected
from otel_rollout.cli.trajectory_filters import add_filters, add_folder
from otel_rollout.trace_folder.folder_stats import summarise_steps
from otel_rollout.trace_folder.reader import RecordedTrajectory

__all__ = ["add_to", "run"]

DESCRIPTION = """\
List a trace folder by training step; with --step, the trajectories of that step,
the rollouts of a prompt one below the other.
"""


def add_to(commands: Any) -> None:
    """Add the command to the subparsers of the command line."""
    parser = commands.add_parser(
        "ls",
        help="list a trace folder by step, or the trajectories of a step",
        description=DESCRIPTION,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add_folder(parser)
    add_filters(parser)
    parser.add_argument("--json", action="store_true", help="a JSON object on a line of its own for each row")
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Run the command and return its exit code."""
    problems = ProblemLog()
    if arguments.json:
        _print_json(arguments, problems)
    else:
        _print_table(arguments, problems)
    problems.print()
    return 0


def _print_json(arguments: argparse.Namespace, problems: ProblemLog) -> None:
    trajectories = selected(arguments, problems)
    rows = map(asdict, summarise_steps(trajectories)) if arguments.step is None else map(_as_dict, trajectories)
    for row in rows:
        print_json(row)


def _print_table(arguments: argparse.Namespace, problems: ProblemLog) -> None:
    require_rich()
    from otel_rollout.cli.screen import open_screen
    from otel_rollout.cli.trajectory_tables import step_table, trajectory_table

    screen = open_screen()
    trajectories = selected(arguments, problems)
    if arguments.step is None:
        table = step_table(summarise_steps(trajectories))
    else:
        table = trajectory_table(in_order_of_prompts(trajectories), width=screen.width if screen.is_terminal else None)
    if table.row_count:
        screen.print(table)
    else:
        print(printable(f"no trajectory in {arguments.folder} is like that"), file=sys.stderr)


def _as_dict(trajectory: RecordedTrajectory) -> dict[str, Any]:
    return {
        "trace_id": trajectory.trace_id,
        "name": trajectory.name,
        "step": trajectory.step,
        "sample_index": trajectory.sample_index,
        "rollout_n": trajectory.rollout_n,
        "validate": trajectory.validate,
        "experiment_name": trajectory.experiment_name,
        "project_name": trajectory.project_name,
        "run_id": trajectory.run_id,
        "status": trajectory.status,
        "reward": trajectory.reward,
        "has_root": trajectory.has_root,
        "start_time": trajectory.start_time,
        "end_time": trajectory.end_time,
        "spans": trajectory.span_count,
        "bytes": trajectory.size_bytes,
        "stored_bytes": trajectory.stored_bytes,
        "attributes": dict(trajectory.attributes),
    }
