"""The soak itself in its shortest form, and that its account can fail."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.faults.soak import check_counts

ROOT = Path(__file__).resolve().parents[2]


class TestCheckCounts:
    """The account of one process and one backend."""

    def check(self, stored, on_disk="", *, stays, **changes):
        """Return what is wrong with the account of four spans; without changes, one was refused."""
        counts = {"recorded": 4, "delivered": 3, "queued": 0, "spooled": 0, "lost": {"refused": 1}, **changes}
        return check_counts(set("abcd"), set(stored), list(on_disk), counts, stays=stays)

    @pytest.mark.parametrize("stays", [True, False])
    def test_right(self, stays) -> None:
        """What is stored and what is counted as lost make up what was sent."""
        assert self.check("abc", stays=stays) == []

    def test_left_on_disk(self) -> None:
        """What a process that left in a storm has on disk is part of the account."""
        assert self.check("ab", "c", delivered=2, spooled=1, stays=False) == []
        assert self.check("ab", "c", delivered=2, spooled=1, stays=True) != []
        assert self.check("ab", "cc", delivered=2, spooled=2, lost={}, stays=False) != []

    @pytest.mark.parametrize("reason", ["shutdown", "unknown"])
    def test_stored_without_an_answer(self, reason) -> None:
        """Only a process that left in a storm may have counted as lost what the backend has."""
        assert self.check("abc", delivered=2, lost={reason: 2}, stays=False) == []
        assert self.check("abc", delivered=2, lost={reason: 2}, stays=True) != []

    @pytest.mark.parametrize("stays", [True, False])
    @pytest.mark.parametrize(
        ("stored", "changes"),
        [
            ("ab", {}),
            ("abc", {"recorded": 3}),
            ("abc", {"delivered": 2}),
            ("abc", {"delivered": 2, "queued": 1}),
            ("abc", {"lost": {"internal_error": 1}}),
        ],
        ids=["missing", "not recorded", "not counted", "left behind", "for no good reason"],
    )
    def test_wrong(self, stays, stored, changes) -> None:
        """A span that is neither stored nor counted, or lost for a reason that the faults don't explain, is told."""
        assert self.check(stored, stays=stays, **changes) != []


class TestSoak:
    """The program."""

    @pytest.mark.parametrize("minutes", ["0.05", pytest.param("0.33", marks=pytest.mark.slow)])
    def test_account_is_right(self, minutes) -> None:
        """After some seconds of faults at random, every span is stored or counted."""
        done = subprocess.run(
            [sys.executable, "-m", "tests.faults.soak", "--minutes", minutes, "--workers", "2"],
            cwd=ROOT,
            check=False,
            capture_output=True,
            text=True,
            timeout=600,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        assert done.stdout.endswith("right\n")
