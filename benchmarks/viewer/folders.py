"""Trace folders for measurements, written by several processes through the `file` exporter, and kept for next time."""

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
from otel_rollout.analysis.trajectory_summary import TrajectorySummary
from otel_rollout.export.outcome import Verdict
from otel_rollout.trace_folder.index_entry import IndexEntry
from otel_rollout.version import __version__
from otel_rollout_file import FileSpanExporter

PROMPTS_PER_TASK = 64


def folder_of(load: Load, processes: int) -> Path:
    """Return a folder with the load, which is written unless it is there."""
    root = Path(tempfile.gettempdir()) / "otel-rollout-bench-view"
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
    stored = (load, __version__, IndexEntry._fields, list(TrajectorySummary.__annotations__))
    return blake2b(repr(stored).encode() + Path(module.__file__).read_bytes(), digest_size=4).hexdigest()
