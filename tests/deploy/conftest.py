"""docker-compose.yml as Docker Compose reads it, and the services of a profile started on machines of their own."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, ExitStack
from pathlib import Path
from typing import Any

import pytest

from scripts import docker_compose
from tests.deploy import network
from tests.deploy.stack import Stack
from tests.servers.fixtures import missing

ROOT = Path(__file__).resolve().parents[2]


class Compose:
    """Docker Compose, asked what it makes of docker-compose.yml.

    Args:
        program: The program.
    """

    def __init__(self, program: Path) -> None:
        self._program = program

    def model(self, *options: str, **variables: str) -> dict[str, Any]:
        """Return what would be started, with all variables and defaults filled in, and no variables but these."""
        checked = subprocess.run(
            [str(self._program), *options, "config", "--format", "json"],
            cwd=ROOT,
            env={"PATH": os.environ["PATH"], "HOME": "/nonexistent", **variables},
            capture_output=True,
            text=True,
            check=False,
            timeout=60,
        )
        assert checked.returncode == 0, checked.stderr
        return json.loads(checked.stdout)


@pytest.fixture(scope="session")
def compose() -> Compose:
    """Docker Compose; skips, saying why, where Debian's package can't be had."""
    try:
        return Compose(docker_compose.ensure())
    except docker_compose.NotHereError as error:
        pytest.skip(f"Docker Compose can't be had: {error}")
    except subprocess.CalledProcessError as error:
        missing(f"Docker Compose could not be fetched: {error}")


@pytest.fixture(scope="session")
def stacks(
    compose: Compose,
    environment: Callable[[str], Path],
    collector_program: Path,
    uncaptured: Callable[[], AbstractContextManager[None]],
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Mapping[str, Stack]]:
    """`both`: mlflow-phoenix with an agent before it; `folder`; `careless`: MLflow without its --allowed-hosts."""
    reason = network.why_not()
    if reason:
        pytest.skip(reason)
    models = {
        "both": compose.model("--profile", "mlflow-phoenix"),
        "folder": compose.model("--profile", "folder", OTEL_ROLLOUT_RECEIVE_TOKEN="a-token"),
    }
    careless = compose.model("--profile", "mlflow")
    service = careless["services"]["mlflow"]
    service["command"] = [part for part in service["command"] if not part.startswith("--allowed-hosts")]
    models["careless"] = {"services": {"mlflow": service}}
    folders = {name: environment(name) for name in ("phoenix", "mlflow")}
    with ExitStack() as running, ThreadPoolExecutor() as starting:
        made = {
            name: Stack(model, folders, collector_program, tmp_path_factory.mktemp(name), uncaptured=uncaptured)
            for name, model in models.items()
        }
        for stack in made.values():
            running.enter_context(stack)
        list(starting.map(Stack.start, made.values()))
        made["both"].start_agent()
        yield made
