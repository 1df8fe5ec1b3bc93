"""Makes the summaries of many step folders, in several processes if that is sooner done."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from threading import Lock, Thread
from typing import Final

from otel_rollout.catalog import step_worker
from otel_rollout.catalog.step_file import StepFile
from otel_rollout.catalog.step_making import make_step
from otel_rollout.catalog.step_places import StepPlace
from otel_rollout.export.worker_process import WorkerProcess

__all__ = ["make_steps"]

MIN_BYTES: Final = 2**25
"""The bytes of indexes, or of files without one, that justify a process: starting one takes half a second."""
MAX_PROCESSES: Final = 4
"""Each holds one step in memory."""


def make_steps(
    places: Sequence[StepPlace],
    keep: Callable[[StepPlace, StepFile], None],
    on_progress: Callable[[int, int], None],
) -> None:
    """Make the summaries of step folders, and write their files.

    Args:
        places: The folders.
        keep: Called with each folder's summaries, by one thread at a time.
        on_progress: Called with the number of folders done, and of all.
    """
    processes = min(len(places), os.cpu_count() or 1, MAX_PROCESSES)
    makers = _Makers(places, keep, on_progress)
    if processes > 1 and sum(map(_bytes_to_read, places)) >= MIN_BYTES:
        threads = [Thread(target=makers.work, kwargs={"in_process": True}, daemon=True) for _ in range(processes)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    makers.work(in_process=False)


class _Makers:
    """The folders that wait for being read, for several threads."""

    def __init__(
        self,
        places: Sequence[StepPlace],
        keep: Callable[[StepPlace, StepFile], None],
        on_progress: Callable[[int, int], None],
    ) -> None:
        self._waiting = list(places)[::-1]
        self._total = len(places)
        self._done = 0
        self._lock = Lock()
        self._keep = keep
        self._on_progress = on_progress
        if places:
            on_progress(0, self._total)

    def work(self, *, in_process: bool) -> None:
        """Make summaries until none is missing; a child process that fails leaves the rest to others."""
        worker: WorkerProcess | None = None
        try:
            while True:
                with self._lock:
                    if not self._waiting:
                        return
                    place = self._waiting.pop()
                try:
                    if in_process:
                        worker = worker or WorkerProcess(step_worker.__name__, {})
                        content = step_worker.content_of(worker.call(step_worker.request_of(place)))
                    else:
                        content = make_step(place)
                except (EOFError, LookupError, OSError, RuntimeError, TypeError, ValueError):
                    if not in_process:
                        raise
                    with self._lock:
                        self._waiting.append(place)
                    return
                with self._lock:
                    self._keep(place, content)
                    self._done += 1
                    self._on_progress(self._done, self._total)
        finally:
            if worker is not None:
                worker.end()


def _bytes_to_read(place: StepPlace) -> int:
    return sum(size if index_size < 0 else index_size for _, size, index_size in place.sizes)
