"""One tracer in a process of its own: takes commands as JSON lines on stdin and answers each with a line on stdout.

`python -m benchmarks.worker TRACER on|off`
"""

from __future__ import annotations

import json
import os
import sys
from importlib.metadata import version
from typing import Any

from benchmarks.bursts import Burst
from benchmarks.memory import measure_memory
from benchmarks.stall import measure_stall
from benchmarks.tracers import load_tracer
from benchmarks.tracers.tracer import Transport
from benchmarks.workloads import WORKLOADS


class Worker:
    """What answers the commands.

    Args:
        name: Which tracer.
        is_on: Whether it traces.
    """

    def __init__(self, name: str, *, is_on: bool) -> None:
        self.tracer = load_tracer(name)
        self.transport = Transport()
        self._is_on = is_on
        self._bursts: dict[str, Burst] = {}
        if is_on:
            self.tracer.start(self.transport)
        else:
            self.tracer.start_off()

    def answer(self, command: dict[str, Any]) -> dict[str, float]:
        """Make the measurement that `command` asks for."""
        if command["measure"] == "stall":
            return measure_stall(self.tracer, self.transport)
        if command["measure"] == "memory":
            return measure_memory(self.tracer, self.transport, command["calls"])
        name = command["workload"]
        if name not in self._bursts:
            self._bursts[name] = Burst(WORKLOADS[name], self.tracer, self.transport if self._is_on else None)
        return self._bursts[name].run()


def main() -> None:
    """Answer commands until stdin ends."""
    # Some tracers print; stdout is for answers only.
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)
    name, switch = sys.argv[1:]
    try:
        worker = Worker(name, is_on=switch == "on")
        versions = {"sdk": version("opentelemetry-sdk"), "python": sys.version.split()[0]}
        answers.write(json.dumps({"ready": versions}) + "\n")
    except Exception as error:
        answers.write(json.dumps({"failed": f"{type(error).__name__}: {error}"}) + "\n")
        return
    for line in sys.stdin:
        try:
            result: dict[str, Any] = worker.answer(json.loads(line))
        except Exception as error:
            result = {"failed": f"{type(error).__name__}: {error}"}
        answers.write(json.dumps(result) + "\n")
    # Without waiting for exporters that hang on purpose, or for the atexit hooks of tracers.
    os._exit(0)


if __name__ == "__main__":
    main()
