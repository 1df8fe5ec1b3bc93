"""Programs in an interpreter of their own: what happens at import and at exit happens once in a process."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap


def run_program(source: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run a program in a fresh interpreter with a cleaned environment."""
    return subprocess.run(
        [sys.executable, "-c", textwrap.dedent(source)],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
