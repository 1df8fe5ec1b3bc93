"""`otel-rollout compare`: compare two runs, figure by figure and prompt by prompt."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Final

import orjson

from otel_rollout.catalog import Run
from otel_rollout.cli.options import READ, add_steps, default_folder, exit_codes, share
from otel_rollout.cli.reading import (
    ProblemLog,
    no_step_matches,
    print_json,
    require_reader,
    selected_steps,
    show_progress,
)
from otel_rollout.errors import ConfigurationError, NoTracesError
from otel_rollout.look.compare import DEFAULT_MARGIN, Comparison, Side, compare_runs, narrowed, sides_of
from otel_rollout.look.compare.words import left_out_text
from otel_rollout.look.findings import CHECKS
from otel_rollout.text.near_miss import did_you_mean

MAX_NAMED: Final = 8
"""The most runs in a message."""


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the description and the options of the command."""
    parser.description = """\
Compare two runs over the steps that both have: each figure with the 95%
interval of its change, the prompts that one run solves and the other doesn't,
the findings that are gone and new. A change counts if it is significant for
the number of figures that are looked at, and above the margin.
"""
    parser.epilog = exit_codes(
        "B is not shown to be worse than A",
        failed="it is: a figure is worse, prompts are lost, or diagnose finds a new error",
    )
    parser.add_argument(
        "before",
        metavar="A",
        nargs="?",
        type=Path,
        default=default_folder(),
        help=f"the first run: {READ} (default: OTEL_ROLLOUT_DIR, else rollout-traces)",
    )
    parser.add_argument("after", metavar="B", nargs="?", type=Path, help="the second run (default: in the same folder)")
    parser.add_argument(
        "--experiment",
        metavar="NAME",
        action="append",
        default=[],
        help="an experiment; given twice, that of A and that of B",
    )
    parser.add_argument(
        "--run",
        metavar="ID",
        action="append",
        default=[],
        help="a run, by its run_id, of which the beginning will do; given twice, that of A and that of B",
    )
    add_steps(parser)
    parser.add_argument("--all-steps", action="store_true", help="all steps of both, not only those that both have")
    parser.add_argument(
        "--margin",
        type=share,
        default=DEFAULT_MARGIN,
        metavar="SHARE",
        help="the least change that counts: of the reward by its range, of a share by 1, of another figure by its mean "
        "in A (default: %(default)s)",
    )
    parser.add_argument(
        "--figure",
        metavar="NAME",
        action="append",
        default=[],
        help="only this figure or finding, such as reward, is shown, and decides the exit code; may be given more "
        "than once",
    )
    parser.add_argument("--json", action="store_true", help="one JSON object")
    parser.add_argument("--html", type=Path, metavar="FILE", help="write a page, which is one file")


def run(arguments: argparse.Namespace) -> int:
    """Run the command and return its exit code."""
    if not arguments.json:
        require_reader()
    problems = ProblemLog()
    before, after = _sides(arguments, problems)
    comparison = compare_runs(
        before,
        after,
        all_steps=arguments.all_steps,
        margin=arguments.margin,
        judged=arguments.figure,
        on_step=show_progress,
    )
    if not comparison.parts:
        left = f" ({left_out_text(comparison)})" if comparison.left_out else ""
        raise NoTracesError(
            f"{before.name} and {after.name} have no step in common{left}; --all-steps compares them as a whole"
        )
    if arguments.figure:
        _check_names(arguments.figure, comparison)
        comparison = narrowed(comparison, arguments.figure)
    if arguments.html is not None:
        from otel_rollout.look.compare.page import page_of

        arguments.html.write_text(page_of(comparison, before.steps, after.steps), encoding="utf-8")
    if arguments.json:
        print_json(orjson.dumps(comparison))
    else:
        from otel_rollout.look.terminal.comparison_drawing import print_comparison
        from otel_rollout.look.terminal.screen import open_screen

        print_comparison(open_screen(), comparison)
    problems.print()
    return 1 if comparison.worse else 0


def _sides(arguments: argparse.Namespace, problems: ProblemLog) -> tuple[Side, Side]:
    """Return the two runs.

    Raises:
        ConfigurationError: The command line names none, or several.
        NoTracesError: There is no such run.
    """
    for option, given in (("--experiment", arguments.experiment), ("--run", arguments.run)):
        if len(given) > 2:
            raise ConfigurationError(f"{option} is given {len(given)} times; there are two runs")
    folders = (arguments.before, arguments.after or arguments.before)
    if arguments.after is None and max(len(arguments.experiment), len(arguments.run)) < 2:
        found = _found(arguments, problems, folders[0], 0)
        if len(found) != 2:
            raise ConfigurationError(
                f"{folders[0]} has {_named(found)}; name another folder, or two of --experiment or --run"
            )
        return found[0], found[1]
    sides = [_only(_found(arguments, problems, folder, at), folder) for at, folder in enumerate(folders)]
    before, after = sides
    is_same = before.folder == after.folder and (before.experiment, before.run_id) == (after.experiment, after.run_id)
    if is_same:
        raise ConfigurationError(f"A and B are both {before.name}")
    return before, after


def _found(arguments: argparse.Namespace, problems: ProblemLog, folder: Path, at: int) -> list[Side]:
    """Return the runs of a folder that the options let through."""
    names = {
        name: given[min(at, len(given) - 1)] if (given := getattr(arguments, name)) else None
        for name in ("experiment", "run")
    }
    recorded = Run([folder], problems.note, show_progress, **names)
    known = recorded.steps()
    problems.note_attempts(recorded, arguments)
    if not known:
        asked = " and ".join(f"--{name} {value}" for name, value in names.items() if value is not None)
        everything = sides_of(Run([folder]), str(folder))
        raise NoTracesError(f"no trajectory of {folder} matches {asked}: it has {_named(everything)}")
    steps = selected_steps(known, arguments.step)
    if not steps:
        raise NoTracesError(no_step_matches(folder, "--step", known))
    return sides_of(recorded, str(folder), steps)


def _only(found: Sequence[Side], folder: Path) -> Side:
    if len(found) != 1:
        raise ConfigurationError(f"{folder} has {_named(found)}; choose one by --experiment or --run")
    return found[0]


def _named(sides: Sequence[Side]) -> str:
    names = [replace(side, folder="").name or "one without a name" for side in sides]
    more = f", and {len(names) - MAX_NAMED} more" if len(names) > MAX_NAMED else ""
    return f"{'one run' if len(names) == 1 else f'{len(names)} runs'}: {', '.join(names[:MAX_NAMED])}{more}"


def _check_names(names: Sequence[str], comparison: Comparison) -> None:
    known = {check.name for check in CHECKS}
    for part in comparison.parts:
        known |= {each.name for each in part.figures} | {each.name for each in part.too_few}
    for name in names:
        if name not in known:
            raise ConfigurationError(
                f"--figure: there is no figure {name!r} in both runs{did_you_mean(name, known)}; --json has their names"
            )
