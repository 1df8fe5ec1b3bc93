"""trackio's dashboard for tests: its page, and the HTTP API that reads traces back."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any

import requests

from tests.installed import import_path

from .process import ServerProcess, answers_http, free_port

__all__ = ["TrackioServer"]


class TrackioServer:
    """`trackio show` on a free port, without the network.

    Args:
        environment: The virtual environment that trackio is installed in.
        folder: trackio's folder.
        uncaptured: See `ServerProcess`.
    """

    write_token = "token-of-the-tests"

    def __init__(
        self,
        environment: Path,
        folder: Path,
        *,
        uncaptured: Callable[[], AbstractContextManager[None]] = nullcontext,
    ) -> None:
        port = free_port()
        self.environment = environment
        self.folder = folder
        self.address = f"http://127.0.0.1:{port}"
        self._variables = {"TRACKIO_DIR": str(folder), "HF_HUB_OFFLINE": "1"}
        self.process = ServerProcess(
            "trackio",
            [str(environment / "bin" / "trackio"), "show", "--host", "127.0.0.1"],
            lambda: answers_http(self.address),
            environment={
                **self._variables,
                "TRACKIO_WRITE_TOKEN": self.write_token,
                "GRADIO_SERVER_PORT": str(port),
                # It opens the page in a browser otherwise.
                "BROWSER": "true",
            },
            uncaptured=uncaptured,
        )

    def traces(self, project: str, run: str = "exp-1") -> list[dict[str, Any]]:
        """Return the stored traces of a run."""
        answer = requests.post(f"{self.address}/api/get_traces", json={"project": project, "run": run}, timeout=60)
        answer.raise_for_status()
        found: list[dict[str, Any]] = answer.json()["data"]
        return found

    def command(self, *arguments: str) -> Any:
        """Return what a command of trackio's prints as JSON."""
        done = subprocess.run(
            [self.environment / "bin" / "trackio", *arguments, "--json"],
            env={**os.environ, **self._variables},
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return json.loads(done.stdout)

    def python(self, *arguments: str, **variables: str) -> subprocess.Popen[str]:
        """Start a Python program in trackio's environment, with otel-rollout from the source tree."""
        return subprocess.Popen(
            [str(self.environment / "bin" / "python"), *arguments],
            env={**os.environ, **self._variables, "PYTHONPATH": str(import_path()), **variables},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )

    def __enter__(self) -> TrackioServer:  # noqa: PYI034 - typing.Self needs Python 3.11
        self.process.start()
        return self

    def __exit__(self, *unused: object) -> None:
        self.process.stop()
