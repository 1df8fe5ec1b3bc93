"""Progress of long commands on standard error."""

from __future__ import annotations

import atexit
import importlib.util
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Final

from otel_rollout.cli.messages import complain
from otel_rollout.guard.clock import monotonic
from otel_rollout.text.plain_text import plural

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


_bars: dict[str, Any] = {}
"""The bars on the terminal, by what they count."""


def count_progress(done: int, total: int, what: str) -> None:
    """Show a bar on the terminal until all is done.

    Args:
        done: The number of things that are done.
        total: The number of all.
        what: Their name.
    """
    if importlib.util.find_spec("rich") is None:
        return
    if what not in _bars and done < total:
        from rich import progress
        from rich.console import Console

        columns = (
            progress.TextColumn("{task.description}"),
            progress.BarColumn(bar_width=28),
            progress.MofNCompleteColumn(),
            progress.TimeRemainingColumn(compact=True),
        )
        _bars[what] = progress.Progress(*columns, console=Console(stderr=True), transient=True)
        _bars[what].add_task(f"reading {plural(what)}", total=total)
        _bars[what].start()
        # An error may end the reading.
        atexit.register(_bars[what].stop)
    if (bar := _bars.get(what)) is not None:
        bar.update(bar.task_ids[0], completed=done, total=total)
        if done >= total:
            bar.stop()
            del _bars[what]


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
