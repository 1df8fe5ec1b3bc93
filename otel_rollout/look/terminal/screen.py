"""The console of the commands: cut to a terminal's width, whole lines elsewhere."""

from __future__ import annotations

from typing import Final, NoReturn

from rich.console import Console

__all__ = ["open_screen"]

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
