"""Steps and trajectories as tables."""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import groupby
from typing import Any, Final

from rich.console import Console
from rich.text import Text

from otel_rollout import semconv
from otel_rollout.catalog import summaries_of
from otel_rollout.catalog.grouping import StepKey, step_key
from otel_rollout.catalog.step_summary import StepSummary
from otel_rollout.cli.reading import SHORT_ID, ProblemLog, distinct_digits
from otel_rollout.errors import UnreadableTraceError
from otel_rollout.facts.table import TrajectorySummary
from otel_rollout.folder.reader import RecordedTrajectory
from otel_rollout.look.terminal.group_table import (
    COLUMNS,
    answer_of,
    group_cells,
    group_table,
    prompt_of,
    status_cell,
    token_counts,
)
from otel_rollout.look.terminal.table import Cell, Column, Table, print_lines
from otel_rollout.text.plain_text import counted, duration, plural, printable, shorten, size, step_name

FULL_ID: Final = 32
LONGEST: Final = 1_000_000
EXPERIMENT: Final = Column("experiment", is_text=True, rank=2, narrowest=12, keeps_end=True)
RUN: Final = Column("run", is_text=True, rank=1)
NARROW_TEXT: Final = 12
MAX_STEP: Final = 20

_Pairs = Iterable[tuple[RecordedTrajectory, TrajectorySummary]]


def step_table(steps: Iterable[StepSummary], *, is_terminal: bool, is_by_experiment: bool = True) -> Table:
    """Return a table with a row for each step of each experiment.

    Args:
        steps: The steps.
        is_terminal: Leave out what is the same in each row, or 0; programs get the same columns always.
        is_by_experiment: Put the steps of an experiment together on a terminal.
    """
    rows = list(steps)
    if is_terminal and is_by_experiment:
        rows.sort(key=lambda each: str(each.experiment_name or ""))
    table = Table(
        [
            Column("step"),
            Column("trajectories", rank=3),
            Column("prompts", rank=5),
            Column("reward"),
            Column("errors"),
            Column("truncated", rank=4),
            Column("cancelled", rank=4),
            Column("no root", rank=2),
            Column("no signal", rank=2),
            Column("p99", rank=6),
            Column("spans", rank=7),
            Column("redacted", rank=7),
            Column("size", rank=8),
            Column("on disk", rank=9),
            EXPERIMENT._replace(rank=1),
            RUN,
            Column("attempt", rank=3),
        ]
    )
    before = None
    for step in rows:
        experiment = _text(step.experiment_name)
        run_id = _text(step.run_id)
        is_again = is_terminal and (experiment, run_id) == before
        before = (experiment, run_id)
        table.add_row(
            step_name(step.step, validate=step.validate),
            f"{step.trajectories:,}",
            f"{step.groups:,}",
            "-" if step.reward_mean is None else f"{step.reward_mean:.3f}",
            _flagged(step.errors, "red"),
            _flagged(step.truncated, "yellow"),
            _flagged(step.cancelled, "yellow"),
            _flagged(step.rootless, "yellow"),
            _share(sum(step.zero_variance.values()), step.comparable_groups),
            "-" if step.seconds is None else duration(round(step.seconds.p99 * 1e9)),
            f"{step.spans:,}",
            f"{step.redacted:,}",
            size(step.bytes),
            size(step.stored_bytes),
            "" if is_again else experiment,
            "" if is_again else run_id[:SHORT_ID],
            _text(step.attempt),
        )
    if is_terminal:
        table.leave_out(
            *(["experiment"] if len({each.experiment_name for each in rows}) < 2 else []),
            *(["run"] if len({each.run_id for each in rows}) < 2 else []),
            *(["attempt"] if not any(each.attempt for each in rows) else []),
            *(["truncated"] if not any(each.truncated for each in rows) else []),
            *(["cancelled"] if not any(each.cancelled for each in rows) else []),
            *(["redacted"] if not any(each.redacted for each in rows) else []),
        )
    return table


