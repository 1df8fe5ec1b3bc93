"""The demo's progress: a bar for each pass on a terminal, a line elsewhere."""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Final

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, ProgressColumn, Task, TextColumn
from rich.table import Column
from rich.text import Text

from otel_rollout.demo.rollout import Pass, Trajectory, mean_reward
from otel_rollout.guard.clock import monotonic
from otel_rollout.text.plain_text import counted

__all__ = ["PassProgress", "describe_outcomes", "progress_on"]

WIDE: Final = 100
"""The columns from which on bars are long."""
NARROW: Final = 80
"""The columns below which there are no bars."""


class PassProgress:
    """Shows each pass while it runs, with the mean reward so far.

    Args:
        console: Gets a line at the end of each pass, if there are no bars.
        bars: Gets a bar for each pass.
    """

    def __init__(self, console: Console, bars: Progress | None) -> None:
        self._console = console
        self._bars = bars

    def pass_begins(self, of: Pass) -> None:
        """Begin a pass."""
        self._pass, self._begun = of, monotonic()
        self._done: list[Trajectory] = []
        if self._bars is not None:
            self._task = self._bars.add_task(of.name, total=of.trajectories, outcomes="")

    def trajectory_ends(self, trajectory: Trajectory) -> None:
        """Count a trajectory of the current pass."""
        self._done.append(trajectory)
        if self._bars is not None:
            self._bars.update(self._task, advance=1, outcomes=describe_outcomes(self._done))

    def pass_ends(self) -> None:
        """End the current pass."""
        if self._bars is None:
            seconds = monotonic() - self._begun
            self._console.print(
                f"{self._pass.name:<10}  {counted(len(self._done), 'trajectory')} in {seconds:.1f} s, "
                f"{describe_outcomes(self._done)}",
                soft_wrap=True,
            )


@contextlib.contextmanager
def progress_on(console: Console) -> Iterator[PassProgress]:
    """Show progress on a console for the time of the rollout."""
    if not console.is_terminal:
        yield PassProgress(console, None)
        return
    bar = [BarColumn(bar_width=28 if console.width >= WIDE else 8)] if console.width >= NARROW else []
    columns = (
        TextColumn("{task.description}", table_column=Column(no_wrap=True, min_width=10)),
        *bar,
        MofNCompleteColumn(table_column=Column(no_wrap=True, min_width=5)),
        _SecondsColumn(table_column=Column(no_wrap=True, min_width=6)),
        TextColumn("{task.fields[outcomes]}", style="dim", table_column=Column(no_wrap=True, overflow="ellipsis")),
    )
    with Progress(*columns, console=console) as bars:
        yield PassProgress(console, bars)


class _SecondsColumn(ProgressColumn):
    def render(self, task: Task) -> Text:
        """Return the time of a pass in seconds; rich's own column rounds to whole ones."""
        seconds = task.finished_time if task.finished else task.elapsed
        return Text(f"{seconds or 0.0:4.1f} s")


def describe_outcomes(done: Sequence[Trajectory]) -> str:
    """Return the mean reward, and the number of trajectories with each other status than `completed`."""
    counts = Counter(trajectory.status for trajectory in done)
    others = [f"{counts[status]} {status}" for status in ("truncated", "cancelled", "error") if counts[status]]
    mean = mean_reward(done)
    return ", ".join(["no reward" if mean is None else f"reward {mean:.3f}", *others])
