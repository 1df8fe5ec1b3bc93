"""Tables that fit the screen."""

from __future__ import annotations

import io

import pytest
from rich.console import Console

from otel_rollout.look.terminal import Cell, Column, Table, print_lines

COLUMNS = [
    Column("id"),
    Column("name", is_text=True, narrowest=6, keeps_end=True),
    Column("size", rank=2),
    Column("spans", rank=1),
]


def table() -> Table:
    made = Table(COLUMNS)
    made.add_row("1", "experiment-0001", "123.4 MB", "1,024")
    made.add_row("1024", Cell("表", "red"), "1 kB", "1")
    return made


class TestWidth:
    """What gives way on a narrow screen."""

    @pytest.mark.parametrize(
        ("width", "lines"),
        [
            (None, ["  id  name                 size  spans", "   1  experiment-0001  123.4 MB  1,024"]),
            (33, ["  id  name            size  spans", "   1  expe…-0001  123.4 MB  1,024"]),
            (25, ["  id  name          spans", "   1  exper…t-0001  1,024"]),
            (12, ["  id  name", "   1  ex…001"]),
        ],
    )
    def test_texts_first_then_whole_columns(self, width, lines):
        """Texts are cut in the middle; then the column with the highest rank is left out. No number is cut."""
        assert list(table().lines(width))[:2] == lines

    def test_wide_characters_take_two_cells(self):
        """The columns behind a Chinese name are aligned."""
        assert list(table().lines(None))[2] == "1024  表                   1 kB      1"

    @pytest.mark.parametrize(
        ("is_terminal", "codes"), [(True, ("\x1b[31m表\x1b[0m", "\x1b[2mid")), (False, ("表", "id"))]
    )
    def test_colours_are_for_terminals(self, is_terminal, codes):
        """In a pipe there are no codes."""
        console = Console(
            file=io.StringIO(), force_terminal=is_terminal, color_system="standard" if is_terminal else None
        )
        print_lines(console, table(), indent=1)
        assert all(code in console.file.getvalue() for code in codes)
        assert ("\x1b" in console.file.getvalue()) == is_terminal
