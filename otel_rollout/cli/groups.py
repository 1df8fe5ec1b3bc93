"""The rollouts of a prompt, side by side, in each step and experiment that has them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import groupby
from typing import Any

from rich.console import Console
from rich.text import Text

from otel_rollout.catalog.grouping import split_runs
from otel_rollout.cli.reading import ProblemLog
from otel_rollout.cli.tables import all_groups_table, telling_digits
from otel_rollout.errors import UnreadableTraceError
from otel_rollout.facts.table import TrajectorySummary
from otel_rollout.folder.reader import RecordedTrajectory
from otel_rollout.folder.summaries import summaries_of
from otel_rollout.look.rollouts import answer_of, prompt_of
from otel_rollout.look.terminal.group_table import group_table
from otel_rollout.look.terminal.table import print_lines
from otel_rollout.text.plain_text import counted, printable, shorten, step_name

__all__ = ["print_groups"]


_Pairs = Iterable[tuple[RecordedTrajectory, TrajectorySummary]]


def print_groups(
    screen: Console,
    trajectories: Sequence[RecordedTrajectory],
    problems: ProblemLog,
    in_order: Callable[[_Pairs], _Pairs],
) -> bool:
    """Print each group: on a terminal below its prompt, elsewhere as rows of one table.

    Args:
        screen: The console.
        trajectories: In the order of `in_order_of_prompts`.
        problems: Notes the trajectories that can't be read; they are listed by their index entries.
        in_order: Puts the rollouts of a group, with their summaries, in the order of their rows.

    Returns:
        True if there is any group.
    """
    groups = [_rows(group, in_order) for group in _groups(trajectories)]
    if not screen.is_terminal:
        if groups:
            rows = ((group, summaries, _answers(group, problems)) for group, summaries in groups)
            print_lines(screen, all_groups_table(rows))
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
        digits = telling_digits([each.trace_id for each in group])
        print_lines(screen, group_table(summaries, answers, id_digits=digits))
    return bool(groups)


def _groups(trajectories: Sequence[RecordedTrajectory]) -> Iterator[Sequence[RecordedTrajectory]]:
    for _, group in groupby(trajectories, _key):
        yield from (run for _, run in split_runs(list(group)))


def _key(trajectory: RecordedTrajectory) -> tuple[Any, ...]:
    return (
        trajectory.step,
        trajectory.validate,
        str(trajectory.experiment_name),
        str(trajectory.sample_index),
    )


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
