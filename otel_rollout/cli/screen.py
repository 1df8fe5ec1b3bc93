"""The console that commands print on: tables and trees on a terminal, whole lines of plain text elsewhere."""

from __future__ import annotations

from typing import Final, NoReturn

from rich.console import Console
from rich.table import Table

__all__ = ["open_screen", "plain_table"]

PIPE_COLUMNS: Final = 1000
"""What is read by a program is not cut to a terminal's width."""


class _Screen(Console):
    def on_broken_pipe(self) -> NoReturn:
        # rich would end the process with the exit code 1; the command line has its own way to end quietly.
        raise BrokenPipeError


def open_screen() -> Console:
    """Return the console for standard output: what a terminal can show, or as wide as it takes for a pipe."""
    screen = _Screen(highlight=False, markup=False, emoji=False)
    if not screen.is_terminal:
        screen.width = PIPE_COLUMNS
    return screen


def plain_table() -> Table:
    """Return a table without borders, as dense as it can be read."""
    return Table(box=None, pad_edge=False, header_style="dim", show_edge=False)
