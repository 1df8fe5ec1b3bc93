"""A bound on what a trace folder takes on disk: the oldest files go first, none that is being written."""

from __future__ import annotations

import os
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
    path: str
    bytes: int
    index_path: str | None


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
    stored = sorted(_files(folder))
    excess = sum(file.bytes for file in stored) - max_bytes
    removed = 0
    for file in stored:
        if removed >= excess:
            break
        if not remove(Path(file.path), Path(file.index_path) if file.index_path else None):
            continue
        removed += file.bytes
        with suppress(OSError):
            # A step that has nothing left; where it has something, this fails.
            Path(file.path).parent.rmdir()
    return removed


def _files(folder: Path) -> list[_Stored]:
    """Return the files of spans that the folder's layout knows; nothing else in it is ours to remove."""
    found: list[_Stored] = []
    for place in (folder, folder / layout.VALIDATE):
        with suppress(OSError), os.scandir(place) as entries:
            for entry in entries:
                if layout.step_of(entry.name) is not None or entry.name in (layout.NO_STEP, layout.OPEN):
                    found += _files_of(entry.path)
    return found


def _files_of(folder: str) -> list[_Stored]:
    sizes: dict[str, tuple[float, int]] = {}
    with suppress(OSError), os.scandir(folder) as entries:
        for entry in entries:
            with suppress(OSError):
                status = entry.stat(follow_symlinks=False)
                sizes[entry.name] = (status.st_mtime, status.st_size)
    found = []
    for name, (modified, size) in sizes.items():
        if name.endswith(layout.INDEX) or not name.endswith((layout.FRAMES, layout.LINES, layout.NEW)):
            continue
        index = name.removesuffix(layout.FRAMES) + layout.INDEX
        has_index = index in sizes
        total = size + (sizes[index][1] if has_index else 0)
        found.append(_Stored(modified, f"{folder}/{name}", total, f"{folder}/{index}" if has_index else None))
    return found
