"""Folders that something has damaged: a few hundred of the ways that `make fuzz` has thousands of."""

from __future__ import annotations

import pytest

from tests.fuzz.folder import fuzz

MORE_SEEDS = (20_000, 30_000, 40_000)


class TestDamagedFolders:
    """What `ls`, `show`, `stats`, `diagnose`, `top`, `replay` and `read` make of them."""

    @pytest.mark.parametrize("seed", [10_000, *(pytest.param(number, marks=pytest.mark.slow) for number in MORE_SEEDS)])
    def test_no_traceback_and_nothing_else_in_silence(self, seed):
        """Whatever is damaged is told, or does not change what is shown; nothing raises but our own errors."""
        done, findings = fuzz(20, seed, with_bombs=False)
        assert sum(done.values()) > 15
        assert findings == []
