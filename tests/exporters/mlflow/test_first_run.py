"""The first run of a short program on a SQLite file that doesn't exist: what it says at its end is in the file."""

from __future__ import annotations

import json
import os
import sqlite3
import subprocess
import sys
from collections import Counter
from contextlib import closing
from pathlib import Path
from typing import Any, NamedTuple

import pytest

PROGRAM = """
import atexit, dataclasses, json, sys

@atexit.register  # runs after otel_rollout's, which is registered later
def say():
    print(json.dumps(dataclasses.asdict(otel_rollout.stats())), str(otel_rollout.stats()), sep="\\n")

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


class Ended(NamedTuple):
    """What the program wrote to stderr, its final `stats()` with their text, and the rows of spans and rewards."""

    said: str
    counts: dict[str, Any]
    text: str
    spans: int
    rewards: int


@pytest.fixture
def run(tmp_path: Path):
    """Runs the program on a new file."""
    pytest.importorskip("mlflow")

    def start(**settings: object) -> Ended:
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
        counts, text = ended.stdout.splitlines()
        found = [0, 0]
        if path.exists():
            with closing(sqlite3.connect(path, timeout=60)) as database:
                tables = {name for (name,) in database.execute("select name from sqlite_master")}
                found = [
                    database.execute(f"select count(*) from {name}").fetchone()[0] if name in tables else 0
                    for name in ("spans", "assessments")
                ]
        return Ended(ended.stderr, json.loads(counts)["exporters"]["mlflow"], text, *found)

    return start


@pytest.mark.parametrize("settings", [{}, {"shutdown_timeout_ms": 10}])
def test_the_counts_the_last_line_and_the_file_agree(run, settings) -> None:
    """Each span and reward is delivered, lost or unknown; the file has what was delivered, and some of the unknown."""
    ended = run(**settings)
    counts, rewards = ended.counts, ended.counts["follow_up_requests"]["rewards"]
    lost, unknown = Counter(counts["lost"]), counts["lost"].get("unknown", 0)
    assert (counts["recorded"], counts["queued"], counts["spooled"]) == (96, 0, 0)
    assert counts["delivered"] + lost.total() == 96
    # The span of a late reward is no row: its assessment is.
    assert counts["delivered"] - 32 <= ended.spans <= counts["delivered"] + unknown, ended.said
    assert rewards["waiting"] == 0
    assert rewards["done"] <= ended.rewards <= rewards["done"] + rewards["lost"].get("unknown", 0), ended.said
    # Only a loss is said without being asked for.
    is_whole = not lost and not rewards["lost"]
    assert "delivered" not in ended.said if is_whole else ended.said.rstrip().endswith(ended.text), ended.said
    assert f"mlflow: {counts['delivered']} of 96 spans delivered" in ended.text
    if not settings:
        # The end waits for the tables, however slow the machine makes them.
        assert (ended.spans, ended.rewards) == (64, 32), ended.said
        assert (counts["delivered"], rewards["done"]) == (96, 32)
    else:
        assert "waits for that" not in ended.said
