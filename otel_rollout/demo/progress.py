"""What is seen while the demo runs: a bar on a terminal, a line for each pass elsewhere."""

from __future__ import annotations

import contextlib
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Protocol

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, ProgressColumn, Task, TextColumn
from rich.text import Text

from otel_rollout.demo.rollout import Pass, Trajectory, mean_reward
from otel_rollout.wording import counted

__all__ = ["BarProgress", "LineProgress", "RolloutProgress", "describe_outcomes", "progress_on"]


class RolloutProgress(Protocol):
    """Is told what happens in a rollout."""

    def pass_begins(self, of: Pass) -> None:
        """A pass begins."""

    def trajectory_ends(self, trajectory: Trajectory) -> None:
        """A trajectory of the current pass has ended."""

    def pass_ends(self) -> None:
        """The current pass has ended."""


@contextlib.contextmanager
def progress_on(console: Console) -> Iterator[RolloutProgress]:
    """Give the progress that suits the console, for the time of the rollout."""
    if not console.is_terminal:
        yield LineProgress(console)
        return
    columns = (
        TextColumn("{task.description}"),
        BarColumn(bar_width=28 if console.width >= 100 else 8),
        MofNCompleteColumn(),
        _SecondsColumn(),
        TextColumn("{task.fields[outcomes]}", style="dim"),
    )
    with Progress(*columns, console=console) as bars:
        yield BarProgress(bars)


class _SecondsColumn(ProgressColumn):
    """The time that a pass takes, in seconds: a minute is a long time here."""

    def render(self, task: Task) -> Text:
        """Return the time so far, or the whole time of a pass that has ended."""
        seconds = task.finished_time if task.finished else task.elapsed
        return Text(f"{seconds or 0.0:4.1f} s")


class BarProgress:
    """One bar for each pass, with the mean reward so far."""

    def __init__(self, bars: Progress) -> None:
        self._bars = bars
        self._done: list[Trajectory] = []

    def pass_begins(self, of: Pass) -> None:
        """Add the pass's bar."""
        self._done = []
        self._task = self._bars.add_task(of.name, total=of.trajectories, outcomes="")

    def trajectory_ends(self, trajectory: Trajectory) -> None:
        """Advance the bar."""
        self._done.append(trajectory)
        self._bars.update(self._task, advance=1, outcomes=describe_outcomes(self._done))

    def pass_ends(self) -> None:
        """Do nothing: the bar stays as it is."""


class LineProgress:
    """One line of text when a pass has ended."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._done: list[Trajectory] = []

    def pass_begins(self, of: Pass) -> None:
        """Remember when."""
        self._pass, self._begun, self._done = of, time.monotonic(), []

    def trajectory_ends(self, trajectory: Trajectory) -> None:
        """Count the trajectory."""
        self._done.append(trajectory)

    def pass_ends(self) -> None:
        """Print the line."""
        seconds = time.monotonic() - self._begun
        outcomes = describe_outcomes(self._done)
        self._console.print(
            f"{self._pass.name:<10}  {counted(len(self._done), 'trajectory')} in {seconds:.1f} s, {outcomes}",
            soft_wrap=True,
        )


def describe_outcomes(done: Sequence[Trajectory]) -> str:
    """Return the mean reward, and how many ended otherwise than they should."""
    counts = Counter(trajectory.status for trajectory in done)
    others = [f"{counts[status]} {status}" for status in ("truncated", "cancelled", "error") if counts[status]]
    return ", ".join([f"reward {mean_reward(done):.2f}", *others])
