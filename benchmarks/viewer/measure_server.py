"""What a browser waits for: the answers of `otel-rollout view` over HTTP."""

from __future__ import annotations

import http.client
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from benchmarks.viewer.measure import Figure


def measure_server(folder: Path, rounds: int) -> list[Figure]:
    """Measure what a browser waits for, over HTTP from a server of its own."""
    begin = time.perf_counter()
    with _server(folder) as ask:
        ask("api/run")
        started = Figure("the page Run, HTTP, with the start of the server", time.perf_counter() - begin)
        step = ask("api/step/1")
        group = step["groups"][len(step["groups"]) // 2]
        paths = [
            ("the page Run", "api/run", 0.5),
            ("the page Step", "api/step/1", 1.0),
            ("the page Group", f"api/step/1/group?sample={group['sample_index']}", 0.3),
            ("the page Trajectory", f"api/trajectory/{group['trace_ids'][0]}", 0.1),
            ("the page Timeline", "api/step/1/timeline", None),
        ]
        asked = [
            Figure(f"{name}, HTTP, warm", statistics.median(_asked(ask, path) for _ in range(rounds)), "s", goal)
            for name, path, goal in paths
        ]
        return [started, *asked]


def _asked(ask: Callable[[str], Any], path: str) -> float:
    start = time.perf_counter()
    ask(path)
    return time.perf_counter() - start


@contextmanager
def _server(folder: Path) -> Iterator[Callable[[str], Any]]:
    """Run `otel-rollout view` on a folder; gives a function that asks for a path."""
    environment = {**os.environ, "PYTHONUNBUFFERED": "1"}
    command = [sys.executable, "-m", "otel_rollout.cli", "view", str(folder), "--no-browser", "--port", "0"]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdout=pipe, stderr=subprocess.STDOUT, text=True, env=environment) as server:
        try:
            address = _address(server)
            host, token = address.split("//")[1].split("/")[0], address.split("token=")[1]

            def ask(path: str) -> Any:
                connection = http.client.HTTPConnection(host, timeout=60)
                connection.request("GET", f"/{path}", headers={"Authorization": f"Bearer {token}"})
                answer = connection.getresponse()
                body = answer.read()
                connection.close()
                if answer.status != http.client.OK:
                    raise RuntimeError(f"{path}: {answer.status} {body[:200]!r}")
                return json.loads(body)

            yield ask
        finally:
            server.terminate()


def _address(server: subprocess.Popen[str]) -> str:
    for line in server.stdout or ():
        for word in line.split():
            if word.startswith("http://") and "token=" in word:
                return word
    raise RuntimeError("the server has printed no address")
