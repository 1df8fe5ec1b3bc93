"""The demo's report: one trajectory, its group, the delivery, and where to look next."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

from opentelemetry.sdk.trace import ReadableSpan
from rich.console import Console
from rich.padding import Padding
from rich.text import Text

from otel_rollout import ExporterStats
from otel_rollout.demo.rollout import Trajectory
from otel_rollout.facts.figures import ToolCounts
from otel_rollout.facts.summaries import summarise_trajectory
from otel_rollout.facts.table import TrajectorySummary
from otel_rollout.look.terminal.group_table import answer_of, group_table
from otel_rollout.look.terminal.hints import command_lines, sentence_lines
from otel_rollout.look.terminal.table import Cell, Column, Table, print_lines
from otel_rollout.look.terminal.trace_drawing import draw_spans
from otel_rollout.text.plain_text import counted

INDENT: Final = 2
NARROW: Final = 80
SHUTDOWN: Final = "shutdown"
"""The reason of spans that waited when the time was up."""


def clearest_group(trajectories: Sequence[Trajectory], step: int = 1) -> list[Trajectory]:
    """Return the group of a step that shows most: a tool error that was overcome, and mixed outcomes."""
    groups: dict[int, list[Trajectory]] = defaultdict(list)
    for trajectory in trajectories:
        if trajectory.step == step and not trajectory.validate:
            groups[trajectory.sample_index].append(trajectory)
    return max(groups.values(), key=_variety, default=[])


def clearest_trajectory(group: Sequence[Trajectory]) -> Trajectory:
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
    outcome = trajectory.status if trajectory.reward is None else f"reward {trajectory.reward:.3g}"
    _heading(
        console,
        "One trajectory",
        f"step {trajectory.step}, sample {trajectory.sample_index}, rollout {trajectory.rollout_n}, {outcome}",
    )
    if not any(span.parent is None for span in spans):
        console.print("  It was not traced: tracing is off, or the sampler left it out.")
    for line in draw_spans(spans, width=console.width - INDENT):
        console.print(Text.assemble(" " * INDENT, line), no_wrap=True, overflow="ellipsis")


def print_group(console: Console, group: Sequence[RolloutRow], question: str) -> None:
    """Print the rollouts of one prompt side by side, as `otel-rollout ls --sample` does."""
    rest = f"{counted(len(group), 'rollout')} of one prompt, one session in the backend"
    _heading(console, "Its group", rest if console.width >= NARROW else counted(len(group), "rollout"))
    console.print(Padding(Text(question, style="italic"), (0, 0, 0, INDENT), expand=False))
    print_lines(console, group_table([row.summary for row in group], [row.answer for row in group]), indent=INDENT)


class RolloutRow(NamedTuple):
    """A trajectory's row in the table of its group.

    Args:
        summary: The trajectory.
        answer: Its answer.
    """

    summary: TrajectorySummary
    answer: str


def rollout_row(trajectory: Trajectory, spans: Sequence[ReadableSpan]) -> RolloutRow:
    """Return a trajectory's row, made of its spans, or of the demo's own record if it wasn't traced."""
    if any(span.parent is None for span in spans):
        return RolloutRow(summarise_trajectory(spans), answer_of(spans))
    summary = TrajectorySummary(
        "",
        rollout_n=trajectory.rollout_n,
        status=trajectory.status,
        has_root=True,
        end_time=round(trajectory.seconds * 1e9),
        reward=trajectory.reward,
        turns=trajectory.turns or None,
        tools={"": ToolCounts(trajectory.tool_errors, trajectory.tool_errors)},
    )
    return RolloutRow(summary, trajectory.answer or "")


