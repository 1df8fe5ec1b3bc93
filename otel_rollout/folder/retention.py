"""The bound on a trace folder's size: the oldest files are removed first, none that is being written."""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from otel_rollout.files.file_lock import exclusive_folder_lock, remove
from otel_rollout.folder import layout

__all__ = ["enforce_bound"]


class _StoredFile(NamedTuple):
    """A file of spans, with its index if it has one; `bytes` is the size of both."""

    modified: float
    path: Path
    bytes: int
    index_path: Path | None


def enforce_bound(folder: Path, max_bytes: int) -> int:
    """Remove the files that were modified longest ago until a trace folder is within its bound.

    A file that is being written stays, so a folder can exceed its bound. Only one process does this at a time: two
    would each take a file that the other has locked for one that is being written.

    Args:
        folder: The folder.
        max_bytes: The bound.

    Returns:
        The number of bytes removed.
    """
    with exclusive_folder_lock(folder) as is_locked:
        return _remove_oldest(folder, max_bytes) if is_locked else 0


def _remove_oldest(folder: Path, max_bytes: int) -> int:
    stored = sorted(_our_files(folder), key=lambda file: (file.modified, file.path))
    excess = sum(file.bytes for file in stored) - max_bytes
    removed = 0
    for file in stored:
        if removed >= excess:
            break
        if not remove(file.path, file.index_path):
            continue
        removed += file.bytes
        _remove_if_empty(file.path.parent)
    return removed


def _remove_if_empty(folder: Path) -> None:
    with suppress(OSError):
        folder.rmdir()


def _our_files(folder: Path) -> list[_StoredFile]:
    """Return the files that we wrote, by their names and places; all others are not ours to remove."""
    found: list[_StoredFile] = []
    for place in _folders(folder):
        if layout.is_bundle_folder(place.name):
            found += _files_of(place, _is_stored)
        elif place.name == layout.OPEN:
            found += _files_of(place, _is_ours_in_open)
        elif place.name == layout.VALIDATE:
            for bundle in _folders(place):
                if layout.is_bundle_folder(bundle.name):
                    found += _files_of(bundle, _is_stored)
    return found


def _is_stored(name: str) -> bool:
    """Return True for a file of frames, and for an index that a reader has left half written."""
    return layout.is_frame_file(name, may_be_new=True)


def _is_ours_in_open(name: str) -> bool:
    # A process that lives writes its file of running trajectories anew every few seconds: it is never the oldest.
    return layout.is_journal_file(name, may_be_new=True) or layout.is_running_file(name)


def _folders(folder: Path) -> list[Path]:
    """Return the folders in a folder, without symlinks."""
    with suppress(OSError), os.scandir(folder) as entries:
        return [Path(entry.path) for entry in entries if entry.is_dir(follow_symlinks=False)]
    return []


def _files_of(folder: Path, is_ours: Callable[[str], bool]) -> list[_StoredFile]:
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
            index = layout.index_path(folder / name)
            if index.name in sizes:
                found.append(_StoredFile(modified, folder / name, size + sizes[index.name][1], index))
            else:
                found.append(_StoredFile(modified, folder / name, size, None))
    return found
