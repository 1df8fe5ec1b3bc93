"""One run: every tracer takes its turn at every workload in every round, so that all see the same machine."""

from __future__ import annotations

import sys
import time
from collections import defaultdict
from contextlib import suppress
from dataclasses import dataclass, field
from typing import NamedTuple

from benchmarks.pool import Subject, WorkerFailedError, WorkerProcess
from benchmarks.workloads import WORKLOADS

OFF_WORKLOADS = ("sync 2 KB", "async 2 KB")
"""Off is measured on these; what is switched off should not care what it would have captured."""


class Effort(NamedTuple):
    """How long is measured.

    Args:
        rounds: Turns of each tracer at each workload.
        warm_rounds: Turns before these that don't count: imports, caches, compiled signatures.
        stall_rounds: Turns at the event loop's stall.
        blocked_calls: Calls while the exporter hangs.
        workloads: Which of them.
    """

    rounds: int
    warm_rounds: int
    stall_rounds: int
    blocked_calls: int
    workloads: tuple[str, ...]


SMOKE_WORKLOADS = tuple(name for name in WORKLOADS if "500 KB" not in name)
FULL = Effort(rounds=8, warm_rounds=1, stall_rounds=4, blocked_calls=1000, workloads=tuple(WORKLOADS))
SMOKE = Effort(rounds=1, warm_rounds=0, stall_rounds=1, blocked_calls=350, workloads=SMOKE_WORKLOADS)
MEMORY_TRACERS = ("plain", "ours")
"""The others queue spans in the SDK's batch processor, as `plain` does."""


@dataclass
class Samples:
    """What was measured: the samples of one measure and subject, one per round.

    Args:
        values: By measure and subject.
        skipped: Why a tracer is missing.
        versions: What each tracer ran on.
    """

    values: dict[str, dict[Subject, list[float]]] = field(
        default_factory=lambda: defaultdict(lambda: defaultdict(list))
    )
    skipped: dict[str, str] = field(default_factory=dict)
    versions: dict[str, dict[str, str]] = field(default_factory=dict)


def run(pythons: dict[str, str], effort: Effort) -> Samples:
    """Measure.

    Args:
        pythons: The interpreter of each tracer.
        effort: How long.
    """
    samples = Samples()
    workers: dict[Subject, WorkerProcess] = {}
    started = time.monotonic()
    try:
        _progress(started, f"starting {', '.join(pythons)}")
        for name, python in pythons.items():
            for switch in ("on", "off"):
                subject = Subject(name, switch)
                workers[subject] = WorkerProcess(subject, python)
        for subject, worker in list(workers.items()):
            if not _is_ready(worker, subject, samples):
                del workers[subject]
        for number in range(-effort.warm_rounds, effort.rounds):
            _progress(started, f"round {number + 1} of {effort.rounds}")
            kept = samples if number >= 0 else Samples()
            _measure_round(workers, kept, effort.workloads, max(number, 0))
            samples.skipped.update(kept.skipped)
        for number in range(effort.stall_rounds):
            _progress(started, f"event loop, round {number + 1} of {effort.stall_rounds}")
            _measure_stall_round(workers, samples, number)
    finally:
        for worker in workers.values():
            worker.close()
    for name in MEMORY_TRACERS:
        if name not in samples.skipped:
            _progress(started, f"memory under a blocked exporter: {name}")
            _measure_memory(name, pythons[name], samples, effort.blocked_calls)
    _progress(started, "done")
    sys.stderr.write("\n")
    return samples


def _is_ready(worker: WorkerProcess, subject: Subject, samples: Samples) -> bool:
    try:
        samples.versions[subject.tracer] = worker.wait_until_ready()
    except WorkerFailedError as error:
        samples.skipped[subject.tracer] = str(error)
        return False
    return True


def _measure_round(
    workers: dict[Subject, WorkerProcess], samples: Samples, workloads: tuple[str, ...], number: int
) -> None:
    for workload in workloads:
        for subject in _rotated(workers, number):
            if subject.switch == "off" and workload not in OFF_WORKLOADS:
                continue
            try:
                measured = workers[subject].measure(measure="burst", workload=workload)
            except WorkerFailedError as error:
                _drop(workers, subject, samples, error)
                continue
            samples.values[f"caller {workload}"][subject].append(measured["caller"])
            if subject.switch == "on":
                samples.values[f"process {workload}"][subject].append(measured["process"])


def _measure_stall_round(workers: dict[Subject, WorkerProcess], samples: Samples, number: int) -> None:
    for subject in _rotated(workers, number):
        if subject.switch == "on":
            try:
                measured = workers[subject].measure(measure="stall")
            except WorkerFailedError as error:
                _drop(workers, subject, samples, error)
                continue
            for name, seconds in measured.items():
                samples.values[f"stall {name}"][subject].append(seconds)


def _measure_memory(name: str, python: str, samples: Samples, calls: int) -> None:
    with suppress(WorkerFailedError):
        worker = WorkerProcess(Subject(name, "on"), python)
        try:
            worker.wait_until_ready()
            grown = worker.measure(measure="memory", calls=calls)["bytes"]
            samples.values["memory"][Subject(name, "on")].append(grown)
        finally:
            worker.close()


def _rotated(workers: dict[Subject, WorkerProcess], number: int) -> list[Subject]:
    """Return who is measured, in order; nobody always follows the same one."""
    subjects = list(workers)
    start = number % max(1, len(subjects))
    return subjects[start:] + subjects[:start]


def _drop(workers: dict[Subject, WorkerProcess], subject: Subject, samples: Samples, error: WorkerFailedError) -> None:
    samples.skipped[f"{subject.tracer} ({subject.switch})"] = str(error)
    workers.pop(subject).close()


def _progress(started: float, what: str) -> None:
    text = f"{time.monotonic() - started:5.0f} s  {what}"
    if sys.stderr.isatty():
        sys.stderr.write(f"\r\x1b[K{text}")
    else:
        sys.stderr.write(f"{text}\n")
    sys.stderr.flush()
