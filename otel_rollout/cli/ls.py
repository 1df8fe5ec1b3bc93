"""`otel-rollout ls`: list the steps of a trace folder, the trajectories of a step, or the rollouts of a prompt."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, suppress
from dataclasses import replace
from functools import partial
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar

# Their names are imported at first use: the help needs none of them.
from otel_rollout import catalog, facts, folder
from otel_rollout.catalog.grouping import sortable, step_key
from otel_rollout.cli.messages import complain
from otel_rollout.cli.options import READ, add_filters, add_folder, exit_codes
from otel_rollout.cli.reading import (
    ProblemLog,
    filters_of,
    in_order_of_prompts,
    nothing_matches,
    print_json,
    require_reader,
    selected,
    show_progress,
)
from otel_rollout.errors import ConfigurationError, UnreadableTraceError
from otel_rollout.text.near_miss import did_you_mean
from otel_rollout.text.plain_text import counted

if TYPE_CHECKING:
    from otel_rollout.catalog.grouping import StepKey
    from otel_rollout.catalog.step_summary import StepSummary
    from otel_rollout.facts.shapes import SpanShape
    from otel_rollout.facts.table import TrajectorySummary
    from otel_rollout.folder.losses import LostSpans
    from otel_rollout.folder.reader import RecordedTrajectory

_Row = TypeVar("_Row")

_STEP_COLUMNS: Final[Mapping[str, Callable[[StepSummary], Any]]] = {
    "step": lambda step: step.step,
    "trajectories": lambda step: step.trajectories,
    "prompts": lambda step: step.groups,
    "reward": lambda step: step.reward_mean,
    "errors": lambda step: step.errors,
    "truncated": lambda step: step.truncated,
    "cancelled": lambda step: step.cancelled,
    "no-root": lambda step: step.rootless,
    "no-signal": lambda step: (
        sum(step.zero_variance.values()) / step.comparable_groups if step.comparable_groups else None
    ),
    "p99": lambda step: step.seconds and step.seconds.p99,
    "spans": lambda step: step.spans,
    "redacted": lambda step: step.redacted,
    "size": lambda step: step.bytes,
    "on-disk": lambda step: step.stored_bytes,
    "experiment": lambda step: step.experiment_name,
    "run": lambda step: step.run_id,
    "attempt": lambda step: step.attempt,
}
"""The columns of the steps, by the names of the table with `-` for a space."""

_TRAJECTORY_COLUMNS: Final[Mapping[str, Callable[[TrajectorySummary], Any]]] = {
    "step": lambda each: each.step,
    "sample": lambda each: each.sample_index,
    "rollout": lambda each: each.rollout_n,
    "status": lambda each: each.status,
    "reward": lambda each: each.reward,
    "turns": lambda each: each.turns,
    "tokens": lambda each: each.output_tokens,
    "duration": lambda each: each.end_time - each.start_time,
    "spans": lambda each: each.spans,
    "redacted": lambda each: each.redacted,
    "size": lambda each: each.bytes,
    "experiment": lambda each: each.experiment_name,
    "run": lambda each: each.run_id,
    "trace": lambda each: each.trace_id,
    "start": lambda each: each.start_time,
}
"""The columns of the trajectories, and when each started; tokens are those that were generated."""


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the description and the options of the command."""
    parser.description = """\
List a trace folder by experiment and training step; with --step, the
trajectories of that step; with --sample, the rollouts of a prompt side by side,
with their answers, rewards and advantages.
"""
    parser.epilog = exit_codes("shown, also if nothing matches")
    add_folder(parser, READ)
    add_filters(parser)
    parser.add_argument("--sort", metavar="COLUMN", help="sort the rows by a column, such as reward or duration")
    parser.add_argument("--reverse", action="store_true", help="with --sort: the highest first")
    forms = parser.add_mutually_exclusive_group()
    forms.add_argument("--json", action="store_true", help="a JSON object on a line of its own for each row")
    forms.add_argument(
        "--perfetto",
        metavar="FILE",
        type=Path,
        help="write when each span ran into FILE, for ui.perfetto.dev and chrome://tracing",
    )


