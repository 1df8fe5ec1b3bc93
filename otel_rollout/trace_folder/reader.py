"""The trajectories of a trace folder, a spool, or any folder with lines of OTLP JSON, one step after the other."""

from __future__ import annotations

import logging
from collections.abc import Callable, Container, Iterable, Iterator
from operator import itemgetter
from os import PathLike
from typing import Any, Final

from otel_rollout.plain_text import printable
from otel_rollout.trace_folder.index_entry import IndexEntry, place_of
from otel_rollout.trace_folder.recorded_trajectory import RecordedTrajectory, main_row
from otel_rollout.trace_folder.selection import Selection
from otel_rollout.trace_folder.stored_file import LineCache, Part, ReadProblem, StoredFile
from otel_rollout.trace_folder.trace_files import StepKey, TraceFile, find_trace_files

__all__ = ["ReadProblem", "RecordedTrajectory", "read"]

_TRACE_ID: Final = place_of("trace_id")
_line_of: Final = itemgetter(*map(place_of, ("trace_id", "checksum", "bytes", "spans", "start_time", "end_time")))
"""What tells a line from others: the same once more is of a file that was copied, or of a write that was repeated."""
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
    _logger.warning("%s", printable(str(problem)))


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
        return [part for part in everything if part[1][_TRACE_ID] == trace_id]

    takes = selection.takes if selection.is_narrow else None
    loose = _by_trace(part for file in files if file.key is None for part in parts_of(file))
    loose_ids: dict[StepKey, list[str]] = {}
    for trace_id, parts in loose.items():
        entry = IndexEntry._make(main_row(parts))
        loose_ids.setdefault(StepKey.of(entry.step, validate=bool(entry.validate)), []).append(trace_id)
    if loose:
        # Journals before the steps' folders: what is running now and ends meanwhile is found in one of the two.
        files = find_trace_files(folder, selection)
    placed: dict[StepKey, list[TraceFile]] = {}
    for file in files:
        if file.key is not None:
            placed.setdefault(file.key, []).append(file)
    for key in sorted(key for key in {*placed, *loose_ids} if key.is_in(selection)):
        own = [part for file in placed.get(key, ()) for part in parts_of(file)]
        # One at a time: what is done with a trajectory's spans is not for us to keep.
        if not loose and len({row[_TRACE_ID] for _, row in own}) == len(own):
            # Nearly always: a trajectory is one line of one file.
            for part in own if takes is None else [part for part in own if takes(part[1])]:
                yield RecordedTrajectory(part[1], (part,), find)
            continue
        traces = _by_trace(own)
        for trace_id in loose_ids.get(key, ()):
            traces.setdefault(trace_id, [])
        for trace_id, parts in traces.items():
            parts.extend(loose.pop(trace_id, ()))
        for parts in filter(None, traces.values()):
            row = main_row(parts)
            if takes is None or takes(row):
                yield RecordedTrajectory(row, parts, find)


def _by_trace(parts: Iterable[Part]) -> dict[str, list[Part]]:
    traces: dict[str, list[Part]] = {}
    known: set[tuple[Any, ...]] = set()
    for part in parts:
        key = _line_of(part[1])
        if key not in known:
            known.add(key)
            traces.setdefault(key[0], []).append(part)
    return traces
