"""Finds the step folders of trace folders with the sizes of their files, and reads the trajectories of a step."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from hashlib import blake2b
from pathlib import Path
from typing import TypeAlias

from otel_rollout.errors import NoTracesError
from otel_rollout.folder.index import IndexEntry
from otel_rollout.folder.layout import index_path
from otel_rollout.folder.reader import ReadProblem, RecordedTrajectory, join_parts, main_row, parts_by_trace
from otel_rollout.folder.stored_file import LineCache, Part, StoredFile
from otel_rollout.folder.trace_files import StepKey, TraceFile, find_trace_files
from otel_rollout.text.sanitize import replace_surrogates

FileSizes: TypeAlias = tuple[tuple[str, int, int], ...]
"""The name, the size and the index's size of each file; -1 without an index, or once it is gone."""


@dataclass(frozen=True, slots=True)
class StepPlace:
    """A step's folder.

    Args:
        folder: The folder.
        within: The trace folder, or a folder above, that it was found in.
        files: Its files.
        sizes: Their sizes.
    """

    folder: str
    within: str
    files: tuple[TraceFile, ...]
    sizes: FileSizes


@dataclass(frozen=True, slots=True)
class Places:
    """The files of trace folders.

    Args:
        steps: The folders of each step, in the order of steps: several trace folders can have the same one.
        loose: The files whose lines can be of any step: journals, and files of other programs.
        loose_sizes: Their sizes.
        version: Differs if any size does.
    """

    steps: Mapping[StepKey, Sequence[StepPlace]]
    loose: Sequence[TraceFile]
    loose_sizes: FileSizes
    version: str


def find_places(folders: Sequence[Path]) -> Places:
    """Return the files of folders by step; nothing of them is opened.

    Args:
        folders: The folders; one without traces is left out if another has some.

    Raises:
        NoTracesError: None of them has traces.
    """
    found: dict[StepKey, dict[str, tuple[str, list[TraceFile]]]] = {}
    loose: dict[str, TraceFile] = {}
    # One of the folders can be in another, or a link to it.
    seen: set[tuple[int, int, str]] = set()
    missing: NoTracesError | None = None
    for folder in map(os.fspath, folders):
        try:
            files = find_trace_files(folder)
        except NoTracesError as error:
            missing = missing or error
            continue
        identity_of = lru_cache(None)(_identity)
        for file in files:
            directory, name = os.path.split(file.place)
            identity = (*identity_of(directory), name)
            if identity in seen:
                continue
            seen.add(identity)
            if file.key is None:
                loose[file.place] = file
            else:
                found.setdefault(file.key, {}).setdefault(directory, (folder, []))[1].append(file)
    if missing is not None and not seen:
        raise missing
    steps = {
        key: [
            StepPlace(directory, within, tuple(files), _sizes(files))
            for directory, (within, files) in found[key].items()
        ]
        for key in sorted(found)
    }
    loose_sizes = _sizes(loose.values())
    digest = blake2b(repr(loose_sizes).encode(), digest_size=8)
    for places in steps.values():
        for place in places:
            digest.update(repr((place.folder, place.sizes)).encode())
    return Places(steps, tuple(loose.values()), loose_sizes, digest.hexdigest())


def with_indexes(place: StepPlace) -> StepPlace:
    """Return a step's folder with the indexes as they are now: a reader writes one that lacks summaries."""
    files = tuple(file._replace(index_place=os.fspath(index_path(file.path))) for file in place.files)
    now = _sizes(files)
    return replace(
        place,
        files=files,
        sizes=tuple((name, before, index) for (name, before, _), (_, _, index) in zip(place.sizes, now, strict=True)),
    )


def _identity(directory: str) -> tuple[int, int]:
    try:
        status = os.stat(directory)  # noqa: PTH116 - one of many
    except OSError:
        return 0, 0
    return status.st_dev, status.st_ino


def _sizes(files: Iterable[TraceFile]) -> FileSizes:
    return tuple((_name_of(file.place), _size(file.place), _size(file.index_place)) for file in files)


def _name_of(place: str) -> str:
    # JSON has no surrogates, which stand for bytes that are no UTF-8.
    return replace_surrogates(os.path.basename(place))  # noqa: PTH119 - one of many


def _size(place: str | None) -> int:
    try:
        return -1 if place is None else os.stat(place).st_size  # noqa: PTH116 - one of many
    except OSError:
        return -1


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
