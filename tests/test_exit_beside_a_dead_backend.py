"""The end of a process whose backend is away: what is said, how long it takes, and what Ctrl-C does."""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

DEADLINE = 300.0

PROGRAM = """
    import os, signal
    import otel_rollout
    # A shell starts background commands with SIGINT ignored, and children inherit that.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    otel_rollout.init("p", "e", backend="otlp", endpoint=os.environ["ENDPOINT"])
    with otel_rollout.rollout_trace_attr(step=1):
        pass
"""


@pytest.fixture
def dead_endpoint() -> str:
    """A URL where nothing listens."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        return f"http://127.0.0.1:{server.getsockname()[1]}"


def start(endpoint: str, **environment: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(PROGRAM)],
        env={**os.environ, "ENDPOINT": endpoint, **environment},
        stderr=subprocess.PIPE,
        text=True,
    )


def test_ctrl_c_ends_the_wait_with_the_account(dead_endpoint: str):
    """The wait is announced with its length; Ctrl-C ends it without a traceback, and the loss is counted."""
    with start(dead_endpoint, OTEL_ROLLOUT_SHUTDOWN_TIMEOUT_MS="3600000") as process:
        assert process.stderr is not None
        lines = []
        for line in process.stderr:
            lines.append(line)
            if "Ctrl-C" in line:
                break
        process.send_signal(signal.SIGINT)
        rest = process.stderr.read()
        code = process.wait(DEADLINE)

    address = dead_endpoint.removeprefix("http://")
    assert lines[0].strip() == (
        f"otlp: not delivered, trying again ({dead_endpoint}/v1/traces: connection refused: nothing listens on "
        f"{address}); 1 span waits in memory (256 MiB at most) until the backend takes them"
    )
    assert re.fullmatch(
        r"otlp: the end of the process waits up to \d+ s for the backend to take 1 span; Ctrl-C ends the wait",
        lines[1].strip(),
    )
    assert rest.strip() == "otlp: 0 of 1 spans delivered, 1 lost (shutdown 1)"
    # The program itself had ended well.
    assert code == 0


def test_a_spool_ends_the_wait(dead_endpoint: str, tmp_path: Path):
    """Spans that a spool can keep don't hold up the end of the process."""
    with start(dead_endpoint, OTEL_ROLLOUT_SPOOL=str(tmp_path), OTEL_ROLLOUT_SHUTDOWN_TIMEOUT_MS="3600000") as process:
        _, errors = process.communicate(timeout=DEADLINE)

    assert "1 spans wait on disk; once the backend is back: otel-rollout replay" in errors
    assert "Ctrl-C" not in errors
    assert list(tmp_path.rglob("*.otlp.zst"))