def run(arguments: argparse.Namespace) -> int:
    """Run the command and return its exit code."""
    problems = ProblemLog()
    if arguments.perfetto is not None:
        if not _write_timeline(selected(arguments, problems), arguments.perfetto):
            complain(nothing_matches(arguments))
        problems.print()
        return 0
    if arguments.reverse and arguments.sort is None:
        raise ConfigurationError("--reverse is for --sort: name a column, such as --sort reward")
    is_by_step = arguments.step is None and arguments.sample_index is None
    if arguments.json:
        if is_by_step:
            for step in _steps(arguments, problems):
                print_json(facts.to_json(step))
        else:
            trajectories = list(selected(arguments, problems, has_inferred=True))
            for each, summary in _sorted(arguments, zip(trajectories, catalog.summaries_of(trajectories), strict=True)):
                print_json(facts.to_json(_as_dict(each, summary)))
    else:
        _print_tables(arguments, problems, is_by_step=is_by_step)
    problems.print()
    return 0


def _print_tables(arguments: argparse.Namespace, problems: ProblemLog, *, is_by_step: bool) -> None:
    require_reader()
    from otel_rollout.cli.tables import print_groups, step_table, trajectory_table
    from otel_rollout.look.terminal.screen import open_screen
    from otel_rollout.look.terminal.table import print_lines

    screen = open_screen()
    if arguments.sample_index is not None:
        trajectories = in_order_of_prompts(selected(arguments, problems))
        split = _split_steps(arguments, trajectories)
        has_any = print_groups(screen, trajectories, problems, partial(_sorted, arguments), split)
        if note := _note_of_mixed_runs(trajectories, split):
            complain(note)
    else:
        if is_by_step:
            steps = _steps(arguments, problems)
            table = step_table(steps, is_terminal=screen.is_terminal, is_by_experiment=arguments.sort is None)
        else:
            trajectories = in_order_of_prompts(selected(arguments, problems))
            pairs = _sorted(arguments, zip(trajectories, catalog.summaries_of(trajectories), strict=True))
            table = trajectory_table(list(pairs), is_terminal=screen.is_terminal, is_by_prompt=arguments.sort is None)
        has_any = bool(table.rows)
        if has_any:
            print_lines(screen, table)
    if not has_any:
        complain(nothing_matches(arguments))
    if lost := folder.describe_losses(_losses(arguments)):
        complain(lost)


def _losses(arguments: argparse.Namespace) -> list[LostSpans]:
    """Return the spans that the folder lacks, of the steps that are listed."""
    steps = {arguments.step} if isinstance(arguments.step, int) else arguments.step
    return [each for each in folder.read_losses([arguments.folder]) if steps is None or each.loss.step in steps]


def _split_steps(arguments: argparse.Namespace, trajectories: Sequence[RecordedTrajectory]) -> Container[StepKey]:
    """Return the steps whose runs are distinguished; the filters may hide the rollouts by which they are."""
    if len({each.run_id for each in trajectories}) < 2:
        return ()
    steps = catalog.Run([arguments.folder]).steps({each.step for each in trajectories})
    return {each.identity[:3] for each in steps if each.run_id is not None}


def _note_of_mixed_runs(trajectories: Iterable[RecordedTrajectory], split: Container[StepKey]) -> str:
    """Return a line about prompts whose rollouts may be of several runs; empty if they are of one."""
    runs: dict[tuple[StepKey, str], set[str | None]] = {}
    for each in trajectories:
        if each.rollout_n is None and each.sample_index is not None and step_key(each) not in split:
            runs.setdefault((step_key(each), str(each.sample_index)), set()).add(each.run_id)
    most = max(map(len, runs.values()), default=0)
    if most < 2:
        return ""
    return (
        f"rollouts of one prompt, without rollout_n, are of {most:,} run ids, so advantages may be over several runs: "
        "--run takes one; give each rollout its rollout_n, or all processes of a run one OTEL_ROLLOUT_RUN_ID"
    )


def _sorted(
    arguments: argparse.Namespace, pairs: Iterable[tuple[RecordedTrajectory, TrajectorySummary]]
) -> Iterable[tuple[RecordedTrajectory, TrajectorySummary]]:
    """Return trajectories with their summaries in the order of `--sort`."""
    if arguments.sort is None:
        return pairs
    columns = {name: _of_summary(value_of) for name, value_of in _TRAJECTORY_COLUMNS.items()}
    return _sort_rows(pairs, columns, arguments.sort, is_descending=arguments.reverse)


