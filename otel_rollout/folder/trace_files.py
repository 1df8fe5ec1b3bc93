"""Finds the files that hold traces, with the steps that their folder is named for."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from operator import attrgetter
from os import PathLike
from pathlib import Path
from typing import Final, NamedTuple

from otel_rollout.errors import NoTracesError
from otel_rollout.files.file_lock import is_being_written
from otel_rollout.folder import layout
from otel_rollout.folder.selection import Selection

EVERYTHING: Final = Selection()
_ENDINGS: Final = (layout.FRAMES, *layout.FOREIGN)


class Bundle(NamedTuple):
    """The first step of a bundle; training's sorts before its validation, spans without a step last."""

    has_no_step: bool
    first: int
    validate: bool


NO_STEPS: Final = Bundle(True, 0, False)


class TraceFile(NamedTuple):
    """A file that holds traces.

    Args:
        place: The file's path, as a string: a step can have hundreds of files.
        index_place: The path of its index, if it has one, open or closed.
        bundle: Its bundle, or `NO_STEPS`; None if its folder is named for neither.
    """

    place: str
    index_place: str | None
    bundle: Bundle | None

    @property
    def path(self) -> Path:
        """The file."""
        return Path(self.place)

    @property
    def has_frames(self) -> bool:
        """True if its requests are frames, as ours are."""
        return self.place.endswith(layout.FRAMES)

    @property
    def is_journal(self) -> bool:
        """True if it is a journal of ours, from which frames are removed again."""
        folder, name = os.path.split(self.place)
        return layout.is_frame_file(name) and os.path.basename(folder) == layout.OPEN  # noqa: PTH119 - one of many

    @property
    def worker(self) -> str:
        """The name of the process that writes it."""
        return layout.worker_of(self.place)

    def disk_bytes(self) -> int:
        """Return the size of the file and its index; 0 once it is gone."""
        size = 0
        for path in (self.place, *((self.index_place, self.index_place + layout.ZST) if self.index_place else ())):
            with suppress(FileNotFoundError):
                size += os.stat(path).st_size  # noqa: PTH116 - one of many
        return size

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
    place = os.fspath(folder)
    try:
        files, has_traces = _walk(place, selection)
    except FileNotFoundError:
        raise NoTracesError(f"there is no trace folder {folder}") from None
    except NotADirectoryError:
        # A pipe or a device may have no end.
        if not os.path.isfile(place):  # noqa: PTH113 - as a string, as all others
            raise NoTracesError(f"{place} is neither a folder nor a file") from None
        # Its lines have the step.
        return [TraceFile(place, _index_of(place, os.path.isfile), None)]
    if not has_traces:
        raise NoTracesError(f"the folder {folder} holds no traces")
    return sorted(files, key=attrgetter("place"))


def _walk(folder: str, selection: Selection) -> tuple[list[TraceFile], bool]:
    """Return the files of a folder and of those in it, and True if it holds traces, of whatever step.

    Folders behind links come last, and none is listed twice.

    Raises:
        FileNotFoundError: There is no such folder.
        NotADirectoryError: It is a file.
    """
    files: list[TraceFile] = []
    has_traces = False
    listed: set[tuple[int, int]] = set()
    waiting: deque[tuple[str, Bundle | None]] = deque([(folder, None)])
    while waiting:
        path, bundle = waiting.pop()
        try:
            with os.scandir(path) as found:
                entries = {entry.path: entry for entry in found}
                status = os.stat(path)  # noqa: PTH116 - one of many
        except (FileNotFoundError, NotADirectoryError):
            # Old bundles may be removed meanwhile.
            if listed:
                continue
            raise
        if (status.st_dev, status.st_ino) in listed:
            continue
        listed.add((status.st_dev, status.st_ino))
        for place, entry in sorted(entries.items()):
            within = _bundle_of(path, entry.name)
            if within is not None and not _may_be_in(within, selection):
                has_traces = True
            elif entry.is_dir(follow_symlinks=False) or (entry.is_symlink() and os.path.isdir(place)):  # noqa: PTH112
                if not entry.name.startswith("."):
                    (waiting.appendleft if entry.is_symlink() else waiting.append)((place, within))
            elif place.endswith(_ENDINGS) and not place.endswith((layout.INDEX, layout.INDEX + layout.ZST)):
                has_traces = True
                files.append(TraceFile(place, _index_of(place, entries.__contains__), bundle))
    return files, has_traces


def _may_be_in(bundle: Bundle, selection: Selection) -> bool:
    """Return False for a bundle without matching trajectories; spans without a step may belong to any of them."""
    return bundle.has_no_step or selection.takes_bundle(bundle.first, validate=bundle.validate)


def _index_of(place: str, is_file: Callable[[str], object]) -> str | None:
    """Return the open index of a file, if it has that or the closed one."""
    index = place.removesuffix(layout.FRAMES) + layout.INDEX
    return index if place.endswith(layout.FRAMES) and (is_file(index) or is_file(index + layout.ZST)) else None


def _bundle_of(above: str, name: str) -> Bundle | None:
    """Return the first step of a bundle by its place; None if it is none: then the lines themselves have the step."""
    if name == layout.NO_STEP:
        return NO_STEPS
    first = layout.first_step_of(name)
    return None if first is None else Bundle(False, first, os.path.basename(above) == layout.VALIDATE)  # noqa: PTH119
