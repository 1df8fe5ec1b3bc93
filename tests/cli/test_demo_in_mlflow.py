"""`otel-rollout demo` as a user runs it first: into MLflow's file, which needs no server."""

from __future__ import annotations

import importlib.util
import subprocess
import sys

import pytest

from otel_rollout import read_trajectories
from tests.cli.test_demo import LIMIT, run

pytestmark = pytest.mark.integration


@pytest.fixture
def folder(tmp_path):
    """A working folder without traces."""
    missing = [
        name
        for name in ("mlflow", "rich", "sqlalchemy", "alembic", "tokenizers")
        if importlib.util.find_spec(name) is None
    ]
    if missing:
        pytest.skip(f"not installed: {', '.join(missing)}")
    return tmp_path


def test_the_printed_query_finds_the_trajectories(folder):
    """Nothing is set: the traces are in mlruns.db, and the lines of the query, pasted into Python, find them."""
    # A busy machine takes a minute to open the store.
    done = run("--samples", "4", "--timeout", "150", folder=folder)
    assert done.returncode == 0, done.stderr
    assert (folder / "mlruns.db").exists()
    lines = [line.strip() for line in done.stdout.splitlines() if line.startswith("      ")]
    query = lines[lines.index("import mlflow") :][:6]
    program = "\n".join(query)
    found = subprocess.run(
        [sys.executable, "-c", program], check=False, capture_output=True, text=True, timeout=LIMIT, cwd=folder
    )
    assert found.stdout.splitlines()[-1:] == ["16 trajectories"], found.stderr
    folders = {each.experiment_name: each for each in read_trajectories(folder / "rollout-traces", step=1)}
    assert len(folders) == 1
    assert lines[-1].endswith(f"otel-rollout view {folder / 'rollout-traces'}")
