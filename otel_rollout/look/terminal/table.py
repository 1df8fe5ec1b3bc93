"""Tables of any number of rows: a column that has no room is left out, and no number is cut.

rich's own tables take a millisecond for each row, and cut every column a little if the screen is narrow.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from functools import cache
from typing import Final, NamedTuple

from rich.cells import cell_len, set_cell_size
from rich.console import Console
from rich.text import Text

GAP: Final = "  "
_is_narrow: Final = re.compile("[ -~→µ…]*").fullmatch
"""Finds that a text has only characters of one cell: ASCII, and the characters that numbers are drawn with."""


class Cell(NamedTuple):
    """A cell with a style of rich's."""

    text: str
    style: str = ""


class Column(NamedTuple):
    """A column.

    Args:
        name: Its heading.
        is_text: Aligned left, as text is; numbers are aligned right.
        rank: If there is no room, the column with the highest rank is left out first; 0 always stays.
        narrowest: The cells that a text may be cut to; 0 if it must stay whole.
        keeps_end: Cut in the middle: such names differ in their ends.
    """

    name: str
    is_text: bool = False
    rank: int = 0
    narrowest: int = 0
    keeps_end: bool = False


class Table:
    """Rows of cells below headings.

    Args:
        columns: The columns.
        has_header: Draw their names above them.
    """

    def __init__(self, columns: Sequence[Column], *, has_header: bool = True) -> None:
        self.columns = list(columns)
        self.rows: list[list[Cell]] = []
        self._has_header = has_header

    def add_row(self, *cells: str | Cell) -> None:
        """Add a row with a cell for each column; its text has no control characters."""
        self.rows.append([cell if isinstance(cell, Cell) else Cell(cell) for cell in cells])

    def leave_out(self, *names: str) -> None:
        """Leave out columns."""
        kept = [at for at, column in enumerate(self.columns) if column.name not in names]
        self.columns = [self.columns[at] for at in kept]
        self.rows = [[row[at] for at in kept] for row in self.rows]

    def lines(self, width: int | None, draw: Callable[[Cell], str] = lambda cell: cell.text) -> Iterator[str]:
        """Yield each line.

        Args:
            width: The screen's columns; None for programs: no column is left out, and no cell is cut.
            draw: Returns a cell's text with the codes of its style.
        """
        header = [[Cell(column.name, "dim") for column in self.columns]] if self._has_header else []
        rows = header + self.rows
        measured = [[_width(cell.text) for cell in row] for row in rows]
        natural = [max((each[at] for each in measured), default=0) for at in range(len(self.columns))]
        shown = self._fitting(natural, width)
        widths = self._widths(shown, natural, width)
        columns = [(at, room, self.columns[at]) for at, room in zip(shown, widths, strict=True)]
        for row, own in zip(rows, measured, strict=True):
            cells = []
            for at, room, column in columns:
                cell = row[at]
                space = room - own[at]
                if space < 0:
                    cell = cell._replace(text=_cut(cell.text, room, keeps_end=column.keeps_end))
                    space = room - _width(cell.text)
                text = draw(cell) if cell.style and cell.text else cell.text
                cells.append(text + " " * space if column.is_text else " " * space + text)
            yield GAP.join(cells).rstrip(" ")

    def _fitting(self, natural: Sequence[int], width: int | None) -> list[int]:
        """Return the positions of the columns that there is room for."""
        shown = list(range(len(self.columns)))
        while width is not None and self._least(shown, natural) > width:
            spare = max(shown, key=lambda at: (self.columns[at].rank, at))
            if not self.columns[spare].rank:
                break
            shown.remove(spare)
        return shown

    def _least(self, shown: Sequence[int], natural: Sequence[int]) -> int:
        least = (min(natural[at], self.columns[at].narrowest or natural[at]) for at in shown)
        return sum(least) + len(GAP) * (len(shown) - 1)

    def _widths(self, shown: Sequence[int], natural: Sequence[int], width: int | None) -> list[int]:
        """Return the width of each shown column; texts share the room that numbers leave."""
        widths = [natural[at] for at in shown]
        if width is None:
            return widths
        over = sum(widths) + len(GAP) * (len(shown) - 1) - width
        while over > 0:
            texts = [
                position
                for position, at in enumerate(shown)
                if self.columns[at].narrowest and widths[position] > self.columns[at].narrowest
            ]
            if not texts:
                break
            longest = max(texts, key=lambda position: widths[position])
            widths[longest] -= 1
            over -= 1
        return widths


def print_lines(console: Console, table: Table, *, indent: int = 0) -> None:
    """Print a table; in a pipe, whole.

    Args:
        console: The console; it is written to directly, as rich takes longer for a line than all else together.
        table: The table.
        indent: Spaces before each line.
    """

    @cache
    def codes(style: str) -> tuple[str, str]:
        with console.capture() as captured:
            console.print(Text("x", style=style), end="")
        start, _, end = captured.get().partition("x")
        return start, end

    def draw(cell: Cell) -> str:
        start, end = codes(cell.style)
        return f"{start}{cell.text}{end}"

    margin = " " * indent
    width = console.width - indent if console.is_terminal else None
    console.file.write("".join(f"{margin}{line}\n" for line in table.lines(width, draw)))


def _width(text: str) -> int:
    # rich looks up character by character, which takes as long as drawing the row.
    return len(text) if text.isascii() or _is_narrow(text) else cell_len(text)


def _cut(text: str, width: int, *, keeps_end: bool) -> str:
    if not keeps_end:
        return f"{set_cell_size(text, width - 1).rstrip()}…"
    ending = text[-(width // 2) :]
    while _width(ending) > width // 2:
        ending = ending[1:]
    return f"{set_cell_size(text, width - 1 - _width(ending))}…{ending}"
