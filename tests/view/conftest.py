"""A folder with two steps of two groups, and a viewer of it."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from otel_rollout.folder.folder_writer import FolderWriter
from tests.trace_folder.recordings import make_trajectory

pytest.importorskip("starlette")
pytest.importorskip("uvicorn")

from tests.servers.browser import Browser
from tests.view.looking import Looking, look
from tests.view.viewer import Viewer

if TYPE_CHECKING:
    from playwright.sync_api import Page

FOLDER = Path(__file__).parent
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
def folder(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run that has ended: what the module's `WRITE` writes, or `write_run`."""
    path = tmp_path_factory.mktemp("run") / "traces"
    getattr(request.module, "WRITE", lambda path: write_run(path).close())(path)
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
def viewer(folder: Path) -> Iterator[Viewer]:
    """A viewer of that run, for the tests of a module that don't change it."""
    with Viewer(folder) as running:
        yield running


@pytest.fixture(scope="module")
def looking(browser: Browser, viewer: Viewer) -> Iterator[Looking]:
    """A page of it, which the tests of a module share; in the end it has complained of nothing."""
    with look(browser, viewer) as shown:
        yield shown
        assert shown.faults == []


@pytest.fixture(scope="module")
def demo(demo_folder: Path) -> Iterator[Viewer]:
    """A viewer of the demo."""
    with Viewer(demo_folder) as running:
        yield running


@pytest.fixture(scope="module")
def page(browser: Browser, demo: Viewer) -> Iterator[Page]:
    """The demo's pages."""
    with look(browser, demo) as shown:
        shown.page.context.grant_permissions(["clipboard-read", "clipboard-write"])
        yield shown.page
        assert shown.faults == []
