"""The console of the commands, cut to a terminal's width and whole lines elsewhere, and texts wrapped for it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, NoReturn

from rich.cells import cell_len, chop_cells
from rich.console import Console

from otel_rollout.text.plain_text import printable

PIPE_COLUMNS: Final = 1000
"""The width for a pipe: programs read whole lines."""
NARROWEST: Final = 16
"""The least cells for text; a narrower screen breaks the lines itself."""


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


def wrapped(text: str, width: int | None, margin: str) -> Iterator[str]:
    """Yield a text's lines, without control characters and no longer than the screen is wide.

    Args:
        text: The text; its line breaks and its lines' indentation stay.
        width: The screen's columns; None for programs, which get whole lines.
        margin: Text that will be drawn before each line.
    """
    room = None if width is None else max(NARROWEST, width - cell_len(margin))
    for line in text.expandtabs(4).splitlines():
        shown = printable(line.rstrip())
        if room is None or cell_len(shown) <= room:
            yield shown
        else:
            yield from _broken(shown, room)


def _broken(line: str, room: int) -> Iterator[str]:
    """Yield the parts of a line, broken at spaces, or inside a word that is longer than a line."""
    indentation = line[: len(line) - len(line.lstrip(" "))]
    if len(indentation) > room // 2:
        indentation = ""
    begun, length = indentation, len(indentation)
    is_empty = True
    for word in line.strip(" ").split(" "):
        size = cell_len(word)
        if not is_empty and length + 1 + size > room:
            yield begun
            begun, length, is_empty = indentation, len(indentation), True
        if not is_empty:
            begun, length = f"{begun} {word}", length + 1 + size
            continue
        *whole, last = chop_cells(word, room - len(indentation)) if length + size > room else [word]
        yield from (indentation + piece for piece in whole)
        begun, length, is_empty = indentation + last, len(indentation) + cell_len(last), False
    yield begun
