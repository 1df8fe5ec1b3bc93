"""What the demo shows at the end: one trajectory, its group, what was delivered, and where to look next."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from opentelemetry.sdk.trace import ReadableSpan
from rich.console import Console, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from otel_rollout import ExporterStats
from otel_rollout.demo.groups import group_table
from otel_rollout.demo.rollout import Trajectory
from otel_rollout.demo.waterfall import waterfall
from otel_rollout.wording import counted

__all__ = ["delivery_table", "print_delivery", "print_group", "print_trajectory", "print_where_next"]

WIDE = 100
"""Columns from which on a screen has room for everything."""


def print_trajectory(console: Console, trajectory: Trajectory, spans: Sequence[ReadableSpan]) -> None:
    """Print one trajectory as a tree of its spans.

    Args:
        console: Where to.
        trajectory: The trajectory.
        spans: Its spans; none where it was not traced.
    """
    _heading(
        console,
        "One trajectory",
        f"step {trajectory.step}, sample {trajectory.sample_index}, rollout {trajectory.rollout_n}",
    )
    if any(span.parent is None for span in spans):
        for line in waterfall(spans, bar_width=20 if console.width >= WIDE else 8):
            console.print(Text.assemble("  ", line), no_wrap=True, overflow="ellipsis")
    else:
        console.print("  It was not traced: tracing is off, or the sampler left it out.")


def print_group(console: Console, group: Sequence[Trajectory], question: str) -> None:
    """Print the rollouts of one prompt side by side.

    Args:
        console: Where to.
        group: The rollouts.
        question: The prompt.
    """
    _heading(console, "Its group", f"{counted(len(group), 'rollout')} of one prompt, one session in the backend")
    console.print(_indented(Text(question, style="italic")))
    console.print(_indented(group_table(group)))


def print_delivery(console: Console, counts: Mapping[str, ExporterStats], *, in_time: bool) -> bool:
    """Print what each exporter delivered, and say it plainly when something is missing.

    Args:
        console: Where to.
        counts: The counts of each exporter by its name.
        in_time: Whether the flush at the end came through.

    Returns:
        Whether everything was delivered.
    """
    _heading(console, "Delivery")
    if not counts:
        console.print("  Nothing was sent: tracing is off, or the application's own provider has the spans.")
    else:
        console.print(_indented(delivery_table(counts)))
    for name, exporter in counts.items():
        if exporter.queued:
            _complain(console, f"{name} did not take {exporter.queued:,} spans in time.", exporter.last_trouble)
        if exporter.lost:
            reasons = ", ".join(f"{number:,} {reason}" for reason, number in exporter.lost.items())
            _complain(console, f"{name} lost spans: {reasons}.", exporter.last_trouble)
        for kind, work in exporter.side_work.items():
            if work.waiting or work.lost:
                count = work.waiting + sum(work.lost.values())
                _complain(console, f"{name} has the spans, but not {count:,} {kind}.", "")
    return in_time and not any(exporter.queued or exporter.lost for exporter in counts.values())


def print_where_next(console: Console, lines: Sequence[str]) -> None:
    """Print where to look next."""
    _heading(console, "Where to look next")
    for line in lines:
        style = "cyan" if line.startswith("    ") else ""
        # Commands are copied: a line break inside one would break it.
        console.print(Text(f"  {line}" if line else "", style=style), soft_wrap=True)


def delivery_table(counts: Mapping[str, ExporterStats]) -> Table:
    """Return a table with one row an exporter."""
    table = Table(box=None, pad_edge=False, header_style="dim")
    table.add_column("backend")
    for column in ("spans", "delivered", "waiting", "lost"):
        table.add_column(column, justify="right")
    for name, exporter in counts.items():
        lost = sum(exporter.lost.values())
        table.add_row(
            name,
            f"{exporter.recorded:,}",
            f"{exporter.delivered:,}",
            Text(f"{exporter.queued:,}", style="red" if exporter.queued else ""),
            Text(f"{lost:,}", style="red" if lost else ""),
        )
    return table


def _heading(console: Console, title: str, rest: str = "") -> None:
    console.print()
    console.print(Text.assemble((title, "bold"), (f"  {rest}" if rest else "", "dim")))


def _indented(content: RenderableType) -> Padding:
    return Padding(content, (0, 0, 0, 2), expand=False)


def _complain(console: Console, what: str, why: str) -> None:
    console.print(Text(f"  NOT DELIVERED  {what}", style="bold red"), soft_wrap=True)
    if why:
        console.print(Text(f"  Last trouble: {why}"), soft_wrap=True)
