"""Steps and trajectories as tables."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import groupby
from typing import Any, Final

from rich.table import Table
from rich.text import Text

from otel_rollout import semconv
from otel_rollout.analysis.plain_text import duration, printable, shorten, size, step_name
from otel_rollout.analysis.trace_tree import STATUS_STYLES
from otel_rollout.terminal.screen import plain_table
from otel_rollout.trace_folder.folder_stats import FolderStats, StepSummary
from otel_rollout.trace_folder.reader import RecordedTrajectory

__all__ = ["step_table", "totals_table", "trajectory_table"]

WIDE: Final = 100
"""From this many columns of a terminal on, there is room for all columns of a table."""
FULL_ID: Final = 32
SHORT_ID: Final = 8


def step_table(steps: Iterable[StepSummary]) -> Table:
    """Return a table with one row a step."""
    table = plain_table("step", "trajectories", "prompts", "reward", "errors", "no root", "spans", "size", "on disk")
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


def trajectory_table(trajectories: Sequence[RecordedTrajectory], *, width: int | None) -> Table:
    """Return a table with one row a trajectory, the rollouts of a prompt one below the other.

    Args:
        trajectories: In the order of `in_order_of_prompts`.
        width: Columns of the terminal: repeated tags are left out, trace ids are cut as short as they stay unique,
            and a narrow terminal gets fewer columns. None for programs: every row has everything.
    """
    is_narrow = width is not None and width < WIDE
    digits = _telling_digits([each.trace_id for each in trajectories]) if width else FULL_ID
    rows: list[dict[str, str | Text]] = []
    for (step, _, sample), rollouts in groupby(
        trajectories,
        lambda each: (step_name(each.step, validate=each.validate), each.experiment_name, _text(each.sample_index)),
    ):
        for position, each in enumerate(rollouts):
            rows.append(
                {
                    "step": step,
                    "sample": "" if width and position > 0 else _shortened(sample, width),
                    "rollout": _text(each.rollout_n),
                    "status": _status(each),
                    "reward": "-" if each.reward is None else f"{each.reward:.3g}",
                    "turns": _text(each.attributes.get(semconv.TURNS)),
                    "tokens": _tokens(each),
                    "duration": duration(each.end_time - each.start_time),
                    "spans": f"{each.span_count:,}",
                    "size": size(each.size_bytes),
                    "trace": each.trace_id[:digits],
                }
            )
    hidden: set[str] = set()
    if width:
        hidden = {"step"} if len({row["step"] for row in rows}) == 1 else set()
        hidden |= {"spans", "size"} if is_narrow else set()
    shown = [column for column in (rows[0] if rows else ()) if column not in hidden]
    table = plain_table(*shown)
    for column in table.columns:
        column.justify = "left" if column.header in ("status", "trace") else "right"
    for row in rows:
        table.add_row(*map(row.__getitem__, shown))
    return table


def totals_table(stats: FolderStats) -> Table:
    """Return a table with a label and a count in each row."""
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


def _shortened(sample: str, width: int | None) -> str:
    return sample if width is None else shorten(sample, 12 if width < WIDE else 36)


def _status(trajectory: RecordedTrajectory) -> Text:
    if not trajectory.has_root:
        return Text("no root", style="yellow")
    status = trajectory.status or ("error" if trajectory.failed else "-")
    return Text(printable(str(status)), style=STATUS_STYLES.get(status, ""))


def _tokens(trajectory: RecordedTrajectory) -> str:
    counts = [trajectory.attributes.get(key) for key in (semconv.INPUT_TOKENS, semconv.OUTPUT_TOKENS)]
    return "-" if counts == [None, None] else "→".join(_text(count) for count in counts)


def _text(value: Any) -> str:
    return "-" if value is None else printable(str(value))


def _telling_digits(trace_ids: Sequence[str]) -> int:
    """Return the number of leading digits that tell these ids apart."""
    digits = SHORT_ID
    while len({trace_id[:digits] for trace_id in trace_ids}) < len(set(trace_ids)):
        digits += 1
    return digits
