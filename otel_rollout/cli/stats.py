"""`otel-rollout stats`: count what a trace folder holds."""

from __future__ import annotations

import argparse

from otel_rollout.catalog import count_folder
from otel_rollout.cli.options import READ, add_folder, add_run, exit_codes
from otel_rollout.cli.reading import ProblemLog, nothing_matches, print_json, require_reader, show_progress
from otel_rollout.errors import NoTracesError
from otel_rollout.facts.json_types import to_json


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the description and the options of the command."""
    parser.description = """\
Count what a trace folder holds: trajectories, spans, and bytes as OTLP and
on disk, in each step and altogether; who wrote it, what is open, what is torn.
"""
    parser.epilog = exit_codes("shown")
    add_folder(parser, READ)
    add_run(parser)
    parser.add_argument("--json", action="store_true", help="one JSON object")


def run(arguments: argparse.Namespace) -> int:
    """Run the command and return its exit code."""
    if not arguments.json:
        require_reader()
    problems = ProblemLog()
    stats = count_folder(
        arguments.folder,
        on_problem=problems.note,
        on_progress=show_progress,
        experiment=arguments.experiment,
        run=arguments.run,
        has_inferred=arguments.json,
    )
    is_filtered = arguments.experiment is not None or arguments.run is not None
    if is_filtered and not stats.steps:
        problems.print()
        raise NoTracesError(nothing_matches(arguments))
    if arguments.json:
        print_json(to_json(stats))
    else:
        from otel_rollout.cli.tables import step_table, totals_table
        from otel_rollout.look.terminal.screen import open_screen
        from otel_rollout.look.terminal.table import print_lines

        screen = open_screen()
        if stats.steps:
            print_lines(screen, step_table(stats.steps, is_terminal=screen.is_terminal))
            screen.print()
        print_lines(screen, totals_table(stats, has_files=not is_filtered))
    problems.print()
    return 0
