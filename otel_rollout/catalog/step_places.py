"""Finds the files of trace folders with their sizes, and reads the trajectories of a step."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from hashlib import blake2b
from pathlib import Path
from typing import TypeAlias

from otel_rollout.errors import NoTracesError
from otel_rollout.folder.index import IndexEntry
from otel_rollout.folder.reader import ReadProblem, bundles_of, main_row, parts_by_trace
from otel_rollout.folder.stored_file import LineCache, Part, StoredFile
from otel_rollout.folder.trace_files import StepKey, TraceFile, find_trace_files

FileSizes: TypeAlias = tuple[tuple[str, int, int], ...]
"""The path, the size and the index's size of each file; -1 without an index, or once it is gone."""


@dataclass(frozen=True, slots=True)
class Bundle:
    """The files of a range of steps, of several folders.

    Args:
        files: Its files.
        sizes: Their sizes.
    """

    files: tuple[TraceFile, ...]
    sizes: FileSizes


@dataclass(frozen=True, slots=True)
class Places:
    """The files of trace folders.

    Args:
        bundles: The files of each range of steps, in order.
        loose: The files whose lines can be of any step: journals, and files of other programs.
        loose_sizes: Their sizes.
        version: Differs if any size does.
    """

    bundles: Sequence[Bundle]
    loose: Sequence[TraceFile]
    loose_sizes: FileSizes
    version: str


def find_places(folders: Sequence[Path]) -> Places:
    """Return the files of folders by range of steps; nothing of them is opened.

    Args:
        folders: The folders; one without traces is left out if another has some.

    Raises:
        NoTracesError: None of them has traces.
    """
    found: list[TraceFile] = []
    loose: list[TraceFile] = []
    # One of the folders can be in another, or a link to it.
    seen: set[tuple[int, int, str]] = set()
    missing: NoTracesError | None = None
    identity_of = lru_cache(None)(_identity)
    for folder in map(os.fspath, folders):
        try:
            files = find_trace_files(folder)
        except NoTracesError as error:
            missing = missing or error
            continue
        for file in files:
            directory, name = os.path.split(file.place)
            identity = (*identity_of(directory), name)
            if identity not in seen:
                seen.add(identity)
                (loose if file.steps is None else found).append(file)
    if missing is not None and not seen:
        raise missing
    bundles = [Bundle(tuple(files), _sizes(files)) for files, _ in bundles_of(found, ())]
    loose_sizes = _sizes(loose)
    digest = blake2b(repr((loose_sizes, [bundle.sizes for bundle in bundles])).encode(), digest_size=8)
    return Places(bundles, loose, loose_sizes, digest.hexdigest())


def _identity(directory: str) -> tuple[int, int]:
    try:
        status = os.stat(directory)  # noqa: PTH116 - one of many
    except OSError:
        return 0, 0
    return status.st_dev, status.st_ino


def _sizes(files: Iterable[TraceFile]) -> FileSizes:
    return tuple((file.place, _size(file.place), _size(file.index_place)) for file in files)


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


def parts_by_step(bundle: Bundle, on_problem: OnProblem) -> dict[StepKey, list[Part]]:
    """Read the traces of a bundle, by the step of the trajectory that they are of."""
    steps: dict[StepKey, list[Part]] = {}
    for parts in parts_by_trace(parts_of(bundle.files, on_problem)).values():
        entry = IndexEntry._make(main_row(parts))
        steps.setdefault(StepKey.of(entry.step, validate=entry.validate is True), []).extend(parts)
    return steps


def parts_of(files: Iterable[TraceFile], on_problem: OnProblem) -> list[Part]:
    """Return the traces of files, line by line."""
    cache = LineCache()
    return [part for file in files for part in StoredFile(file, cache, on_problem).parts()]