def _of_summary(
    value_of: Callable[[TrajectorySummary], Any],
) -> Callable[[tuple[RecordedTrajectory, TrajectorySummary]], Any]:
    return lambda pair: value_of(pair[1])


def _steps(arguments: argparse.Namespace, problems: ProblemLog) -> Iterable[StepSummary]:
    """Return the steps in the order of `--sort`; with filters, steps of the trajectories that pass them."""
    steps = _known_steps(arguments, problems)
    if arguments.sort is None:
        return steps
    return _sort_rows(steps, _STEP_COLUMNS, arguments.sort, is_descending=arguments.reverse)


def _known_steps(arguments: argparse.Namespace, problems: ProblemLog) -> Iterator[StepSummary]:
    if not any(value is not None for value in (arguments.attempt, *filters_of(arguments).values())):
        everything = catalog.Run([arguments.folder], problems.note, show_progress)
        if arguments.json:
            everything.infer()
        yield from everything.steps()
        problems.note_attempts(everything, arguments)
        return
    # The scale is the same with and without filters.
    known = catalog.Run([arguments.folder]).steps()
    scales = {(each.experiment_name, each.validate): each.scale for each in known}
    chosen = selected(arguments, problems, has_inferred=arguments.json)
    for _, step in groupby(chosen, lambda each: (each.step, each.validate)):
        with closing(catalog.catalog_of(catalog.summaries_of(step), scales)) as connection:
            for each in catalog.steps(connection):
                yield each if arguments.attempt is None else replace(each, attempt=arguments.attempt)


def _as_dict(trajectory: RecordedTrajectory, summary: TrajectorySummary) -> dict[str, Any]:
    attributes: Mapping[str, Any] = {}
    with suppress(UnreadableTraceError):
        attributes = trajectory.attributes
    return {**facts.shown_of(summary), "attributes": attributes}


def _sort_rows(
    rows: Iterable[_Row], columns: Mapping[str, Callable[[_Row], Any]], name: str, *, is_descending: bool
) -> list[_Row]:
    """Return rows in the order of a column; rows that have no value there come last.

    Args:
        rows: The rows; those with the same value keep their order.
        columns: The value of a row by the name of a column.
        name: The column.
        is_descending: The highest value comes first.

    Raises:
        ConfigurationError: There is no such column; the message lists them.
    """
    value_of = columns.get(name.lower().replace(" ", "-"))
    if value_of is None:
        hint = did_you_mean(name, columns) or f"; there are {', '.join(columns)}"
        raise ConfigurationError(f"--sort {name}: there is no such column{hint}")
    known, unknown = list[_Row](), list[_Row]()
    for row in rows:
        (unknown if value_of(row) is None else known).append(row)
    return sorted(known, key=lambda row: sortable(value_of(row)), reverse=is_descending) + unknown


def _write_timeline(trajectories: Iterable[RecordedTrajectory], path: Path) -> int:
    """Write the file, and return the number of trajectories in it.

    Args:
        trajectories: The trajectories; one that can't be read has no spans there.
        path: The file, which is replaced.

    Raises:
        ConfigurationError: It can't be written.
    """
    import orjson

    from otel_rollout.look.perfetto import trace_events

    found = list(trajectories)
    if not found:
        return 0
    pairs = zip(catalog.summaries_of(found), (partial(_shapes_of, each) for each in found), strict=True)
    try:
        with path.open("wb") as file:
            file.write(b'{"displayTimeUnit":"ms","traceEvents":[\n')
            for position, event in enumerate(trace_events(pairs)):
                file.write((b",\n" if position else b"") + orjson.dumps(event))
            file.write(b"\n]}\n")
    except OSError as error:
        raise ConfigurationError(f"--perfetto {path}: the file can't be written: {error.strerror or error}") from error
    print(
        f"{path}: {counted(len(found), 'trajectory')}; open it in https://ui.perfetto.dev or chrome://tracing",
        file=sys.stderr,
    )
    return len(found)


def _shapes_of(trajectory: RecordedTrajectory) -> Sequence[SpanShape]:
    try:
        return trajectory.shapes
    except UnreadableTraceError:
        return ()
