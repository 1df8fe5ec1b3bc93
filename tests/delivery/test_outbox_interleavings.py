"""The account of an outbox under every interleaving that frontrun finds, and the control without the lock."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("frontrun", reason="frontrun isn't installed")
pytestmark = pytest.mark.slow
ROOT = Path(__file__).parents[2]


def explore(case: str, lock: str) -> dict[str, object]:
    """Return what frontrun finds."""
    done = subprocess.run(
        [sys.executable, "-m", "frontrun.cli", sys.executable, "-m", "tests.delivery.interleavings", case, lock],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    return json.loads(done.stdout.splitlines()[-1])


class TestInterleavings:
    """`put` in two threads, beside a flush or a shutdown."""

    @pytest.mark.parametrize("case", ["put", "flush", "shutdown"])
    def test_each_span_is_counted_once(self, case):
        """In every interleaving each span is delivered, queued or lost."""
        found = explore(case, "lock")
        assert found["holds"] is True
        assert found["explored"] > 1

    def test_without_the_lock_one_is_not(self):
        """The search finds the interleaving that the lock forbids."""
        assert explore("put", "none")["holds"] is False
