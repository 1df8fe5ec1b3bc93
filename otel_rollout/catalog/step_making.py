"""Makes and writes the summaries of step folders, in several processes if that is sooner done."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from pathlib import Path
from threading import Lock, Thread
from typing import Any, Final

import orjson

from otel_rollout.catalog.figures import summarise_runs
from otel_rollout.catalog.step_file import StepFile, write_step_file
from otel_rollout.catalog.step_places import StepPlace, read_step, with_indexes
from otel_rollout.catalog.step_summary import StepSummary
from otel_rollout.export.worker_process import WorkerProcess
from otel_rollout.facts.json_types import from_json, to_json
from otel_rollout.folder.stored_file import ReadProblem
from otel_rollout.folder.summaries import summaries_of
from otel_rollout.folder.trace_files import StepKey, TraceFile
from otel_rollout.guard.garbage_collection import collect_rarely


def make_step(place: StepPlace) -> StepFile:
    """Read the trajectories of a step's folder, and write their summary unless another process is writing it."""
    problems: list[ReadProblem] = []
    recorded = read_step([place], {}, lambda _: (), problems.append)
    runs = summarise_runs(summaries_of(recorded))
    content = StepFile(
        [run.summary for run in runs],
        [group for run in runs for group in run.groups],
        list(dict.fromkeys(problems)),
    )
    if not any(file.is_being_written() for file in place.files):
        write_step_file(with_indexes(place), content)
    return content


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
                        worker = worker or WorkerProcess(__name__, {})
                        content = content_of(worker.call(request_of(place)))
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


def prepare() -> None:
    """Prepare the child process."""
    collect_rarely()


def request_of(place: StepPlace) -> bytes:
    """Return a step's folder as a request."""
    files = [(file.place, file.index_place, file.key and tuple(file.key)) for file in place.files]
    return orjson.dumps([place.folder, place.within, files, place.sizes])


def answer(request: bytes) -> bytes:
    """Make the summaries of a step's folder, and return them without the groups."""
    folder, within, files, sizes = orjson.loads(request)
    place = StepPlace(folder, within, tuple(map(_file_of, files)), tuple(map(tuple, sizes)))
    content = make_step(place)
    problems = [(each.what, str(each.path), each.offset) for each in content.problems]
    return to_json({"steps": content.steps, "problems": problems})


def content_of(answered: bytes) -> StepFile:
    """Return the summaries that `answer` has returned.

    Raises:
        ValueError: They are no answer (LookupError, TypeError: the same for other reasons).
    """
    message: dict[str, Any] = orjson.loads(answered)
    problems = [ReadProblem(what, Path(path), offset) for what, path, offset in message["problems"]]
    return StepFile([from_json(StepSummary, step) for step in message["steps"]], (), problems)


def _file_of(fields: tuple[str, str | None, tuple[bool, int, bool] | None]) -> TraceFile:
    place, index_place, key = fields
    return TraceFile(place, index_place, None if key is None else StepKey(*key))