def trajectory_table(
    trajectories: Sequence[tuple[RecordedTrajectory, TrajectorySummary]],
    *,
    is_terminal: bool,
    is_by_prompt: bool = True,
) -> Table:
    """Return a table with one row a trajectory, the rollouts of a prompt one below the other.

    Args:
        trajectories: Trajectories with their summaries.
        is_by_prompt: They are in the order of `in_order_of_prompts`.
        is_terminal: Leave out what repeats the row above or is the same in each row, and cut trace ids as short as they
            stay unique; programs get the same columns always, and whole trace ids.
    """
    digits = distinct_digits([each.trace_id for each, _ in trajectories]) if is_terminal else FULL_ID
    # Traces of programs without rollouts.
    are_foreign = all(each.sample_index is None for each, _ in trajectories)
    table = Table(
        [
            Column("step", rank=1),
            *(
                (Column("service", is_text=True), Column("name", is_text=True))
                if are_foreign
                else (Column("sample", narrowest=NARROW_TEXT, keeps_end=True), Column("rollout"))
            ),
            Column("status", is_text=True),
            Column("reward"),
            Column("turns", rank=5),
            Column("tokens", rank=6),
            Column("duration", rank=4),
            Column("spans", rank=8),
            Column("redacted", rank=8),
            Column("size", rank=9),
            EXPERIMENT,
            RUN._replace(rank=7),
            Column("trace", is_text=True, rank=3),
        ]
    )
    for (step, experiment, sample), rollouts in groupby(
        trajectories,
        lambda pair: (
            _step(pair[0]),
            pair[0].experiment_name,
            _text(pair[0].sample_index),
        ),
    ):
        for position, (each, summary) in enumerate(rollouts):
            is_again = is_terminal and is_by_prompt and position > 0
            table.add_row(
                step,
                *(
                    (_text(summary.service_name), _text(each.name))
                    if are_foreign
                    else ("" if is_again else sample, _text(each.rollout_n))
                ),
                status_cell(each.status or summary.status, has_root=summary.has_root),
                "-" if summary.reward is None else f"{summary.reward:.3g}",
                _text(summary.turns),
                token_counts(summary.input_tokens, summary.output_tokens),
                duration(summary.end_time - summary.start_time),
                f"{summary.spans:,}",
                f"{summary.redacted:,}",
                size(summary.bytes),
                _text(experiment),
                _text(each.run_id)[:SHORT_ID],
                each.trace_id[:digits],
            )
    if is_terminal:
        table.leave_out(
            "run",
            *(["redacted"] if not any(summary.redacted for _, summary in trajectories) else []),
            *(["step"] if len({row[0].text for row in table.rows}) < 2 else []),
            *(["experiment"] if len({each.experiment_name for each, _ in trajectories}) < 2 else []),
        )
    return table


def _all_groups_table(
    groups: Iterable[tuple[Sequence[RecordedTrajectory], Sequence[TrajectorySummary], Sequence[str]]],
) -> Table:
    """Return a table for programs, with one row a rollout and whole answers.

    Args:
        groups: The rollouts of each prompt, with their summaries and answers.
    """
    tags = ("step", "sample", *(column.name for column in COLUMNS), "experiment", "run", "trace")
    table = Table([Column(name, is_text=name in ("status", "answer", "experiment", "run", "trace")) for name in tags])
    for group, summaries, answers in groups:
        first = group[0]
        step, sample = step_name(first.step, validate=first.validate), _text(first.sample_index)
        names = _text(first.experiment_name), _text(first.run_id)[:SHORT_ID]
        for each, cells in zip(group, group_cells(summaries, answers, LONGEST), strict=True):
            table.add_row(step, sample, *cells, *names, each.trace_id)
    return table


def totals_table(totals: Mapping[str, Any], *, has_files: bool = True) -> Table:
    """Return a table with a label and a count in each row.

    Args:
        totals: The counts by name.
        has_files: Count the folder's files too; False if the other counts are of a part of what they hold.
    """
    table = Table([Column("", is_text=True), Column("", is_text=True)], has_header=False)
    ratio = f", {totals['disk_bytes'] / totals['bytes']:.3f} of that" if totals["bytes"] else ""
    workers = totals["workers"]
    rows = [
        ("trajectories", f"{totals['trajectories']:,}"),
        ("without a root", f"{totals['rootless']:,}"),
        ("errors", f"{totals['errors']:,}"),
        ("spans", f"{totals['spans']:,}"),
        *([("secrets replaced", f"{totals['redacted']:,}")] if totals["redacted"] else []),
        ("as OTLP", size(totals["bytes"])),
    ]
    if has_files:
        rows += [
            ("on disk", f"{size(totals['disk_bytes'])}{ratio}"),
            ("files", f"{totals['files']:,}"),
            ("being written", f"{totals['files_being_written']:,}"),
            ("written by", f"{workers:,} {'process' if workers == 1 else 'processes'}"),
        ]
    rows += [(plural(what), f"{count:,}") for what, count in totals["problems"].items()]
    for what, count in rows:
        table.add_row(Cell(what, "dim"), count)
    return table


