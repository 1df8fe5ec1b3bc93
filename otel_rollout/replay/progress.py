"""The progress of a replay: a bar on a terminal, a line every few seconds elsewhere."""

from __future__ import annotations

import contextlib
import importlib.util
import sys
from collections.abc import Callable, Iterator
from typing import Final

from otel_rollout.guard.clock import monotonic
from otel_rollout.replay.report import ReplayReport
from otel_rollout.replay.source import Total
from otel_rollout.text.plain_text import counted

__all__ = ["LineProgress", "Progress", "show_progress"]

SECONDS_BETWEEN_LINES: Final = 5.0

Progress = Callable[[ReplayReport, int], None]
"""Called with the counts so far and the bytes of each unit that is settled: sent, skipped or given up."""


@contextlib.contextmanager
def show_progress(name: str, total: Total) -> Iterator[Progress]:
    """Show progress on standard error for the time of the replay.

    Args:
        name: The backend's name.
        total: The units to replay.
    """
    if not sys.stderr.isatty() or importlib.util.find_spec("rich") is None:
        yield LineProgress(name, total)
        return
    from rich import progress
    from rich.console import Console

    columns = (
        progress.TextColumn("{task.description}"),
        progress.BarColumn(bar_width=28),
        progress.MofNCompleteColumn(),
        progress.TextColumn("{task.fields[counts]}", style="dim"),
        progress.TextColumn("left:", style="dim"),
        progress.TimeRemainingColumn(compact=True),
    )
    with progress.Progress(*columns, console=Console(stderr=True)) as bars:
        task = bars.add_task(name, total=total.units, counts="")
        yield lambda report, size: bars.update(task, completed=report.settled + report.untried, counts=_counts(report))


class LineProgress:
    """Prints a line every few seconds.

    Args:
        name: The backend's name.
        total: The units to replay.
        seconds: The least time between two lines.
    """

    def __init__(self, name: str, total: Total, seconds: float = SECONDS_BETWEEN_LINES) -> None:
        self._name = name
        self._total = total
        self._seconds = seconds
        self._begun = self._last = monotonic()
        self._bytes = self._sent_bytes = self._skipped = 0

    def __call__(self, report: ReplayReport, size: int) -> None:
        """Print a line, if the last one was some time ago."""
        self._bytes += size
        # Skipped units take no time, so they are no measure of the time that is left.
        self._sent_bytes += size if report.skipped == self._skipped else 0
        self._skipped = report.skipped
        now = monotonic()
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
    before = f", {report.skipped:,} before" if report.skipped else ""
    return f"{counted(report.spans, 'span')}{before}" + (f", {failed:,} failed" if failed else "")


def _duration(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    if hours:
        return f"{hours} h {minutes} min"
    return f"{minutes} min {rest} s" if minutes else f"{rest} s"
