"""A receiver that is killed while spans come, briefly; `python -m tests.fuzz.receive_kills --kills 100` for longer."""

from __future__ import annotations

import sys

from tests.fuzz import receive_kills


def test_nothing_is_lost(monkeypatch, capsys) -> None:
    """What was answered with 200 before each of three SIGKILLs is in the folder, once."""
    monkeypatch.setattr(sys, "argv", ["receive_kills", "--kills", "3"])
    assert receive_kills.main() == 0
    assert "0 missing, 0 doubled" in capsys.readouterr().out
