"""The soak itself: twenty seconds of it, and that its account can fail."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from soak import check_counts

SOAK = Path(__file__).with_name("soak.py")


class TestCheckCounts:
    """The account of one process and one backend."""

    SENT = frozenset({"a", "b", "c", "d"})

    def counts(self, **changes):
        """Return the counts of four spans, one of which was refused."""
        return {"recorded": 4, "delivered": 3, "queued": 0, "lost": {"refused": 1}, **changes}

    @pytest.mark.parametrize("stays", [True, False])
    def test_right(self, stays) -> None:
        """What is stored and what is counted as lost make up what was sent."""
        assert check_counts(set(self.SENT), {"a", "b", "c"}, self.counts(), stays=stays) == []

    def test_stored_without_an_answer(self) -> None:
        """Only a process that left in a storm may have counted as lost what the backend has."""
        counts = self.counts(delivered=2, lost={"shutdown": 2})
        assert check_counts(set(self.SENT), {"a", "b", "c"}, counts, stays=False) == []
        assert check_counts(set(self.SENT), {"a", "b", "c"}, counts, stays=True) != []

    @pytest.mark.parametrize("stays", [True, False])
    @pytest.mark.parametrize(
        ("stored", "changes"),
        [
            ({"a", "b"}, {}),
            ({"a", "b", "c"}, {"recorded": 3}),
            ({"a", "b", "c"}, {"delivered": 2}),
            ({"a", "b", "c"}, {"delivered": 2, "queued": 1}),
            ({"a", "b", "c"}, {"lost": {"internal_error": 1}}),
        ],
        ids=["missing", "not recorded", "not counted", "left behind", "for no good reason"],
    )
    def test_wrong(self, stays, stored, changes) -> None:
        """A span that is neither stored nor counted, or lost for a reason that the faults don't explain, is told."""
        assert check_counts(set(self.SENT), stored, self.counts(**changes), stays=stays) != []


class TestSoak:
    """The program."""

    def test_twenty_seconds(self) -> None:
        """After twenty seconds of faults at random, every span is stored or counted."""
        done = subprocess.run(
            [sys.executable, str(SOAK), "--minutes", "0.33"],
            check=False,
            capture_output=True,
            text=True,
            timeout=200,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        assert done.stdout.endswith("right\n")
