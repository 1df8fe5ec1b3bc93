"""Finds the files that hold traces, with the steps that their folder is named for."""

from __future__ import annotations

import os
from contextlib import suppress
from os import PathLike
from pathlib import Path
from typing import Final, NamedTuple

from otel_rollout.errors import NoTracesError
from otel_rollout.files.file_lock import is_being_written
from otel_rollout.folder.layout import (
    BUNDLE_STEPS,
    FOREIGN,
    FRAMES,
    INDEX,
    NO_STEP,
    OPEN,
    VALIDATE,
    ZST,
    first_step_of,
    is_frame_file,
    worker_of,
)
from otel_rollout.folder.selection import Selection

EVERYTHING: Final = Selection()
_ENDINGS: Final = (FRAMES, *FOREIGN)


class StepKey(NamedTuple):
    """The sort key of trajectories: a step's training before its validation, those without a step last."""

    has_no_step: bool
    step: int
    validate: bool

    @classmethod
    def of(cls, step: int | None, *, validate: bool) -> StepKey:
        """Return the key of a step."""
        return cls(True, 0, False) if step is None else cls(False, step, validate)

    @property
    def place(self) -> tuple[bool, int]:
        """The first step of its bundle, which sorts as the bundles do."""
        return self.has_no_step, self.step - self.step % BUNDLE_STEPS

    def is_in(self, selection: Selection) -> bool:
        """Return True if trajectories of this step can match."""
        return selection.takes_step(None if self.has_no_step else self.step, validate=self.validate)


NO_STEPS: Final = StepKey(True, 0, False)


class TraceFile(NamedTuple):
    """A file that holds traces.

    Args:
        place: The file's path, as a string: a step can have hundreds of files.
        index_place: The path of its index, if it has one, open or closed.
        bundle: The first step of its bundle, or `NO_STEPS`; None if its folder is named for neither.
    """

    place: str
    index_place: str | None
    bundle: StepKey | None

    @property
    def path(self) -> Path:
        """The file."""
        return Path(self.place)

    @property
    def has_frames(self) -> bool:
        """True if its requests are frames, as ours are."""
        return self.place.endswith(FRAMES)

    @property
    def is_journal(self) -> bool:
        """True if it is a journal of ours, from which frames are removed again."""
        return _is_journal(self.place)

    @property
    def worker(self) -> str:
        """The name of the process that writes it."""
        return worker_of(self.place)

    def disk_bytes(self) -> int:
        """Return the size of the file and its index; 0 once it is gone."""
        index = (self.index_place, self.index_place + ZST) if self.index_place else ()
        return sum(map(_size, (self.place, *index)))

    def is_being_written(self) -> bool:
        """Return True if a process holds it open to write."""
        return is_being_written(self.place)


def find_trace_files(folder: str | PathLike[str], selection: Selection = EVERYTHING) -> list[TraceFile]:
    """Return the files that can hold matching trajectories, sorted by path.

    Args:
        folder: A trace folder, a spool, any folder above or in one, or a single file under any name.
        selection: The filters; folders of other steps are not listed.

    Raises:
        NoTracesError: The folder doesn't exist, nothing in it holds traces, or it is neither folder nor file.
    """
    walk = _Walk(selection)
    try:
        walk.walk(os.fspath(folder))
    except FileNotFoundError:
        raise NoTracesError(f"there is no trace folder {folder}") from None
    except NotADirectoryError:
        return [_named_file(os.fspath(folder))]
    if not walk.has_traces:
        raise NoTracesError(f"the folder {folder} holds no traces")
    return walk.files


