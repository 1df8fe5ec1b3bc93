"""The servers that the doctor is tried on; each starts once, when a test first asks for it."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

# mlflow reports its use to its makers unless it is told not to, and reads this when it is imported.
os.environ["MLFLOW_DISABLE_TELEMETRY"] = "true"

TESTS = Path(__file__).resolve().parent.parent
# Helpers that no installed package holds; appended, so that an installed otel_rollout is what is tested.
sys.path += [str(TESTS), str(TESTS.parent / "scripts")]


def environment(name: str) -> Path:
    """Return a server's virtual environment; skip, saying why, where it can't be made."""
    try:
        return import_module("environments").ensure(name)
    except subprocess.CalledProcessError as error:
        if os.environ.get("OTEL_ROLLOUT_REQUIRE_SERVERS"):
            raise
        pytest.skip(f"the {name} server can't be installed here: {error}")


@pytest.fixture(scope="session")
def uncaptured(request: pytest.FixtureRequest) -> Callable[[], AbstractContextManager[None]]:
    """Make a context in which what is printed reaches the terminal."""
    return request.config.pluginmanager.getplugin("capturemanager").global_and_fixture_disabled


@pytest.fixture(scope="session")
def phoenix(uncaptured: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """A Phoenix with an empty store."""
    module = import_module("servers.phoenix_server")
    folder = tmp_path_factory.mktemp("phoenix")
    with module.Phoenix(environment("phoenix"), folder=folder, uncaptured=uncaptured) as server:
        yield server


@pytest.fixture(scope="session")
def mlflow_server(uncaptured: Any) -> Iterator[Any]:
    """An MLflow server with an empty store."""
    with import_module("servers.mlflow_server").Mlflow(environment("mlflow"), uncaptured=uncaptured) as server:
        yield server


@pytest.fixture(scope="session")
def weave_server(uncaptured: Any) -> Iterator[Any]:
    """A Weave trace server with an empty store."""
    module = import_module("servers.weave_server")
    with module.WeaveServer(environment("weave"), store="memory", uncaptured=uncaptured) as server:
        yield server


@pytest.fixture
def unused_address() -> str:
    """An address that nobody listens at."""
    return f"http://127.0.0.1:{import_module('servers.process').free_port()}"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Let pass what mlflow's own imports warn of with a newer SQLAlchemy."""
    for item in items:
        if Path(__file__).parent in item.path.parents:
            item.add_marker(pytest.mark.filterwarnings("ignore:The ``noload`` loader strategy is deprecated"))
