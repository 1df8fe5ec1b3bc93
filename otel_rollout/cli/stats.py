"""`otel-rollout stats`: what a trace folder holds, in numbers."""

from __future__ import annotations

import argparse
from dataclasses import asdict
from typing import Any

from otel_rollout.cli.json_output import print_json
from otel_rollout.cli.reading import ProblemLog, require_rich
from otel_rollout.cli.trajectory_filters import add_folder
from otel_rollout.trace_folder.folder_stats import FolderStats, count_folder

__all__ = ["add_to", "run"]

DESCRIPTION = """\
Count what a trace folder holds: trajectories, spans, and bytes as OTLP JSON and
on disk, in each step and altogether; who wrote it, what is open, what is torn.
"""


def add_to(commands: Any) -> None:
    """Add the command to the subparsers of the command line."""
    parser = commands.add_parser(
        "stats",
        help="count what a trace folder holds",
        description=DESCRIPTION,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add_folder(parser)
    parser.add_argument("--json", action="store_true", help="one JSON object")
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Run the command and return its exit code."""
    problems = ProblemLog()
    if arguments.json:
        print_json(asdict(count_folder(arguments.folder, on_problem=problems.note)))
    else:
        require_rich()
        _print_tables(count_folder(arguments.folder, on_problem=problems.note))
    problems.print()
    return 0


def _print_tables(stats: FolderStats) -> None:
    from otel_rollout.cli.screen import open_screen
    from otel_rollout.cli.trajectory_tables import step_table, totals_table

    screen = open_screen()
    if stats.steps:
        screen.print(step_table(stats.steps))
        screen.print()
    screen.print(totals_table(stats))
