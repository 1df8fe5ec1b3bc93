"""Progress of long commands on standard error."""

from __future__ import annotations

import atexit
import importlib.util
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import lru_cache
from typing import TYPE_CHECKING, Final

from otel_rollout.cli.messages import complain
from otel_rollout.guard.clock import monotonic
from otel_rollout.text.plain_text import plural

if TYPE_CHECKING:
    from rich.console import Console
    from rich.progress import Progress, TaskID

SECONDS_BETWEEN_LINES: Final = 5.0


@contextmanager
def byte_progress(name: str, total: int) -> Iterator[Callable[[int], object]]:
    """Show progress on standard error: a bar on a terminal, a line every few seconds elsewhere.

    Args:
        name: The name of the work, in a word.
        total: The number of bytes; the block calls what it is given with those that are done.
    """
    if not sys.stderr.isatty() or importlib.util.find_spec("rich") is None:
        yield _LineProgress(name, total)
        return
    from rich import progress
    from rich.console import Console

    columns = (
        progress.TextColumn(name),
        progress.BarColumn(bar_width=28),
        progress.DownloadColumn(),
        progress.TimeRemainingColumn(compact=True),
    )
    # Printed lines go above the bar; where standard output is a file, they go there.
    console, is_shown = Console(stderr=True), sys.stdout.isatty()
    with progress.Progress(*columns, console=console, transient=True, redirect_stdout=is_shown) as bars:
        task = bars.add_task(name, total=total)
        yield lambda size: bars.update(task, advance=size)


class CountBars:
    """Bars of what has been read, one for each kind of thing, until all of it is.

    Args:
        console: The terminal.
    """

    def __init__(self, console: Console) -> None:
        self._console = console
        self._bars: Progress | None = None
        self._tasks: dict[str, TaskID] = {}

    def update(self, done: int, total: int, what: str) -> None:
        """Show how far it is.

        Args:
            done: The number of things that are done.
            total: The number of all.
            what: Their name.
        """
        if what not in self._tasks:
            if done >= total:
                return
            self._tasks[what] = self._shown().add_task(f"reading {plural(what)}", total=total)
        bars = self._shown()
        bars.update(self._tasks[what], completed=done, total=total)
        if done >= total:
            bars.remove_task(self._tasks.pop(what))
        if not self._tasks:
            bars.stop()
            self._bars = None

    def _shown(self) -> Progress:
        if self._bars is None:
            from rich import progress

            columns = (
                progress.TextColumn("{task.description}"),
                progress.BarColumn(bar_width=28),
                progress.MofNCompleteColumn(),
                progress.TimeRemainingColumn(compact=True),
            )
            self._bars = progress.Progress(*columns, console=self._console, transient=True)
            self._bars.start()
            # An error may end the reading.
            atexit.register(self._bars.stop)
        return self._bars


@lru_cache(None)
def count_bars() -> CountBars | None:
    """Return the bars on standard error; None if it is no terminal, or rich isn't installed."""
    if not sys.stderr.isatty() or importlib.util.find_spec("rich") is None:
        return None
    from rich.console import Console

    return CountBars(Console(stderr=True))


class _LineProgress:
    """Prints a line every few seconds."""

    def __init__(self, name: str, total: int) -> None:
        self._name = name
        self._total = total
        self._done = 0
        self._last = monotonic()

    def __call__(self, size: int) -> None:
        self._done += size
        now = monotonic()
        if now - self._last >= SECONDS_BETWEEN_LINES:
            self._last = now
            complain(f"{self._name}: {self._done >> 20:,} of {self._total >> 20:,} MiB")
