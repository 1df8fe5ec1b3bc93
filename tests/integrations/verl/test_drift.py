"""`make drift`: what is hooked, in an installed verl, beside what is recorded of it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from otel_rollout.hooks import recorded
from scripts import drift

SECONDS = 300
NEXT_SCORE = """
    async def _compute_score(self, outputs, kwargs, validate=False):
        return None
"""


def run(python: Path, *options: str) -> subprocess.CompletedProcess[str]:
    """Run the script as `make drift` does."""
    command = [sys.executable, drift.__file__, "--python", str(python), *options]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=SECONDS)


class TestCompare:
    """Changes that are reported."""

    def test_each_kind_of_change(self) -> None:
        """Parameters, kinds, bodies, and what has come or gone are one line each; what is the same is none."""
        known = {
            "m:A.same": {"kind": "function", "signature": "(self)"},
            "m:A.more": {"kind": "coroutine function", "signature": "(self, outputs, kwargs)"},
            "m:A.sync": {"kind": "coroutine function", "signature": "(self)"},
            "m:A.body": {"kind": "function", "signature": "(self)", "digest": "1"},
            "m:A.gone": {"kind": "function", "signature": "(self)", "digest": "1"},
        }
        found = {
            **known,
            "m:A.more": {"kind": "coroutine function", "signature": "(self, outputs, kwargs, validate=False)"},
            "m:A.sync": {"kind": "function", "signature": "(self)"},
            "m:A.body": {"kind": "function", "signature": "(self)", "digest": "2"},
            "m:A.gone": {"kind": "missing"},
        }
        assert drift.compare(known, found) == [
            "m:A.body: its body has changed",
            "m:A.gone: kind function → missing",
            "m:A.more: signature (self, outputs, kwargs) → (self, outputs, kwargs, validate=False)",
            "m:A.sync: kind coroutine function → function",
        ]

    def test_another_verl(self, tmp_path: Path) -> None:
        """A verl that has changed is exit code 1, with what is new in it; the newest recorded is what it's held to."""
        module = tmp_path / "verl" / "experimental" / "agent_loop" / "agent_loop.py"
        module.parent.mkdir(parents=True)
        (tmp_path / "verl" / "__init__.py").write_text("__version__ = '0.10.0'\n")
        module.write_text(f"class AgentLoopWorker:\n{NEXT_SCORE}")
        done = run(Path(sys.executable), "--path", str(tmp_path))
        assert done.returncode == 1
        lines = done.stdout.splitlines()
        score = "verl.experimental.agent_loop.agent_loop:AgentLoopWorker._compute_score"
        assert f"{score}: signature (self, outputs, kwargs) → (self, outputs, kwargs, validate=False)" in lines
        assert f"{score}: its body has changed" in lines
        assert any(
            line.startswith("verl.utils.rollout_trace:rollout_trace_op: kind function → missing") for line in lines
        )
        assert lines[-1].endswith(f"changes since {max(recorded.read('verl'))}")

    def test_no_verl(self) -> None:
        """An environment without verl is an error that says so."""
        done = run(Path(sys.executable))
        assert done.returncode == 1
        assert "has no verl to compare" in done.stderr


@pytest.mark.integration
@pytest.mark.slow
class TestInstalled:
    """The verl of the test environment."""

    def test_is_as_recorded(self, verl_python: Path) -> None:
        """Nothing that is hooked has changed since it was recorded."""
        done = run(verl_python)
        assert (done.returncode, done.stdout.splitlines()[-1].partition(": ")[2]) == (0, "as recorded")
