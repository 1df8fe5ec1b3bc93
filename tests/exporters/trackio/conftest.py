"""A real trackio: its package for our worker process, its command line for reading back, its page."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from otel_rollout_trackio import TrackioSpanExporter
from tests.servers.trackio_server import TrackioServer

ROOT = Path(__file__).resolve().parents[3]


class Trackio:
    """A folder of trackio's, and its command line.

    Args:
        environment: The virtual environment that trackio is installed in.
        folder: The folder.
    """

    def __init__(self, environment: Path, folder: Path) -> None:
        self.environment = environment
        self.folder = folder

    def ask(self, *arguments: str) -> Any:
        """Run a command of trackio's that prints JSON."""
        done = subprocess.run(
            [self.environment / "bin" / "trackio", *arguments, "--json"],
            env={**os.environ, "TRACKIO_DIR": str(self.folder), "HF_HUB_OFFLINE": "1"},
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return json.loads(done.stdout)

    def traces(self, project: str, run: str = "exp-1") -> list[dict[str, Any]]:
        """Return the stored traces of a run, as `trackio list traces` prints them."""
        found: list[dict[str, Any]] = self.ask("list", "traces", "--project", project, "--run", run)["traces"]
        return found

    def run_program(self, *arguments: str, **variables: str) -> subprocess.Popen[str]:
        """Start a Python program in trackio's environment, with otel-rollout from the source tree."""
        return subprocess.Popen(
            [str(self.environment / "bin" / "python"), *arguments],
            env={
                **os.environ,
                "PYTHONPATH": f"{ROOT}:{ROOT / 'exporters'}",
                "TRACKIO_DIR": str(self.folder),
                **variables,
            },
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )


@pytest.fixture
def trackio(environment: Callable[[str], Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Trackio:
    """trackio, which the exporter's worker process imports too: it gets the path of this one."""
    made = environment("trackio")
    (packages,) = (made / "lib").glob("python*/site-packages")
    monkeypatch.setattr(sys, "path", [*sys.path, str(packages)])
    for variable in ("TRACKIO_DIR", "TRACKIO_SERVER_URL", "TRACKIO_SPACE_ID", "TRACKIO_WRITE_TOKEN"):
        monkeypatch.delenv(variable, raising=False)
    return Trackio(made, tmp_path / "trackio")


@pytest.fixture
def exporter(trackio: Trackio) -> Iterator[TrackioSpanExporter]:
    """An exporter that writes into the folder."""
    made = TrackioSpanExporter(folder=trackio.folder)
    yield made
    made.shutdown()


@pytest.fixture
def server(trackio: Trackio) -> Iterator[TrackioServer]:
    """trackio's page and API over the folder."""
    with TrackioServer(trackio.environment, trackio.folder) as running:
        yield running
