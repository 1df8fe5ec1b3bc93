"""Steps and trajectories as tables."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import groupby
from typing import Any

from rich.table import Table
from rich.text import Text

from otel_rollout import semconv
from otel_rollout.cli.screen import STATUS_STYLES, plain_table
from otel_rollout.cli.wording import size, step_name
from otel_rollout.trace_folder.folder_stats import FolderStats
from otel_rollout.trace_folder.recorded_trajectory import RecordedTrajectory
from otel_rollout.trace_folder.step_summary import StepSummary
from otel_rollout.trace_tree import duration, printable, shorten

__all__ = ["in_order_of_prompts", "step_table", "totals_table", "trajectory_table"]

SHORT_ID = 8
MAX_SAMPLE_CHARACTERS = 24


def step_table(steps: Iterable[StepSummary]) -> Table:
    """Return a table with one row a step."""
    table = plain_table()
    for column in ("step", "trajectories", "prompts", "reward", "errors", "no root", "spans", "size", "on disk"):
        table.add_column(column, justify="right", no_wrap=True)
    for step in steps:
        table.add_row(
            step_name(step.step, validate=step.validate),
            f"{step.trajectories:,}",
            f"{step.samples:,}",
            "-" if step.mean_reward is None else f"{step.mean_reward:.3f}",
            Text(f"{step.errors:,}", style="red" if step.errors else ""),
            Text(f"{step.rootless:,}", style="yellow" if step.rootless else ""),
            f"{step.spans:,}",
            size(step.bytes),
            size(step.stored_bytes),
        )
    return table


def in_order_of_prompts(trajectories: Iterable[RecordedTrajectory]) -> list[RecordedTrajectory]:
    """Return trajectories in the order of step, prompt and rollout."""
    return sorted(
        trajectories,
        key=lambda each: (
            each.step is None,
            each.step or 0,
            each.validate,
            each.experiment_name or "",
            _sortable(each.sample_index),
            _sortable(each.rollout_n),
            each.start_time,
        ),
    )


def trajectory_table(trajectories: Sequence[RecordedTrajectory], *, is_terminal: bool) -> Table:
    """Return a table with one row a trajectory, the rollouts of a prompt one below the other.

    Args:
        trajectories: In the order of `in_order_of_prompts`.
        is_terminal: Whether people read it: then what repeats is left out, and trace ids are as short as they can be.
    """
    table = plain_table()
    for column in ("step", "sample", "rollout"):
        table.add_column(column, justify="right", no_wrap=True)
    table.add_column("status", no_wrap=True)
    for column in ("reward", "turns", "tokens", "duration", "spans", "size"):
        table.add_column(column, justify="right", no_wrap=True)
    table.add_column("trace", no_wrap=True)
    digits = _telling_digits([each.trace_id for each in trajectories]) if is_terminal else 32
    shown_step = None
    for group, rollouts in groupby(trajectories, lambda each: (_step(each), each.experiment_name, _sample(each))):
        for position, each in enumerate(rollouts):
            step, _, sample = group
            is_repeated = is_terminal and position > 0
            table.add_row(
                "" if is_terminal and step == shown_step else step,
                "" if is_repeated else sample,
                _text(each.rollout_n),
                _status(each),
                "-" if each.reward is None else f"{each.reward:.3g}",
                _text(each.attributes.get(semconv.TURNS)),
                _tokens(each),
                duration(each.end_time - each.start_time),
                f"{each.span_count:,}",
                size(each.size_bytes),
                each.trace_id[:digits],
            )
            shown_step = step
    return table


def totals_table(stats: FolderStats) -> Table:
    """Return a table of two columns: what is counted, and the count."""
    table = plain_table()
    table.show_header = False
    table.add_column(style="dim")
    table.add_column()
    ratio = f", {stats.disk_bytes / stats.bytes:.3f} of that" if stats.bytes else ""
    rows = [
        ("trajectories", f"{stats.trajectories:,}"),
        ("without a root", f"{stats.rootless:,}"),
        ("errors", f"{stats.errors:,}"),
        ("spans", f"{stats.spans:,}"),
        ("as OTLP JSON", size(stats.bytes)),
        ("on disk", f"{size(stats.disk_bytes)}{ratio}"),
        ("files", f"{stats.files:,}"),
        ("being written", f"{stats.files_being_written:,}"),
        ("written by", f"{stats.workers:,} {'process' if stats.workers == 1 else 'processes'}"),
        *((f"{what}s", f"{count:,}") for what, count in stats.problems.items()),
    ]
    for what, count in rows:
        table.add_row(what, count)
    return table


def _step(trajectory: RecordedTrajectory) -> str:
    return step_name(trajectory.step, validate=trajectory.validate)


def _sample(trajectory: RecordedTrajectory) -> str:
    return shorten(_text(trajectory.sample_index), MAX_SAMPLE_CHARACTERS)


def _status(trajectory: RecordedTrajectory) -> Text:
    if not trajectory.has_root:
        return Text("no root", style="yellow")
    status = trajectory.status or ("error" if trajectory.failed else "-")
    return Text(printable(status), style=STATUS_STYLES.get(status, ""))


def _tokens(trajectory: RecordedTrajectory) -> str:
    counts = [trajectory.attributes.get(key) for key in (semconv.INPUT_TOKENS, semconv.OUTPUT_TOKENS)]
    return "-" if counts == [None, None] else "→".join(_text(count) for count in counts)


def _text(value: Any) -> str:
    return "-" if value is None else printable(str(value))


def _sortable(value: int | str | None) -> tuple[int, int, str]:
    """Return what sorts numbers by value, before texts, before nothing."""
    if value is None:
        return 2, 0, ""
    return (0, value, "") if isinstance(value, int) else (1, 0, value)


def _telling_digits(trace_ids: Sequence[str]) -> int:
    """Return how many leading digits tell these ids apart."""
    digits = SHORT_ID
    while len({trace_id[:digits] for trace_id in trace_ids}) < len(set(trace_ids)):
        digits += 1
    return digits
