"""Reads the trajectories of a step from its folders, its journals and files of other programs."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from otel_rollout.catalog.step_places import FileSizes, Places, StepPlace
from otel_rollout.folder.index import IndexEntry
from otel_rollout.folder.reader import ReadProblem, RecordedTrajectory, join_parts, main_row, parts_by_trace
from otel_rollout.folder.stored_file import LineCache, Part, StoredFile
from otel_rollout.folder.trace_files import StepKey, TraceFile

__all__ = ["LooseTraces", "OnProblem", "parts_of", "read_loose", "read_step"]

OnProblem: TypeAlias = Callable[[ReadProblem], None]


@dataclass(frozen=True, slots=True)
class LooseTraces:
    """The traces of journals and of files of other programs.

    Args:
        sizes: The files' sizes before they were read.
        steps: The parts of each trace, by its step.
    """

    sizes: FileSizes
    steps: Mapping[StepKey, Mapping[str, Sequence[Part]]]


def read_loose(places: Places, on_problem: OnProblem) -> LooseTraces:
    """Read the files whose lines can be of any step."""
    steps: dict[StepKey, dict[str, Sequence[Part]]] = {}
    for trace_id, parts in parts_by_trace(parts_of(places.loose, on_problem)).items():
        entry = IndexEntry._make(main_row(parts))
        steps.setdefault(StepKey.of(entry.step, validate=bool(entry.validate)), {})[trace_id] = parts
    return LooseTraces(places.loose_sizes, steps)


def read_step(
    places: Iterable[StepPlace],
    loose: Mapping[str, Sequence[Part]],
    find: Callable[[str], Sequence[Part]],
    on_problem: OnProblem,
) -> list[RecordedTrajectory]:
    """Read the trajectories of a step.

    Args:
        places: Its folders.
        loose: Its traces in other files.
        find: Finds a trace whose spans have moved since.
        on_problem: Called for everything that can't be read.
    """
    own = parts_of((file for place in places for file in place.files), on_problem)
    return list(join_parts(own, loose, find))


def parts_of(files: Iterable[TraceFile], on_problem: OnProblem) -> list[Part]:
    """Return the traces of files, line by line."""
    cache = LineCache()
    return [part for file in files for part in StoredFile(file, cache, on_problem).parts()]
