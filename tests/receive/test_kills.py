"""A receiver that is killed while spans come, briefly; `python -m tests.fuzz.receive_kills --kills 100` for longer."""

from __future__ import annotations

import sys

import pytest

from tests.fuzz import receive_kills


@pytest.mark.parametrize("kills", [1, pytest.param(10, marks=pytest.mark.slow)])
def test_nothing_is_lost(monkeypatch, capsys, kills) -> None:
    """What was answered with 200 before each SIGKILL is in the folder, once."""
    monkeypatch.setattr(sys, "argv", ["receive_kills", "--kills", str(kills)])
    assert receive_kills.main() == 0
    assert "0 missing, 0 doubled" in capsys.readouterr().out
