"""What is seen while a replay runs: a bar on a terminal, now and then a line elsewhere."""

from __future__ import annotations

import contextlib
import importlib.util
import sys
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, Final, Protocol

from otel_rollout.replay.report import ReplayReport
from otel_rollout.replay.source import Total

if TYPE_CHECKING:
    from rich.progress import Progress, TaskID

__all__ = ["LineProgress", "ReplayProgress", "show_progress"]

SECONDS_BETWEEN_LINES: Final = 5.0


class ReplayProgress(Protocol):
    """Is told what happens in a replay."""

    def advance(self, report: ReplayReport, size: int) -> None:
        """Something is settled: units of a batch, or one that was not sent.

        Args:
            report: The counts so far.
            size: Its bytes.
        """


@contextlib.contextmanager
def show_progress(name: str, total: Total) -> Iterator[ReplayProgress]:
    """Give the progress that suits standard error, for the time of the replay.

    Args:
        name: What the replay goes to.
        total: How much there is.
    """
    if not sys.stderr.isatty() or importlib.util.find_spec("rich") is None:
        yield LineProgress(name, total)
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (
        TextColumn("{task.description}"),
        BarColumn(bar_width=28),
        MofNCompleteColumn(),
        TextColumn("{task.fields[counts]}", style="dim"),
        TextColumn("left:", style="dim"),
        TimeRemainingColumn(compact=True),
    )
    with Progress(*columns, console=Console(stderr=True)) as bars:
        task = bars.add_task(name, total=total.units, counts="")
        yield _BarProgress(bars, task)


class _BarProgress:
    def __init__(self, bars: Progress, task: TaskID) -> None:
        self._bars = bars
        self._task = task

    def advance(self, report: ReplayReport, size: int) -> None:
        """Advance the bar."""
        self._bars.update(self._task, completed=report.settled + report.untried, counts=_counts(report))


class LineProgress:
    """A line every few seconds.

    Args:
        name: What the replay goes to.
        total: How much there is.
        seconds: How long it is quiet at least between two lines.
    """

    def __init__(self, name: str, total: Total, seconds: float = SECONDS_BETWEEN_LINES) -> None:
        self._name = name
        self._total = total
        self._seconds = seconds
        self._begun = self._last = time.monotonic()
        self._bytes = self._sent_bytes = self._skipped = 0

    def advance(self, report: ReplayReport, size: int) -> None:
        """Print a line, if the last one was some time ago."""
        self._bytes += size
        # What is skipped takes no time, so it is no measure of what is left.
        self._sent_bytes += size if report.skipped == self._skipped else 0
        self._skipped = report.skipped
        now = time.monotonic()
        if now - self._last < self._seconds:
            return
        self._last = now
        left = max(0, self._total.bytes - self._bytes)
        rate = self._sent_bytes / (now - self._begun)
        remaining = f", about {_duration(left / rate)} left" if rate and left else ""
        line = f"{self._name}: {report.settled:,} of {self._total.units:,}, {_counts(report)}{remaining}"
        sys.stderr.write(f"{line}\n")
        sys.stderr.flush()


def _counts(report: ReplayReport) -> str:
    failed = report.undelivered + report.unreadable + report.untried
    parts = [f"{report.spans:,} span{'' if report.spans == 1 else 's'}"]
    if report.skipped:
        parts.append(f"{report.skipped:,} before")
    if failed:
        parts.append(f"{failed:,} failed")
    return ", ".join(parts)


def _duration(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    if hours:
        return f"{hours} h {minutes} min"
    return f"{minutes} min {rest} s" if minutes else f"{rest} s"
