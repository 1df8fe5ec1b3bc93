"""The trajectories of a trace folder, a spool, or any folder with lines of OTLP JSON, one step after the other."""

from __future__ import annotations

import logging
from collections.abc import Callable, Container, Iterable, Iterator
from os import PathLike

from otel_rollout.trace_folder.recorded_trajectory import RecordedTrajectory, main_entry
from otel_rollout.trace_folder.selection import Selection
from otel_rollout.trace_folder.stored_file import LineCache, Part, ReadProblem, StoredFile
from otel_rollout.trace_folder.trace_files import StepKey, TraceFile, find_trace_files

__all__ = ["ReadProblem", "RecordedTrajectory", "read"]

_logger = logging.getLogger("otel_rollout")


def read(
    folder: str | PathLike[str],
    *,
    step: int | Container[int] | None = None,
    sample_index: int | str | None = None,
    rollout_n: int | str | None = None,
    validate: bool | None = None,
    experiment: str | None = None,
    status: str | None = None,
    reward: tuple[float | None, float | None] | None = None,
    on_problem: Callable[[ReadProblem], None] | None = None,
) -> Iterator[RecordedTrajectory]:
    """Read the trajectories of a trace folder: lazily, a step before its validation, what has no step last.

    What the filters ask is answered by the indexes; spans are read on first use of a trajectory's `spans`.

    Args:
        folder: The folder that the `file` exporter writes, or a spool.
        step: One training step, or whatever says which steps are `in` it: a range, a set, a list.
        sample_index: The prompt; compared as text, so that 7 and "7" are the same prompt.
        rollout_n: Which rollout of the prompt; compared as text.
        validate: Validation passes only, or none of them.
        experiment: The experiment's name.
        status: `completed`, `error`, `cancelled` or `truncated`.
        reward: The lowest and the highest reward, both included; None for an open end.
        on_problem: Is told of what can't be read and is left out, a torn frame say; a warning is logged where None.

    Returns:
        An iterator; only one step's index entries are in memory at a time.

    Raises:
        NoTracesError: The folder doesn't exist or holds no traces.
    """
    selection = Selection(step, sample_index, rollout_n, validate, experiment, status, reward)
    return _trajectories(find_trace_files(folder, selection), folder, selection, on_problem or _log)


def _log(problem: ReadProblem) -> None:
    _logger.warning("%s", problem)


def _trajectories(
    files: list[TraceFile],
    folder: str | PathLike[str],
    selection: Selection,
    on_problem: Callable[[ReadProblem], None],
) -> Iterator[RecordedTrajectory]:
    cache = LineCache()

    def parts_of(file: TraceFile) -> list[Part]:
        return StoredFile(file, cache, on_problem).parts()

    def find(trace_id: str) -> list[Part]:
        everything = (part for file in find_trace_files(folder) for part in parts_of(file))
        return [part for part in everything if part[1].trace_id == trace_id]

    loose = _by_trace(parts_of(file) for file in files if file.key is None)
    loose_ids: dict[StepKey, list[str]] = {}
    for trace_id, parts in loose.items():
        entry = main_entry(parts)
        loose_ids.setdefault(StepKey.of(entry.step, validate=bool(entry.validate)), []).append(trace_id)
    if loose:
        # Journals before the steps' folders: what is running now and ends meanwhile is found in one of the two.
        files = find_trace_files(folder, selection)
    placed: dict[StepKey, list[TraceFile]] = {}
    for file in files:
        if file.key is not None:
            placed.setdefault(file.key, []).append(file)
    for key in sorted(key for key in {*placed, *loose_ids} if key.is_in(selection)):
        traces = _by_trace(parts_of(file) for file in placed.get(key, ()))
        for trace_id in loose_ids.get(key, ()):
            traces.setdefault(trace_id, [])
        if loose:
            for trace_id, parts in traces.items():
                parts.extend(loose.pop(trace_id, ()))
        # One at a time: what is done with a trajectory's spans is not for us to keep.
        for parts in traces.values():
            if parts:
                entry = main_entry(parts)
                if not selection.is_narrow or selection.takes(entry):
                    yield RecordedTrajectory(entry, parts, find)


def _by_trace(files: Iterable[list[Part]]) -> dict[str, list[Part]]:
    traces: dict[str, list[Part]] = {}
    for parts in files:
        found = {part[1].trace_id: [part] for part in parts}
        if len(found) == len(parts) and traces.keys().isdisjoint(found):
            # Nearly always: a trajectory is one line of one file.
            traces.update(found)
            continue
        for part in parts:
            traces.setdefault(part[1].trace_id, []).append(part)
    return traces
