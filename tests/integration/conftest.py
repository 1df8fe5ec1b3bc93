"""The scenario programs of the integration tests, and what stands between them and Phoenix."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.faults.faulty_receiver import FaultyReceiver
from tests.servers.fixtures import missing

PROGRAMS = Path(__file__).resolve().parent / "programs"


@pytest.fixture
def proxy(phoenix: Any) -> Iterator[Any]:
    """A proxy in front of Phoenix that counts how often each span was taken."""
    with FaultyReceiver(phoenix.address) as server:
        yield server


class Programs:
    """Runs the scenario programs, each in a process of its own that only the environment tells where traces go.

    Args:
        folder: Where reports are written.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def environment(self, project: str, **variables: str) -> dict[str, str]:
        """Return the environment of a program: this process's without its OTEL variables, with those given."""
        inherited = {key: value for key, value in os.environ.items() if not key.startswith("OTEL_")}
        return {
            **inherited,
            "PYTHONWARNINGS": "error",
            "SCENARIO_PROJECT": project,
            "SCENARIO_REPORT": str(self.report_file(project)),
            **variables,
        }

    def report_file(self, project: str) -> Path:
        """Return where the program that traces into a project writes its report."""
        return self._folder / f"{project}.json"

    def report(self, project: str) -> dict[str, Any]:
        """Return what the program that traced into a project reported."""
        return json.loads(self.report_file(project).read_text())

    def run(self, program: str, project: str, *, launcher: tuple[str, ...] = (), **variables: str) -> Any:
        """Run a program to its end.

        Args:
            program: The stem of a file in programs/.
            project: What it traces into.
            launcher: Arguments of the interpreter before the program.
            variables: The environment.

        Returns:
            The finished process; its output is text.
        """
        command = [sys.executable, *launcher, str(PROGRAMS / f"{program}.py")]
        finished = subprocess.run(
            command,
            env=self.environment(project, **variables),
            check=False,
            capture_output=True,
            text=True,
            timeout=150,
        )
        assert finished.returncode == 0, finished.stdout + finished.stderr
        return finished

    def start(self, program: str, project: str, **variables: str) -> subprocess.Popen[str]:
        """Start a program that reads its cues from stdin."""
        return subprocess.Popen(
            [sys.executable, str(PROGRAMS / f"{program}.py")],
            env=self.environment(project, **variables),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )


@pytest.fixture(scope="session")
def programs(tmp_path_factory: pytest.TempPathFactory) -> Programs:
    """The scenario programs."""
    return Programs(tmp_path_factory.mktemp("reports"))


def otlp(server: Any, protocol: str) -> dict[str, str]:
    """Return the variables that send a program's traces to a server."""
    return {
        "OTEL_TRACES_EXPORTER": "otlp",
        "OTEL_EXPORTER_OTLP_ENDPOINT": server.endpoint(protocol),
        "OTEL_EXPORTER_OTLP_PROTOCOL": protocol,
    }


@pytest.fixture(scope="session", name="otlp")
def otlp_variables() -> Callable[[Any, str], dict[str, str]]:
    """Make the variables that send a program's traces to a server."""
    return otlp


@pytest.fixture(scope="session")
def instrument() -> tuple[str, ...]:
    """The interpreter's arguments that are `opentelemetry-instrument`."""
    module = "opentelemetry.instrumentation.auto_instrumentation"
    command = [sys.executable, "-c", f"import {module}"]
    loaded = subprocess.run(command, capture_output=True, text=True, check=False)
    if loaded.returncode:
        missing(f"opentelemetry-distro is not installed, or not in a form that works: {loaded.stderr.strip()[-120:]}")
    return ("-c", f"from {module} import run; run()", sys.executable)