class _Walk:
    """A walk through a folder, symlinks last; no folder is listed twice, nor a file because of a link to it."""

    def __init__(self, selection: Selection) -> None:
        self.files: list[TraceFile] = []
        self.has_traces = False
        self._selection = selection
        self._folders: set[tuple[int, int]] = set()
        self._links: list[tuple[str, StepKey | None]] = []
        self._waiting: list[tuple[str, StepKey | None]] = []
        """The folders in those that were listed."""

    def walk(self, folder: str) -> None:
        """Collect the files of a folder and of those in it.

        Raises:
            FileNotFoundError: There is no such folder.
            NotADirectoryError: It is a file.
        """
        self._look_into(folder, None)
        known: set[tuple[int, int]] = set()
        for file in self.files if self._links else ():
            with suppress(OSError):
                known.add(_identity(file.place))
        # The list may grow meanwhile: a linked folder may contain links.
        for path, bundle in self._links:
            try:
                if os.path.isdir(path):  # noqa: PTH112 - one of many
                    self._look_into(path, _bundle_of(*os.path.split(path)))
                    continue
                identity = _identity(path)
            except PermissionError:
                raise
            except OSError:
                # Broken or circular: reading it reports that.
                self._add(path, bundle)
                continue
            if identity not in known:
                known.add(identity)
                self._add(path, bundle)
        self.files.sort(key=lambda file: file.place)

    def _look_into(self, folder: str, bundle: StepKey | None) -> None:
        self._list(folder, bundle)
        while self._waiting:
            # Old bundles may be removed meanwhile.
            with suppress(FileNotFoundError):
                self._list(*self._waiting.pop())

    def _list(self, folder: str, bundle: StepKey | None) -> None:
        with os.scandir(folder) as listed:
            identity = _identity(folder)
            if identity in self._folders:
                return
            self._folders.add(identity)
            entries = list(listed)
        names = {entry.name for entry in entries}
        for entry in sorted(entries, key=lambda entry: entry.name):
            name = entry.name
            within = _bundle_of(folder, name)
            if within is not None and not self._may_be_in(within):
                self.has_traces = True
            elif name.endswith((INDEX, INDEX + ZST)):
                continue
            elif entry.is_symlink():
                if name.endswith(_ENDINGS) or not name.startswith("."):
                    self._links.append((entry.path, bundle))
            elif not entry.is_dir(follow_symlinks=False):
                self._add(entry.path, bundle, names)
            elif not name.startswith("."):
                self._waiting.append((entry.path, within))

    def _may_be_in(self, bundle: StepKey) -> bool:
        """Return False for a bundle without matching trajectories; spans without a step may belong to any of them."""
        return bundle.has_no_step or self._selection.takes_bundle(bundle.step, validate=bundle.validate)

    def _add(self, place: str, bundle: StepKey | None, names: set[str] | None = None) -> None:
        """Add a file if it is one of traces; `names` are the names of the files in its folder."""
        if place.endswith(_ENDINGS):
            self.has_traces = True
            self.files.append(TraceFile(place, _index_of(place, names), bundle))


def _named_file(place: str) -> TraceFile:
    # A pipe or a device may have no end.
    if not os.path.isfile(place):  # noqa: PTH113 - as a string, as all others
        raise NoTracesError(f"{place} is neither a folder nor a file")
    # Its lines have the step.
    return TraceFile(place, _index_of(place), None)


def _index_of(place: str, names: set[str] | None = None) -> str | None:
    """Return the index of a file, if it has one; `names` are the names of the files in its folder."""
    if not place.endswith(FRAMES):
        return None
    index = place.removesuffix(FRAMES) + INDEX
    if names is None:
        has_index = os.path.isfile(index) or os.path.isfile(index + ZST)  # noqa: PTH113 - one of many
    else:
        name = os.path.basename(index)  # noqa: PTH119 - one of many
        has_index = name in names or name + ZST in names
    return index if has_index else None


def _bundle_of(above: str, name: str) -> StepKey | None:
    """Return the first step of a bundle by its place; None if it is none: then the lines themselves have the step."""
    if name == NO_STEP:
        return NO_STEPS
    first = first_step_of(name)
    return None if first is None else StepKey(False, first, os.path.basename(above) == VALIDATE)  # noqa: PTH119


def _is_journal(place: str) -> bool:
    folder, name = os.path.split(place)
    return is_frame_file(name) and os.path.basename(folder) == OPEN  # noqa: PTH119 - one of many


def _identity(path: str) -> tuple[int, int]:
    status = os.stat(path)  # noqa: PTH116 - one of many
    return status.st_dev, status.st_ino


def _size(path: str) -> int:
    try:
        return os.stat(path).st_size  # noqa: PTH116 - one of many
    except FileNotFoundError:
        return 0
