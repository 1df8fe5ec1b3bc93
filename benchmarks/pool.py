"""The processes that measure, one per tracer and switch; only one of them works at a time."""

from __future__ import annotations

import json
import os
import subprocess
import threading
from pathlib import Path
from typing import Any, NamedTuple

ROOT = Path(__file__).resolve().parent.parent
ANSWER_SECONDS = 120.0
"""After this a worker that does not answer is ended."""


class WorkerFailedError(Exception):
    """A worker could not start or make a measurement; the message says why."""


class Subject(NamedTuple):
    """A tracer, on or off."""

    tracer: str
    switch: str


class WorkerProcess:
    """A worker, starting; `wait_until_ready` comes before the first measurement.

    Args:
        subject: What it measures.
        python: The interpreter of the environment that the tracer is installed in.
    """

    def __init__(self, subject: Subject, python: str) -> None:
        environment = {key: value for key, value in os.environ.items() if not key.startswith("OTEL_")}
        environment["PYTHONPATH"] = str(ROOT)
        self._process = subprocess.Popen(
            [python, "-m", "benchmarks.worker", *subject],
            cwd=ROOT,
            env=environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )

    def wait_until_ready(self) -> dict[str, str]:
        """Return what the worker runs on.

        Raises:
            WorkerFailedError: It could not start.
        """
        versions: dict[str, str] = self._read()["ready"]
        return versions

    def measure(self, **command: Any) -> dict[str, float]:
        """Have a measurement made.

        Raises:
            WorkerFailedError: It failed, or took too long.
        """
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(json.dumps(command) + "\n")
            self._process.stdin.flush()
        except OSError as error:
            raise WorkerFailedError(f"the worker ended: {error}") from None
        return self._read()

    def close(self) -> None:
        """End the process."""
        self._process.kill()
        self._process.communicate()

    def _read(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        watch = threading.Timer(ANSWER_SECONDS, self._process.kill)
        watch.start()
        line = self._process.stdout.readline()
        watch.cancel()
        if not line:
            self.close()
            raise WorkerFailedError("the worker ended without an answer")
        answer: dict[str, Any] = json.loads(line)
        if "failed" in answer:
            self.close()
            raise WorkerFailedError(answer["failed"])
        return answer