def _step(trajectory: RecordedTrajectory) -> str:
    """Return a trajectory's step; if its trainer gave a text, `none: text`, as it is listed without a step."""
    name = step_name(trajectory.step, validate=trajectory.validate)
    if trajectory.step is not None:
        return name
    given = None
    with suppress(UnreadableTraceError):
        given = trajectory.attributes.get(semconv.STEP)
    return name if given is None else f"{name}: {printable(shorten(str(given), MAX_STEP))}"


def _flagged(count: int, style: str) -> Cell:
    return Cell(f"{count:,}", style if count else "")


def _share(count: int, total: int) -> str:
    return f"{count / total:.0%}" if total else "-"


def _text(value: Any) -> str:
    return "-" if value is None else printable(str(value))


def print_groups(
    screen: Console,
    trajectories: Sequence[RecordedTrajectory],
    problems: ProblemLog,
    in_order: Callable[[_Pairs], _Pairs],
    split: Container[StepKey] = (),
) -> bool:
    """Print each group: on a terminal below its prompt, elsewhere as rows of one table.

    Args:
        screen: The console.
        trajectories: In the order of `in_order_of_prompts`.
        problems: Notes the trajectories that can't be read; they are listed by their index entries.
        in_order: Puts the rollouts of a group, with their summaries, in the order of their rows.
        split: The steps whose runs are distinguished.

    Returns:
        True if there is any group.
    """
    groups = [_rows(group, in_order) for group in _groups(trajectories, split)]
    if not screen.is_terminal:
        if groups:
            rows = ((group, summaries, _answers(group, problems)) for group, summaries in groups)
            print_lines(screen, _all_groups_table(rows))
        return bool(groups)
    has_experiments = len({each.experiment_name for each in trajectories}) > 1
    has_runs = len(groups) > len({_key(group[0]) for group, _ in groups})
    for position, (group, summaries) in enumerate(groups):
        if position:
            screen.print()
        first = group[0]
        named = [f"step {step_name(first.step, validate=first.validate)}", f"sample {first.sample_index}"]
        named += [str(first.experiment_name)] if has_experiments else []
        named += [f"run {str(first.run_id)[:8]}"] if has_runs else []
        rest = f"  {counted(len(group), 'rollout')} of one prompt"
        screen.print(Text.assemble((printable("  ".join(named)), "bold"), (rest, "dim")), soft_wrap=True)
        answers = _answers(group, problems)
        if prompt := _prompt(group):
            line = printable(shorten(prompt, 3 * screen.width))
            screen.print(Text(line, style="italic"))
        digits = distinct_digits([each.trace_id for each in group])
        print_lines(screen, group_table(summaries, answers, id_digits=digits))
    return bool(groups)


def _groups(
    trajectories: Sequence[RecordedTrajectory], split: Container[StepKey]
) -> Iterator[Sequence[RecordedTrajectory]]:
    """Yield the rollouts of each prompt, of trajectories in the order of prompts."""
    for _, step in groupby(trajectories, step_key):
        groups: dict[tuple[str | None, str], list[RecordedTrajectory]] = {}
        for each in step:
            run = each.run_id if step_key(each) in split else None
            groups.setdefault((run, str(each.sample_index)), []).append(each)
        yield from groups.values()


def _key(trajectory: RecordedTrajectory) -> tuple[Any, ...]:
    return *step_key(trajectory), str(trajectory.sample_index)


def _rows(
    group: Sequence[RecordedTrajectory], in_order: Callable[[_Pairs], _Pairs]
) -> tuple[list[RecordedTrajectory], list[TrajectorySummary]]:
    """Return the rollouts of a group and their summaries, in the order of the rows."""
    pairs = list(in_order(zip(group, summaries_of(group), strict=True)))
    return [each for each, _ in pairs], [summary for _, summary in pairs]


def _answers(group: Sequence[RecordedTrajectory], problems: ProblemLog) -> list[str]:
    return [_answer(each, problems) for each in group]


def _answer(trajectory: RecordedTrajectory, problems: ProblemLog) -> str:
    try:
        return answer_of(trajectory.spans)
    except UnreadableTraceError as error:
        problems.complain(str(error))
        return ""


def _prompt(group: Sequence[RecordedTrajectory]) -> str:
    for each in group:
        try:
            spans = each.spans
        except UnreadableTraceError:
            continue
        if prompt := prompt_of(spans):
            return prompt
    return ""
