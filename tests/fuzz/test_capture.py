"""The fuzz of capture, briefly; `make fuzz` takes minutes."""

from __future__ import annotations

import os
import signal
import subprocess
import sys

import pytest

from tests.fuzz.capture import ROOT

SECONDS = 5


@pytest.mark.slow
@pytest.mark.skipif(not hasattr(signal, "setitimer"), reason="no interval timers here")
def test_a_few_seconds():
    """No value, race or signal ends the process, changes a call, or runs code of a user's class."""
    done = subprocess.run(
        [sys.executable, "-m", "tests.fuzz.capture", "--seconds", str(SECONDS), "--seed", "1"],
        cwd=ROOT,
        env={name: value for name, value in os.environ.items() if name != "OTEL_ROLLOUT_RAISE_INTERNAL_ERRORS"},
        capture_output=True,
        text=True,
        check=False,
        timeout=600,
    )
    assert done.returncode == 0, done.stdout + done.stderr
