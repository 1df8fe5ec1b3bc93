"""`otel-rollout diagnose`: find what is wrong with a run, with the trajectories that prove it."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

import orjson

from otel_rollout.catalog import Run
from otel_rollout.catalog.step_summary import StepSummary
from otel_rollout.cli.options import READ, add_folder, add_run, add_steps, exit_codes, threshold
from otel_rollout.cli.reading import (
    ProblemLog,
    no_step_matches,
    nothing_matches,
    print_json,
    require_reader,
    selected_steps,
    show_progress,
)
from otel_rollout.errors import ConfigurationError, NoTracesError
from otel_rollout.look.findings import CHECKS, Diagnosis, default_thresholds, diagnose_run, running_steps
from otel_rollout.text.near_miss import did_you_mean


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the description and the options of the command."""
    parser.description = """\
Check a trace folder: groups without signal, truncation, tools that fail,
failures that the model isn't to blame for, duplicates, prefix breaks, parts of
the reward that are hacked, stragglers, stale weights, lost spans. Each finding
has its threshold, what it means, what to try, and trajectories that prove it.
"""
    parser.epilog = exit_codes("nothing is above its threshold", failed="something is")
    add_folder(parser, READ)
    add_steps(parser)
    add_run(parser)
    parser.add_argument(
        "--against", metavar="STEP|DIR", help="compare with a step of this folder, or with another folder"
    )
    parser.add_argument(
        "--threshold",
        action="append",
        default=[],
        type=threshold,
        metavar="NAME=VALUE",
        help="another threshold of a check, such as truncated=0.05; may be given more than once",
    )
    parser.add_argument("--json", action="store_true", help="one JSON object")


def run(arguments: argparse.Namespace) -> int:
    """Run the command and return its exit code."""
    if not arguments.json:
        require_reader()
    thresholds = _thresholds(arguments.threshold)
    problems = ProblemLog()
    recorded = Run(
        [arguments.folder],
        on_problem=problems.note,
        on_progress=show_progress,
        experiment=arguments.experiment,
        run=arguments.run,
    )
    steps = recorded.steps(arguments.step)
    known = recorded.steps() if arguments.against is not None or not steps else steps
    if not steps:
        problems.print()
        if not known and (arguments.experiment is not None or arguments.run is not None):
            raise NoTracesError(nothing_matches(arguments))
        raise NoTracesError(no_step_matches(arguments.folder, "--step", known))
    against = None
    compared: Sequence[StepSummary] = ()
    if arguments.against is not None:
        other, compared = _baseline(arguments, recorded, known, problems)
        if other is recorded:
            steps = [step for step in steps if step not in compared]
        against = other.judged(compared)
        if not steps:
            raise ConfigurationError(f"--against {arguments.against}: this is the step itself; name another one")
    diagnosis = diagnose_run(
        recorded,
        steps,
        thresholds=thresholds,
        against=against,
        folder=str(arguments.folder),
        running=running_steps(recorded, recorded.steps()) if recorded.is_being_written() else (),
    )
    if arguments.json:
        print_json(orjson.dumps({"folder": str(arguments.folder), **_as_dict(diagnosis)}))
    else:
        from otel_rollout.look.terminal.findings_drawing import print_diagnosis, rewards_text
        from otel_rollout.look.terminal.screen import open_screen

        print_diagnosis(open_screen(), diagnosis, rewards_text(compared, steps))
    problems.note_attempts(recorded, arguments)
    problems.print()
    return 1 if diagnosis.findings else 0


def _thresholds(given: Sequence[tuple[str, float]]) -> dict[str, float]:
    known = default_thresholds()
    is_share = {check.name: check.threshold.is_share for check in CHECKS}
    for name, _ in given:
        if name not in known:
            hint = did_you_mean(name, known)
            listed = f" The checks are {', '.join(known)}" if hint else f"; the checks are {', '.join(known)}"
            raise ConfigurationError(f"--threshold: there is no check {name!r}{hint}{listed}")
    for name, value in given:
        if value > 1 and is_share[name]:
            raise ConfigurationError(f"--threshold {name}={value:g}: this is a share, from 0 to 1, such as {name}=0.05")
    return dict(given)


def _baseline(
    arguments: argparse.Namespace, run: Run, known: Sequence[StepSummary], problems: ProblemLog
) -> tuple[Run, Sequence[StepSummary]]:
    """Return the run and the steps to compare with: a step of this run, or of another, the same numbers if it has them.

    Args:
        arguments: The arguments.
        run: This run.
        known: Its steps.
        problems: Takes what can't be read.
    """
    with suppress(ValueError):
        step = int(arguments.against)
        if not (found := selected_steps(known, step)):
            raise NoTracesError(no_step_matches(arguments.folder, "--against", known))
        return run, found
    if Path(arguments.against).resolve() == arguments.folder.resolve():
        raise ConfigurationError(
            f"--against {arguments.against}: this is the folder itself; name another one, or a step"
        )
    try:
        other = Run([Path(arguments.against)], on_problem=problems.note, on_progress=show_progress)
        others = other.steps()
    except NoTracesError as error:
        raise NoTracesError(f"--against: {error}; name one step, or a trace folder") from None
    return other, selected_steps(others, arguments.step) or others


def _as_dict(diagnosis: Diagnosis) -> dict[str, object]:
    return {
        "steps": diagnosis.steps,
        "trajectories": diagnosis.trajectories,
        "looked_at": diagnosis.looked_at,
        "findings": diagnosis.findings,
        "gone": diagnosis.gone,
        "too_few": diagnosis.too_few,
        "failures": dict(diagnosis.failures),
        "blames": diagnosis.blames,
        "unknown_share": diagnosis.unknown_share,
        "thresholds": dict(diagnosis.thresholds),
    }
