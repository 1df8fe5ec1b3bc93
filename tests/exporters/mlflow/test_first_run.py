"""The first run of a short program on a SQLite file that doesn't exist: what it says at its end is in the file."""

from __future__ import annotations

import json
import os
import re
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest

PROGRAM = """
import json, sys
import otel_rollout
from otel_rollout import rollout_trace_attr, rollout_trace_op

otel_rollout.init("project", "experiment", backend="mlflow", **json.loads(sys.argv[1]))

@rollout_trace_op(kind="LLM")
def generate(messages):
    return {"role": "assistant", "content": "42"}

done = []
for number in range(32):
    with rollout_trace_attr(0, 1, number) as trajectory:
        generate([{"role": "user", "content": "q"}])
    done.append(trajectory)
for trajectory in done:
    trajectory.annotate(reward=1.0)
"""


@pytest.fixture
def run(tmp_path: Path):
    """Runs the program on a new file; returns what it wrote to stderr, and the numbers of spans and rewards stored."""
    pytest.importorskip("mlflow")

    def start(**settings: object) -> tuple[str, int, int]:
        path = tmp_path / "new.db"
        ended = subprocess.run(
            [sys.executable, "-c", PROGRAM, json.dumps(settings)],
            cwd=tmp_path,
            env={**os.environ, "MLFLOW_TRACKING_URI": f"sqlite:///{path}"},
            capture_output=True,
            text=True,
            check=True,
            timeout=600,
        )
        if not path.exists():
            return ended.stderr, 0, 0
        with closing(sqlite3.connect(path, timeout=60)) as database:
            found = [database.execute(f"select count(*) from {name}") for name in ("spans", "assessments")]
            spans, rewards = (each.fetchone()[0] for each in found)
        return ended.stderr, spans, rewards

    return start


def test_nothing_is_lost_by_default(run) -> None:
    """The end waits for the tables, however slow the machine makes them: all spans and rewards are there."""
    said, spans, rewards = run()
    assert (spans, rewards) == (64, 32), said
    assert "delivered" not in said


def test_a_timeout_that_is_given_is_kept(run) -> None:
    """What there was no time for is counted; the file has what was delivered, and at most what is unknown besides."""
    said, spans, _ = run(shutdown_timeout_ms=10)
    found = re.search(r"([\d,]+) of 96 spans delivered", said)
    unknown = re.search(r"([\d,]+) unknown", said)
    assert found, said
    assert int(found[1]) <= spans <= int(found[1]) + (int(unknown[1]) if unknown else 0)
    assert "waits for that" not in said
