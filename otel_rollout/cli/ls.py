"""`otel-rollout ls`: list the steps of a trace folder, the trajectories of a step, or the rollouts of a prompt."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterable, Iterator
from dataclasses import fields
from functools import partial
from itertools import groupby
from typing import Any

from otel_rollout.catalog import Run, summarise_runs, to_json
from otel_rollout.catalog.step_summary import StepSummary
from otel_rollout.cli.messages import complain
from otel_rollout.cli.reading import (
    ProblemLog,
    filters_of,
    in_order_of_prompts,
    nothing_matches,
    print_json,
    require_reader,
    selected,
)
from otel_rollout.cli.sorting import STEP_COLUMNS, TRAJECTORY_COLUMNS, sort_rows
from otel_rollout.errors import ConfigurationError
from otel_rollout.facts.table import TrajectorySummary
from otel_rollout.folder.reader import RecordedTrajectory
from otel_rollout.folder.summaries import listed_summaries_of, summaries_of
from otel_rollout.guard.garbage_collection import collect_rarely

__all__ = ["run"]

_LEFT_OUT = ("shape", "provenance")
"""The fields of a summary that only pages draw."""


def run(arguments: argparse.Namespace) -> int:
    """Run the command and return its exit code."""
    collect_rarely()
    problems = ProblemLog()
    if arguments.perfetto is not None:
        from otel_rollout.cli.timeline_file import write_timeline

        if not write_timeline(selected(arguments, problems), arguments.perfetto):
            complain(nothing_matches(arguments))
        problems.print()
        return 0
    if arguments.reverse and arguments.sort is None:
        raise ConfigurationError("--reverse is for --sort: name a column, such as --sort reward")
    is_by_step = arguments.step is None and arguments.sample_index is None
    if arguments.json:
        if is_by_step:
            for step in _steps(arguments, problems):
                print_json(to_json(step))
        else:
            trajectories = list(selected(arguments, problems))
            for each, summary in _sorted(arguments, zip(trajectories, summaries_of(trajectories), strict=True)):
                print_json(to_json(_as_dict(each, summary)))
    else:
        _print_tables(arguments, problems, is_by_step=is_by_step)
    problems.print()
    return 0


def _print_tables(arguments: argparse.Namespace, problems: ProblemLog, *, is_by_step: bool) -> None:
    require_reader()
    from otel_rollout.cli.groups import print_groups
    from otel_rollout.cli.tables import step_table, trajectory_table
    from otel_rollout.look.terminal.screen import open_screen
    from otel_rollout.look.terminal.table import print_lines

    screen = open_screen()
    if arguments.sample_index is not None:
        trajectories = in_order_of_prompts(selected(arguments, problems))
        has_any = print_groups(screen, trajectories, problems, partial(_sorted, arguments))
    else:
        if is_by_step:
            steps = _steps(arguments, problems)
            table = step_table(steps, is_terminal=screen.is_terminal, is_by_experiment=arguments.sort is None)
        else:
            trajectories = in_order_of_prompts(selected(arguments, problems))
            pairs = _sorted(arguments, zip(trajectories, listed_summaries_of(trajectories), strict=True))
            table = trajectory_table(list(pairs), is_terminal=screen.is_terminal, is_by_prompt=arguments.sort is None)
        has_any = bool(table.rows)
        if has_any:
            print_lines(screen, table)
    if not has_any:
        complain(nothing_matches(arguments))


def _sorted(
    arguments: argparse.Namespace, pairs: Iterable[tuple[RecordedTrajectory, TrajectorySummary]]
) -> Iterable[tuple[RecordedTrajectory, TrajectorySummary]]:
    """Return trajectories with their summaries in the order of `--sort`."""
    if arguments.sort is None:
        return pairs
    columns = {name: _of_summary(value_of) for name, value_of in TRAJECTORY_COLUMNS.items()}
    return sort_rows(pairs, columns, arguments.sort, is_descending=arguments.reverse)


def _of_summary(
    value_of: Callable[[TrajectorySummary], Any],
) -> Callable[[tuple[RecordedTrajectory, TrajectorySummary]], Any]:
    return lambda pair: value_of(pair[1])


def _steps(arguments: argparse.Namespace, problems: ProblemLog) -> Iterable[StepSummary]:
    """Return the steps in the order of `--sort`; with filters, those of what they let through."""
    steps = _known_steps(arguments, problems)
    if arguments.sort is None:
        return steps
    return sort_rows(steps, STEP_COLUMNS, arguments.sort, is_descending=arguments.reverse)


def _known_steps(arguments: argparse.Namespace, problems: ProblemLog) -> Iterator[StepSummary]:
    if not any(value is not None for value in filters_of(arguments).values()):
        yield from Run([arguments.folder], problems.note).steps()
        return
    for _, step in groupby(selected(arguments, problems), lambda each: (each.step, each.validate)):
        for run in summarise_runs(summaries_of(step)):
            yield run.summary


def _as_dict(trajectory: RecordedTrajectory, summary: TrajectorySummary) -> dict[str, Any]:
    row = {each.name: getattr(summary, each.name) for each in fields(summary) if each.name not in _LEFT_OUT}
    return {**row, "attributes": dict(trajectory.attributes)}
