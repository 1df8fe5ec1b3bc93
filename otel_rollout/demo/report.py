"""The demo's report: one trajectory, its group, the delivery, and where to look next."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence

from opentelemetry.sdk.trace import ReadableSpan
from rich.console import Console, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from otel_rollout import ExporterStats
from otel_rollout.analysis.plain_text import counted
from otel_rollout.analysis.trace_tree import STATUS_STYLES
from otel_rollout.demo.rollout import Trajectory
from otel_rollout.terminal.screen import plain_table
from otel_rollout.terminal.trace_drawing import draw_spans

__all__ = [
    "advantages",
    "delivery_table",
    "group_table",
    "most_telling_group",
    "most_telling_trajectory",
    "print_delivery",
    "print_group",
    "print_trajectory",
    "print_where_next",
]

INDENT = 2


def most_telling_group(trajectories: Sequence[Trajectory], step: int = 1) -> list[Trajectory]:
    """Return the group of a step that shows most: a tool error that was overcome, and mixed outcomes."""
    groups: dict[int, list[Trajectory]] = defaultdict(list)
    for trajectory in trajectories:
        if trajectory.step == step and not trajectory.validate:
            groups[trajectory.sample_index].append(trajectory)
    return max(groups.values(), key=_variety, default=[])


def most_telling_trajectory(group: Sequence[Trajectory]) -> Trajectory:
    """Return the trajectory that came furthest against most trouble."""
    return max(group, key=lambda trajectory: (_overcame(trajectory), trajectory.reward or 0.0, trajectory.turns))


def _overcame(trajectory: Trajectory) -> bool:
    return trajectory.tool_errors > 0 and trajectory.reward == 1.0


def _variety(group: Sequence[Trajectory]) -> tuple[bool, int, int]:
    outcomes = {(trajectory.status, trajectory.reward) for trajectory in group}
    statuses = {trajectory.status for trajectory in group}
    return any(map(_overcame, group)), len(outcomes), len(statuses)


def print_trajectory(console: Console, trajectory: Trajectory, spans: Sequence[ReadableSpan]) -> None:
    """Print one trajectory and its spans, as `otel-rollout show` does; without spans it was not traced."""
    outcome = trajectory.status if trajectory.reward is None else f"reward {trajectory.reward:.1f}"
    _heading(
        console,
        "One trajectory",
        f"step {trajectory.step}, sample {trajectory.sample_index}, rollout {trajectory.rollout_n}, {outcome}",
    )
    if not any(span.parent is None for span in spans):
        console.print("  It was not traced: tracing is off, or the sampler left it out.")
    for line in draw_spans(spans, width=console.width - INDENT):
        console.print(Text.assemble(" " * INDENT, line), no_wrap=True, overflow="ellipsis")


def print_group(console: Console, group: Sequence[Trajectory], question: str) -> None:
    """Print the rollouts of one prompt side by side."""
    _heading(console, "Its group", f"{counted(len(group), 'rollout')} of one prompt, one session in the backend")
    console.print(_indented(Text(question, style="italic")))
    console.print(_indented(group_table(group)))


def group_table(group: Sequence[Trajectory]) -> Table:
    """Return a table with one row a rollout, with the advantage that GRPO would give it."""
    table = plain_table("rollout", "status", "turns", "tokens", "errors", "seconds", "answer", "reward", "advantage")
    table.columns[1].justify = "left"
    for each, advantage in zip(group, advantages([each.reward or 0.0 for each in group]), strict=True):
        known = each.reward is not None
        table.add_row(
            str(each.rollout_n),
            Text(each.status, style=STATUS_STYLES[each.status]),
            *(str(count) if known else "-" for count in (each.turns, each.tokens, each.tool_errors)),
            f"{each.seconds:.2f}",
            each.answer or "-",
            f"{each.reward:.1f}" if known else "-",
            f"{advantage:+.2f}",
        )
    return table


def advantages(rewards: Sequence[float]) -> list[float]:
    """Return each reward's advantage within its group, as GRPO takes it: (reward - mean) / deviation."""
    mean = sum(rewards) / len(rewards)
    deviation = math.sqrt(sum((reward - mean) ** 2 for reward in rewards) / len(rewards))
    return [(reward - mean) / (deviation + 1e-6) for reward in rewards]


def print_delivery(console: Console, counts: Mapping[str, ExporterStats], *, in_time: bool) -> bool:
    """Print the counts of each exporter by its name, and missing spans; return if everything was delivered."""
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
            if missing := work.waiting + sum(work.lost.values()):
                _complain(console, f"{name} has the spans, but not {missing:,} {kind}.", "")
    return in_time and not any(exporter.queued or exporter.lost for exporter in counts.values())


def delivery_table(counts: Mapping[str, ExporterStats]) -> Table:
    """Return a table with one row an exporter."""
    table = plain_table("backend", "spans", "delivered", "waiting", "lost")
    table.columns[0].justify = "left"
    for name, exporter in counts.items():
        failures = (exporter.queued, sum(exporter.lost.values()))
        red = (Text(f"{count:,}", style="red" if count else "") for count in failures)
        table.add_row(name, f"{exporter.recorded:,}", f"{exporter.delivered:,}", *red)
    return table


def print_where_next(console: Console, lines: Sequence[str]) -> None:
    """Print where to look next."""
    if lines:
        _heading(console, "Where to look next")
    for line in lines:
        style = "cyan" if line.startswith("    ") else ""
        # Commands are copied: a line break inside one would break it.
        console.print(Text(f"  {line}" if line else "", style=style), soft_wrap=True)


def _heading(console: Console, title: str, rest: str = "") -> None:
    console.print()
    console.print(Text.assemble((title, "bold"), (f"  {rest}" if rest else "", "dim")))


def _indented(content: RenderableType) -> Padding:
    return Padding(content, (0, 0, 0, INDENT), expand=False)


def _complain(console: Console, what: str, why: str) -> None:
    console.print(Text(f"  NOT DELIVERED  {what}", style="bold red"), soft_wrap=True)
    if why:
        console.print(Text(f"  Last trouble: {why}"), soft_wrap=True)