def print_delivery(console: Console, counts: Mapping[str, ExporterStats]) -> bool:
    """Print the counts of each exporter by its name, and missing spans; return if everything was delivered.

    Args:
        console: The console.
        counts: The final counts, after `shutdown`.
    """
    _heading(console, "Delivery")
    if not counts:
        console.print("  Nothing was sent: tracing is off, or the application's own provider has the spans.")
    else:
        print_lines(console, delivery_table(counts), indent=INDENT)
    for name, exporter in counts.items():
        lost = dict(exporter.lost)
        if late := lost.pop(SHUTDOWN, 0) + exporter.queued:
            _complain(console, f"{name} did not take {late:,} spans in time.", _why(exporter))
        if exporter.spooled:
            _complain(console, f"{exporter.spooled:,} spans for {name} are in the spool.", _why(exporter))
        if lost:
            reasons = ", ".join(f"{number:,} {reason}" for reason, number in lost.items())
            _complain(console, f"{name} lost spans: {reasons}.", _why(exporter))
        for kind, work in exporter.follow_up_requests.items():
            if missing := work.waiting + sum(work.lost.values()):
                _complain(console, f"{name} has the spans, but not {missing:,} {kind}.", "")
    return all(exporter.delivered == exporter.recorded for exporter in counts.values())


def print_waiting(console: Console, counts: Mapping[str, ExporterStats], seconds: float) -> None:
    """Print a line for each exporter that spans wait for, with its trouble and the longest wait.

    Args:
        console: The console.
        counts: The counts of each exporter by its name.
        seconds: The longest wait.
    """
    for name, exporter in counts.items():
        if waiting := exporter.queued + exporter.spooled:
            trouble = f" ({_why(exporter)})" if _why(exporter) else ""
            line = f"waiting up to {seconds:.0f} s for {name} to take {counted(waiting, 'span')}{trouble}; "
            print_sentence(console, f"{line}Ctrl-C ends the wait", style="yellow")


def delivery_table(counts: Mapping[str, ExporterStats]) -> Table:
    """Return a table with one row an exporter."""
    columns = [Column(name) for name in ("spans", "delivered", "on disk", "lost")]
    table = Table([Column("backend", is_text=True, narrowest=8), *columns])
    for name, exporter in counts.items():
        lost = sum(exporter.lost.values()) + exporter.queued
        table.add_row(
            name,
            f"{exporter.recorded:,}",
            f"{exporter.delivered:,}",
            Cell(f"{exporter.spooled:,}", "yellow" if exporter.spooled else ""),
            Cell(f"{lost:,}", "red" if lost else ""),
        )
    if not any(exporter.spooled for exporter in counts.values()):
        table.leave_out("on disk")
    return table


def print_where_next(console: Console, lines: Sequence[str]) -> None:
    """Print where to look next."""
    if lines:
        _heading(console, "Where to look next")
    width = console.width if console.is_terminal else None
    for line in lines if width is None else _whole_sentences(lines):
        is_command = line.startswith("    ")
        margin = " " * (3 * INDENT if is_command else INDENT)
        for part in (command_lines if is_command else sentence_lines)(line.strip(), width, margin) if line else [""]:
            console.print(Text(part, style="cyan" if is_command else ""), soft_wrap=True)


def _whole_sentences(lines: Sequence[str]) -> list[str]:
    """Return lines with those joined that end with a comma, before they are wrapped."""
    joined: list[str] = []
    for line in lines:
        if joined and joined[-1].endswith(","):
            joined[-1] += f" {line}"
        else:
            joined.append(line)
    return joined


def _heading(console: Console, title: str, rest: str = "") -> None:
    console.print()
    console.print(Text.assemble((title, "bold"), (f"  {rest}" if rest else "", "dim")))


def _why(exporter: ExporterStats) -> str:
    return exporter.last_error.removeprefix("retry: ") or exporter.preparing


def _complain(console: Console, what: str, why: str) -> None:
    print_sentence(console, f"NOT DELIVERED  {what}", style="bold red", margin="  ")
    if why:
        print_sentence(console, f"Last trouble: {why}", margin="  ")


def print_sentence(console: Console, sentence: str, *, style: str = "", margin: str = "") -> None:
    """Print a sentence; on a terminal broken between words."""
    for line in sentence_lines(sentence, console.width if console.is_terminal else None, margin):
        console.print(Text(line, style=style), soft_wrap=True)
