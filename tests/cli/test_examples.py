"""The examples run as they stand."""

import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"


class TestMinimalAgentLoop:
    """The first thing that a user copies."""

    @pytest.fixture
    def example(self) -> Path:
        """The file; the wheel does not have it."""
        file = EXAMPLES / "minimal_agent_loop.py"
        if not file.exists():
            pytest.skip("the examples are in the repository only")
        return file

    def test_prints_its_trajectories(self, example):
        """Without a backend the four rollouts are shown as trees, rewarded, and nothing is lost."""
        command = [sys.executable, "-W", "error", str(example)]
        done = subprocess.run(command, check=False, capture_output=True, text=True, timeout=300)
        assert (done.returncode, done.stderr) == (0, "")
        assert done.stdout.count("AGENT agent_loop") == 4
        assert done.stdout.count("reward=1") == 4
        assert "16 of 16 spans delivered" in done.stdout

    def test_needs_ten_lines_for_tracing(self, example):
        """The lines that are there for tracing are marked, and few."""
        marked = [line for line in example.read_text().splitlines() if line.partition("  # ")[2].isdigit()]
        assert len(marked) <= 10
