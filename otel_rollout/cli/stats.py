"""`otel-rollout stats`: count what a trace folder holds."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from otel_rollout.catalog import Run, StepSummary
from otel_rollout.cli.options import READ, add_folder, add_run, exit_codes
from otel_rollout.cli.reading import ProblemLog, nothing_matches, print_json, require_reader, show_progress
from otel_rollout.errors import NoTracesError
from otel_rollout.facts.json_types import to_json
from otel_rollout.folder.trace_files import find_trace_files

_SUMMED: Final = ("trajectories", "rootless", "errors", "spans", "redacted", "bytes")
"""The figures of steps whose sums are shown."""


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
    recorded = Run([arguments.folder], problems.note, show_progress, experiment=arguments.experiment, run=arguments.run)
    if arguments.json:
        recorded.infer()
    steps = recorded.steps()
    is_filtered = arguments.experiment is not None or arguments.run is not None
    if is_filtered and not steps:
        problems.print()
        raise NoTracesError(nothing_matches(arguments))
    totals = _totals(arguments.folder, steps, problems)
    if arguments.json:
        print_json(to_json({**totals, "steps": steps}))
    else:
        from otel_rollout.cli.tables import step_table, totals_table
        from otel_rollout.look.terminal.screen import open_screen
        from otel_rollout.look.terminal.table import print_lines

        screen = open_screen()
        if steps:
            print_lines(screen, step_table(steps, is_terminal=screen.is_terminal))
            screen.print()
        print_lines(screen, totals_table(totals, has_files=not is_filtered))
    problems.note_attempts(recorded, arguments)
    problems.print()
    return 0


def _totals(folder: Path, steps: Sequence[StepSummary], problems: ProblemLog) -> dict[str, Any]:
    files = find_trace_files(folder)
    return {
        "folder": str(folder),
        **{name: sum(getattr(step, name) for step in steps) for name in _SUMMED},
        "disk_bytes": sum(file.disk_bytes() for file in files),
        "files": len(files),
        "workers": len({file.worker for file in files}),
        "files_being_written": sum(file.is_being_written() for file in files),
        "problems": problems.counts(),
    }
