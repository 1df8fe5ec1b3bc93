"""The console of the commands: cut to a terminal's width, whole lines elsewhere."""

from __future__ import annotations

from typing import Final, NoReturn

from rich.console import Console
from rich.table import Table

__all__ = ["open_screen", "plain_table"]

PIPE_COLUMNS: Final = 1000
"""The width for a pipe: programs read whole lines."""


class _Screen(Console):
    def on_broken_pipe(self) -> NoReturn:
        # rich would exit with code 1; the command line exits quietly with 141.
        raise BrokenPipeError


def open_screen() -> Console:
    """Return the console of standard output."""
    screen = _Screen(highlight=False, markup=False, emoji=False)
    if not screen.is_terminal:
        screen.width = PIPE_COLUMNS
    return screen


def plain_table(*columns: str) -> Table:
    """Return a dense table without borders.

    Args:
        columns: The headings of its columns, aligned right.
    """
    table = Table(box=None, pad_edge=False, header_style="dim", show_edge=False)
    for column in columns:
        table.add_column(column, justify="right", no_wrap=True)
    return table
