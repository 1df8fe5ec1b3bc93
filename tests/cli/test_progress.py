"""Tests of the bars of what a command reads."""

from __future__ import annotations

import io

import pytest

from otel_rollout.cli.progress import CountBars

pytest.importorskip("rich")

from rich.console import Console


class TestCountBars:
    """Bars on a terminal."""

    def test_are_there_while_something_is_left(self):
        """Each kind of thing has its own, and what is read in no time has none."""
        terminal = io.StringIO()
        bars = CountBars(Console(file=terminal, force_terminal=True, width=100))
        bars.update(7, 7, "file")
        assert terminal.getvalue() == ""
        bars.update(1, 20, "trajectory")
        bars.update(1, 3, "step")
        bars.update(20, 20, "trajectory")
        bars.update(3, 3, "step")
        shown = terminal.getvalue()
        assert "reading trajectories" in shown
        assert "reading steps" in shown
        assert shown.count("\x1b[?25l") == shown.count("\x1b[?25h") == 1

    def test_begin_anew(self):
        """A second reading has a bar of its own."""
        terminal = io.StringIO()
        bars = CountBars(Console(file=terminal, force_terminal=True, width=100))
        for _ in range(2):
            before = len(terminal.getvalue())
            bars.update(1, 20, "trajectory")
            bars.update(20, 20, "trajectory")
            assert "reading trajectories" in terminal.getvalue()[before:]
