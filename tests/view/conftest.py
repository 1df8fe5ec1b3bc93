"""A folder with two steps of two groups, and a viewer of it."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from otel_rollout.folder.folder_writer import FolderWriter
from tests.trace_folder.recordings import make_trajectory

FOLDER = Path(__file__).parent

pytest.importorskip("starlette")
pytest.importorskip("uvicorn")

WALK = "test_walk.py"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark the tests of pages in a browser; but for one walk through all of them they are slow."""
    for item in items:
        if item.path.parent == FOLDER and "browser" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.integration)
            if item.path.name != WALK:
                item.add_marker(pytest.mark.slow)


def write_run(folder: Path, steps: range = range(1, 3)) -> FolderWriter:
    """Write steps of two groups of two rollouts, and return the writer, which is still open."""
    writer = FolderWriter(folder)
    for step in steps:
        for sample in range(2):
            for rollout in range(2):
                writer.write(make_trajectory(step, sample, rollout, reward=float(rollout)))
    return writer


@pytest.fixture(scope="session", autouse=True)
def _frequent_looks() -> Iterator[None]:
    """Have viewers look for changes all the time: a test waits for what it has changed, and not for the next second."""
    with pytest.MonkeyPatch.context() as patch:
        for name in ("SECONDS_BETWEEN_LOOKS", "SECONDS_BETWEEN_LOCK_CHECKS"):
            patch.setattr(f"otel_rollout.look.view.run_state.{name}", 0.05)
        yield


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run that has ended."""
    path = tmp_path_factory.mktemp("run") / "traces"
    write_run(path).close()
    return path


@pytest.fixture(scope="session")
def demo_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of the demo: two steps of six prompts with four rollouts."""
    path = tmp_path_factory.mktemp("demo")
    options = ["--backend", "file", "--steps", "2", "--samples", "6", "--rollouts", "4"]
    command = [sys.executable, "-m", "otel_rollout.cli", "demo", *options]
    subprocess.run(command, cwd=path, check=True, capture_output=True, timeout=120)
    return path / "rollout-traces"


@pytest.fixture(scope="module")
def viewer(folder: Path):
    """A viewer of that run, for the tests of a module that don't change it."""
    from tests.view.viewer import Viewer

    with Viewer(folder) as running:
        yield running
