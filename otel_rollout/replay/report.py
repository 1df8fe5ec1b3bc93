"""The result of a replay, its lines of text, and its progress: a bar on a terminal, else a line every few seconds."""

from __future__ import annotations

import contextlib
import importlib.util
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Final

from otel_rollout.guard.clock import monotonic
from otel_rollout.replay.trajectories import Total
from otel_rollout.text.plain_text import counted

_REASONS: Final = {
    "configuration_error": "refused: auth or configuration error",
    "shutdown": "not sent, because the backend took nothing for too long",
    "refused": "refused as invalid",
    "too_large": "refused as too large",
    "rejected": "taken and not kept",
    "unknown": "sent without an answer, which the backend may have",
    "export_failed": "failed without a reason",
}


@dataclass
class ReplayReport:
    """Counts.

    Args:
        delivered: Trajectories that the backend has whole.
        skipped: Trajectories that an earlier replay delivered.
        undelivered: Trajectories that the backend has not, or not whole.
        untried: Trajectories that were not sent any more.
        spans: Spans that the backend has taken.
        shrunk: Delivered spans whose payload was cut, because the backend refused them whole.
        lost: Spans that it has not taken, by reason.
        unreadable: Trajectories and damaged parts of files that could not be read.
        reason: The last fault, in the backend's or the reader's words.
        seconds: The time of the replay.
    """

    delivered: int = 0
    skipped: int = 0
    undelivered: int = 0
    untried: int = 0
    spans: int = 0
    shrunk: int = 0
    lost: Counter[str] = field(default_factory=Counter)
    unreadable: int = 0
    reason: str = ""
    seconds: float = 0.0

    @property
    def is_whole(self) -> bool:
        """If the backend has everything that was to be replayed."""
        return not (self.undelivered or self.untried or self.unreadable)

    @property
    def settled(self) -> int:
        """The number of trajectories with an outcome."""
        return self.delivered + self.skipped + self.undelivered + self.unreadable


@dataclass(frozen=True)
class Replay:
    """A replay that has ended, or was interrupted by Ctrl-C; `notes` are further lines of text."""

    backend: str
    destination: str | None
    report: ReplayReport
    notes: list[str] = field(default_factory=list)
    is_interrupted: bool = False


def describe(replay: Replay) -> Iterator[str]:
    """Yield the lines of text on a replay."""
    report = replay.report
    where = f", {replay.destination}" if replay.destination else ""
    units = counted(report.delivered, "trajectory")
    yield f"{replay.backend}{where}: {units} delivered ({counted(report.spans, 'span')}) in {report.seconds:.1f} s"
    if report.skipped:
        yield f"  {report.skipped:,} delivered before, and not sent again (--again sends all once more)"
    if report.shrunk:
        yield f"  {counted(report.shrunk, 'span')} with the payload cut: the backend refused it whole"
    if report.undelivered:
        yield f"  {counted(report.undelivered, 'trajectory')} not delivered, or not whole:"
        for reason, count in sorted(report.lost.items()):
            if count:
                yield f"    {counted(count, 'span')} {_REASONS.get(reason, reason)}"
    if report.unreadable:
        yield f"  {report.unreadable:,} could not be read"
    if replay.is_interrupted:
        yield f"  interrupted: {counted(report.untried, 'trajectory')} not tried; run it again to go on"
    elif report.untried:
        yield f"  {counted(report.untried, 'trajectory')} not tried any more"
    if report.reason and not report.is_whole and not any(report.reason in note for note in replay.notes):
        yield f"  {report.reason}"
    for note in replay.notes:
        yield f"  {note}"


Progress = Callable[[ReplayReport, int], None]
"""Called with the counts so far and the bytes of each trajectory that is settled: sent, skipped or given up."""


@contextlib.contextmanager
def show_progress(name: str, total: Total) -> Iterator[Progress]:
    """Show progress on standard error for the time of the replay."""
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
    # Lines of a backend go above the bar; where standard output is a file, they go there.
    with progress.Progress(*columns, console=Console(stderr=True), redirect_stdout=sys.stdout.isatty()) as bars:
        task = bars.add_task(name, total=total.units, counts="")
        yield lambda report, size: bars.update(task, completed=report.settled + report.untried, counts=_counts(report))


class LineProgress:
    """Prints a line every few seconds."""

    def __init__(self, name: str, total: Total, seconds: float = 5.0) -> None:
        self._name = name
        self._total = total
        self._seconds = seconds
        self._last = monotonic()
        self._begun: float | None = None
        self._bytes = self._sent_bytes = self._skipped = 0

    def __call__(self, report: ReplayReport, size: int) -> None:
        """Print a line, if the last one was some time ago."""
        self._bytes += size
        now = monotonic()
        # Skipped ones take no time, so they are no measure of the time that is left; nor is the first one, which waits
        # for the backend to be opened.
        if report.skipped == self._skipped and size:
            self._sent_bytes += 0 if self._begun is None else size
            self._begun = self._begun or now
        self._skipped = report.skipped
        if now - self._last < self._seconds:
            return
        self._last = now
        left = max(0, self._total.bytes - self._bytes)
        passed = 0.0 if self._begun is None else now - self._begun
        rate = self._sent_bytes / passed if passed and passed >= self._seconds else 0.0
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
