"""Trace folders for measurements, written by several processes through the `file` exporter."""

from __future__ import annotations

import shutil
import sys
import tempfile
from concurrent.futures import ProcessPoolExecutor, as_completed
from hashlib import blake2b
from multiprocessing import get_context
from pathlib import Path

from benchmarks.viewer import trajectories as module
from benchmarks.viewer.trajectories import Load, trajectories
from otel_rollout import facts, otlp
from otel_rollout import folder as folder_room
from otel_rollout.export.outcome import Verdict
from otel_rollout_file import FileSpanExporter

PROMPTS_PER_TASK = 64
KEPT = Path(tempfile.gettempdir()) / "otel-rollout-bench-view"
"""Large loads take minutes to write: they are kept for next time."""

_WRITERS = (facts, folder_room, otlp)
"""The packages that decide what a folder's files hold."""


def folder_of(load: Load, processes: int, root: Path = KEPT) -> Path:
    """Return a folder with the load, which is written unless it is there.

    Args:
        load: What it holds.
        processes: How many write it at once.
        root: The folder that it lies in.
    """
    root.mkdir(mode=0o700, exist_ok=True)
    folder = root / f"{load.steps}x{load.prompts * module.ROLLOUTS}-{_digest(load)}"
    if folder.is_dir():
        return folder
    new = folder.with_name(f"{folder.name}.new")
    shutil.rmtree(new, ignore_errors=True)
    tasks = [
        (step, range(first, min(first + PROMPTS_PER_TASK, load.prompts)))
        for step in range(1, load.steps + 1)
        for first in range(0, load.prompts, PROMPTS_PER_TASK)
    ]
    # A process has files of its own; few steps at a time, as in training.
    parts = [tasks[number::processes] for number in range(processes)]
    with ProcessPoolExecutor(processes, mp_context=get_context("spawn")) as pool:
        for done, each in enumerate(as_completed([pool.submit(_write, new, load, part) for part in parts]), 1):
            each.result()
            if sys.stderr.isatty():
                print(f"\r{folder.name}: {done} of {processes} processes are done", end="", file=sys.stderr, flush=True)
    new.rename(folder)
    return folder


def _write(folder: Path, load: Load, tasks: list[tuple[int, range]]) -> None:
    exporter = FileSpanExporter(folder=folder)
    for step, prompts in tasks:
        for spans in trajectories(load, step, prompts):
            outcome = exporter.send(spans)
            if outcome.verdict is not Verdict.DELIVERED:
                raise RuntimeError(f"not written: {outcome}")
    exporter.shutdown()


def _digest(load: Load) -> str:
    """Return what differs if other files would be written."""
    digest = blake2b(repr(load).encode() + Path(module.__file__).read_bytes(), digest_size=4)
    for package in _WRITERS:
        for source in sorted(Path(package.__path__[0]).rglob("*.py")):
            digest.update(source.read_bytes())
    return digest.hexdigest()
