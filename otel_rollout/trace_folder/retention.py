"""A bound on what a trace folder takes on disk: the oldest files go first, none that is being written."""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from otel_rollout.trace_folder import layout
from otel_rollout.trace_folder.file_lock import remove, try_hold_alone

__all__ = ["enforce_bound"]


class _Stored(NamedTuple):
    """A file of spans, with its index.

    Args:
        modified: When it was last written to.
        path: The file.
        bytes: What both take.
        index_path: The index, where it has one.
    """

    modified: float
    path: Path
    bytes: int
    index_path: Path | None


def enforce_bound(folder: Path, max_bytes: int) -> int:
    """Remove the files of a trace folder that were written longest ago, until it is within its bound.

    What a process is writing stays, so a folder can be over its bound by that. Where another process is at it already,
    this leaves it to that one: two would each take a file that the other holds for one that is being written.

    Args:
        folder: The folder.
        max_bytes: What it may take.

    Returns:
        The bytes that are gone.
    """
    with try_hold_alone(folder) as is_held:
        return _remove_oldest(folder, max_bytes) if is_held else 0


def _remove_oldest(folder: Path, max_bytes: int) -> int:
    stored = sorted(_files(folder), key=lambda file: (file.modified, file.path))
    excess = sum(file.bytes for file in stored) - max_bytes
    removed = 0
    for file in stored:
        if removed >= excess:
            break
        if not remove(file.path, file.index_path):
            continue
        removed += file.bytes
        with suppress(OSError):
            # A step that has nothing left; where it has something, this fails.
            file.path.parent.rmdir()
    return removed


def _files(folder: Path) -> list[_Stored]:
    """Return the files that we wrote, by their names and places; nothing else in the folder is ours to remove."""
    found: list[_Stored] = []
    for place in _folders(folder):
        if layout.is_step_folder(place.name):
            found += _files_of(place, layout.is_frame_file)
        elif place.name == layout.OPEN:
            found += _files_of(place, lambda name: layout.is_journal_file(name, may_be_new=True))
        elif place.name == layout.VALIDATE:
            for step in _folders(place):
                if layout.is_step_folder(step.name):
                    found += _files_of(step, layout.is_frame_file)
    return found


def _folders(folder: Path) -> list[Path]:
    """Return the folders in a folder; what a link leads to is somebody else's."""
    with suppress(OSError), os.scandir(folder) as entries:
        return [Path(entry.path) for entry in entries if entry.is_dir(follow_symlinks=False)]
    return []


def _files_of(folder: Path, is_ours: Callable[[str], bool]) -> list[_Stored]:
    sizes: dict[str, tuple[float, int]] = {}
    with suppress(OSError), os.scandir(folder) as entries:
        for entry in entries:
            with suppress(OSError):
                if entry.is_file(follow_symlinks=False):
                    status = entry.stat(follow_symlinks=False)
                    sizes[entry.name] = (status.st_mtime, status.st_size)
    found = []
    for name, (modified, size) in sizes.items():
        if is_ours(name):
            path = folder / name
            index = layout.index_path(path)
            has_index = index.name in sizes
            total = size + (sizes[index.name][1] if has_index else 0)
            found.append(_Stored(modified, path, total, index if has_index else None))
    return found
