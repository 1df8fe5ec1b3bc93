"""Training processes, receivers that fail as they are told, and a small disk."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

HERE = Path(__file__).resolve().parent
# Helpers that no installed package holds.
sys.path.append(str(HERE))

from faulty_receiver import FaultyReceiver  # noqa: E402
from trainer import Trainer  # noqa: E402

MAX_SECONDS_FACTOR, MAX_SECONDS_MORE = 10.0, 8.0
"""How much longer training may take than untraced: less than what one wait for a backend would add."""


@pytest.fixture
def receiver() -> Iterator[FaultyReceiver]:
    """An OTLP receiver."""
    with FaultyReceiver() as server:
        yield server


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Callable[..., Trainer]]:
    """Starts training processes; keyword arguments are settings of `init`, upper-case ones environment variables."""
    started: list[Trainer] = []

    def run(receiver: FaultyReceiver | None = None, *, launcher: str = "", **given: Any) -> Trainer:
        variables = {key: str(value) for key, value in given.items() if key.isupper()}
        settings = {key: value for key, value in given.items() if not key.isupper()}
        if receiver is not None:
            variables = {"BACKENDS": "otlp", "OTEL_EXPORTER_OTLP_ENDPOINT": receiver.url, **variables}
        trainer = Trainer(tmp_path / f"trainer-{len(started)}", variables, settings, launcher=launcher)
        started.append(trainer)
        return trainer

    yield run
    for trainer in started:
        trainer.close()


@pytest.fixture
def family(tmp_path: Path) -> Callable[..., tuple[list[str], dict[str, Any]]]:
    """Runs a family of processes, and returns the ids of all its spans and the parent's counts."""

    def run(*arguments: str, **variables: str) -> tuple[list[str], dict[str, Any]]:
        own = {"SENT": str(tmp_path / "sent"), "COUNTS": str(tmp_path / "counts"), "PROJECT": "family"}
        done = subprocess.run(
            [sys.executable, "-W", "ignore::DeprecationWarning", str(HERE / "programs" / "family.py"), *arguments],
            env={**os.environ, **own, **variables},
            check=False,
            capture_output=True,
            text=True,
            timeout=90,
        )
        assert done.returncode == 0, done.stderr
        ids = (tmp_path / "sent").read_bytes()
        counts = json.loads((tmp_path / "counts").read_text())["exporters"]
        return [ids[place : place + 8].hex() for place in range(0, len(ids), 8)], counts

    return run


@pytest.fixture
def replay() -> Callable[..., subprocess.CompletedProcess[str]]:
    """Runs `otel-rollout replay` over a spool, and removes what is delivered."""

    def run(folder: Path, backend: str, **variables: str) -> subprocess.CompletedProcess[str]:
        command = ["replay", str(folder), "--backend", backend, "--remove"]
        return subprocess.run(
            [sys.executable, "-m", "otel_rollout.cli", *command],
            env={**os.environ, **variables},
            check=False,
            capture_output=True,
            text=True,
            timeout=90,
        )

    return run


@pytest.fixture(scope="session")
def untraced(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[..., dict[str, Any]]]:
    """Trains without tracing, for the result and the time to compare with; each kind of training once."""
    trainer = Trainer(tmp_path_factory.mktemp("untraced") / "trainer", {}, {})
    known: dict[str, dict[str, Any]] = {}

    def train(*arguments: Any, **given: Any) -> dict[str, Any]:
        key = repr((arguments, sorted(given.items())))
        if key not in known:
            known[key] = trainer.train(*arguments, **given)
        return known[key]

    yield train
    trainer.close()


@pytest.fixture
def train(untraced: Callable[..., dict[str, Any]]) -> Callable[..., dict[str, Any]]:
    """Has a process train, and checks that it noticed nothing: results, exceptions, and no wait for a backend."""

    def run(trainer: Trainer, *arguments: Any, **given: Any) -> dict[str, Any]:
        expected = untraced(*arguments, **given)
        done = trainer.train(*arguments, **given)
        assert done["result"] == expected["result"]
        assert done["seconds"] < MAX_SECONDS_FACTOR * expected["seconds"] + MAX_SECONDS_MORE
        return done

    return run


def pytest_itemcollected(item: pytest.Item) -> None:
    """Leave all of this out where only tests are wanted that take seconds: each one starts processes and servers."""
    item.add_marker(pytest.mark.integration)
