"""What pages ask for, measured in a process of its own for each figure that a cache would change."""

from __future__ import annotations

import json
import resource
import shutil
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.viewer.trajectories import NEEDLE
from otel_rollout.catalog import Run, Search
from otel_rollout.catalog.database import catalogs_folder

MEGABYTE = 10**6


@dataclass(frozen=True)
class Figure:
    """A measurement.

    Args:
        name: What was asked for.
        measured: The median of the rounds.
        unit: Its unit: s or MB.
        goal: What it should be at most.
        cpu: The median seconds of CPU time, child processes included; None if it was not measured.
    """

    name: str
    measured: float
    unit: str = "s"
    goal: float | None = None
    cpu: float | None = None


def measure_step(folder: Path, rounds: int) -> list[Figure]:
    """Measure one step: its summary made and kept, its groups, one trajectory, searches."""
    return [
        _timed("the step's summary, made", lambda: _in_process("make", folder), rounds, 1.0),
        _timed("the step's summary, kept", lambda: _in_process("steps", folder), rounds, 0.5),
        _timed("the step's groups and trajectories", lambda: _in_process("step", folder), rounds, 1.0),
        _timed("the step's table, `ls --step`", lambda: _listed(folder), rounds),
        _timed("a group, warm", lambda: _in_process("group", folder), rounds, 0.3),
        _timed("the same prompt at all steps", lambda: _in_process("same_prompt", folder), rounds),
        _timed("a trajectory with its spans, warm", lambda: _in_process("trajectory", folder), rounds, 0.1),
        _timed("a trajectory by its id, cold", lambda: _in_process("by_id", folder), rounds),
        _timed("a search of all text", lambda: _in_process("search", folder), rounds, 3.0),
        _memory("memory after all of it", "everything", folder),
    ]


def measure_run(folder: Path, steps: int, rounds: int) -> list[Figure]:
    """Measure a run of many steps."""
    return [
        _timed(f"{steps} steps, made", lambda: _in_process("make", folder), 1, 30.0),
        _timed(f"{steps} steps, kept", lambda: _in_process("steps", folder), rounds, 1.0),
        _timed(f"a prompt at all {steps} steps", lambda: _in_process("same_prompt", folder), rounds),
        _timed(f"a trajectory of {steps} steps by its id, cold", lambda: _in_process("by_id", folder), rounds),
        _memory(f"memory after 12 of {steps} steps", "everything", folder),
    ]


class _Asked:
    """The questions; each returns the seconds, wall and CPU, of what is measured of it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.run = Run([folder])

    def make(self) -> tuple[float, float]:
        """Read the folder into a new catalog, and make the steps' summaries."""
        shutil.rmtree(catalogs_folder(), ignore_errors=True)
        return _seconds(self.run.steps)

    def steps(self) -> tuple[float, float]:
        """Read the summaries that are kept."""
        return _seconds(self.run.steps)

    def step(self) -> tuple[float, float]:
        """Read a step for the first time."""
        [step] = self.run.steps(1)
        return _seconds(lambda: (self.run.groups(step), self.run.summaries(step)))

    def group(self) -> tuple[float, float]:
        """Look at a group of a step that has been read."""
        [step] = self.run.steps(1)
        groups = self.run.groups(step)
        prompt = groups[len(groups) // 2].sample_index
        return _seconds(lambda: self.run.rollouts(self.run.group(step, prompt) or groups[0]))

    def same_prompt(self) -> tuple[float, float]:
        """Find a prompt at all steps."""
        first, *_ = self.run.steps()
        return _seconds(lambda: self.run.same_prompt(5, first))

    def trajectory(self) -> tuple[float, float]:
        """Read the spans of a trajectory of a step that has been read."""
        trace_id = self.run.summaries(self.run.steps(1)[0])[-1].trace_id
        return _seconds(lambda: [span.attributes for span in self.run.trajectory(trace_id).spans])

    def by_id(self) -> tuple[float, float]:
        """Find a trajectory of the last step by its id alone."""
        trace_id = Run([self.folder]).summaries(self.run.steps()[-1])[-1].trace_id
        return _seconds(lambda: self.run.summary(trace_id))

    def search(self) -> tuple[float, float]:
        """Search all text of the run's first step."""
        return _seconds(lambda: list(Search(self.run.read(step=1), NEEDLE.upper())))

    def everything(self) -> tuple[float, float]:
        """Look at up to a dozen steps, and search one."""
        for step in self.run.steps()[:12]:
            self.run.groups(step)
        self.search()
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        return float(peak if sys.platform == "darwin" else peak * 1024), 0.0


def _seconds(ask: Callable[[], Any]) -> tuple[float, float]:
    cpu, wall = _cpu_seconds(), time.perf_counter()
    ask()
    return time.perf_counter() - wall, _cpu_seconds() - cpu


def _cpu_seconds() -> float:
    used = (resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return sum(each.ru_utime + each.ru_stime for each in used)


def _listed(folder: Path) -> tuple[float, float]:
    command = [sys.executable, "-m", "otel_rollout.cli", "ls", str(folder), "--step", "1"]
    return _seconds(lambda: subprocess.run(command, check=True, stdout=subprocess.DEVNULL))


def _in_process(question: str, folder: Path) -> tuple[float, float]:
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.viewer.measure", question, str(folder)],
        check=True,
        capture_output=True,
        text=True,
    )
    wall, cpu = json.loads(done.stdout)
    return wall, cpu


def _timed(name: str, ask: Callable[[], tuple[float, float]], rounds: int, goal: float | None = None) -> Figure:
    walls, cpus = zip(*(ask() for _ in range(rounds)), strict=True)
    return Figure(name, statistics.median(walls), "s", goal, statistics.median(cpus))


def _memory(name: str, question: str, folder: Path) -> Figure:
    return Figure(name, _in_process(question, folder)[0] / MEGABYTE, "MB", 500)


if __name__ == "__main__":
    print(json.dumps(getattr(_Asked(Path(sys.argv[2])), sys.argv[1])()))
