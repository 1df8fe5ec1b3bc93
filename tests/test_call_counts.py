"""Counts of Python calls on the ways that every span or page takes, see call_counts.py."""

from __future__ import annotations

import pytest

from tests.call_counts import ROWS, VERSION, counted, recorded

ALLOWED = 0.05


@pytest.mark.parametrize("row", ROWS)
def test_are_the_recorded_ones(row: str) -> None:
    """Calls and entered files are within 5% of the table, on the Pythons that it has a column for."""
    known = recorded().get(row, {})
    if VERSION not in known:
        pytest.skip(f"tests/call_counts.txt has no column for Python {VERSION}")
    count = counted(row)
    advice = f"{row}: {count}, recorded {known[VERSION]}: `python -m tests.call_counts --record`, and say why"
    assert count.calls == pytest.approx(known[VERSION].calls, rel=ALLOWED), advice
    assert count.files == pytest.approx(known[VERSION].files, rel=ALLOWED), advice
