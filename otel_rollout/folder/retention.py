"""The bound on a trace folder's size: the oldest files are removed first, none that is being written."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Final, NamedTuple

from otel_rollout.files.file_clock import file_clock
from otel_rollout.files.file_lock import exclusive_folder_lock, remove
from otel_rollout.folder import layout
from otel_rollout.guard.background_thread import BackgroundThread
from otel_rollout.guard.log_once import internal_error

RECENT_SECONDS: Final = 600.0
"""The workers whose files were written to since then share the bound."""


class _StoredFile(NamedTuple):
    """A file of spans; `bytes` is the size with its indexes."""

    modified: float
    path: str
    bytes: int


class FolderBound:
    """Removes the files of a trace folder that were modified longest ago until it is within its bound.

    A file that is being written stays, so a folder can exceed its bound.

    Args:
        folder: The folder.
        max_bytes: The bound.
    """

    def __init__(self, folder: Path, max_bytes: int) -> None:
        self._folder = folder
        self.max_bytes = max_bytes
        self._lock = threading.Lock()
        self._thread: BackgroundThread | None = None
        self.writers = 1
        """The number of processes that have written lately, as far as it is known."""

    def enforce_soon(self) -> None:
        """Enforce the bound on another thread; while that is at work, this does nothing."""
        if self._thread is None:
            self._thread = thread = BackgroundThread("otel-rollout-retention", self._run)
            thread.start()
            if not thread.is_started:
                # No thread can be had: the end of the program enforces the bound.
                self._thread = None

    def _run(self) -> None:
        try:
            self.enforce()
        except Exception:
            internal_error("enforcing the bound on a trace folder")
        finally:
            self._thread = None

    def enforce(self) -> None:
        """Enforce the bound.

        Only one process does this at a time: two would each take a file that the other has locked for one that is
        being written.
        """
        with self._lock, exclusive_folder_lock(self._folder) as is_locked:
            stored = sorted(self._stored()) if is_locked else []
            excess = sum(file.bytes for file in stored) - self.max_bytes
            for file in stored:
                if excess <= 0:
                    break
                path = Path(file.path)
                # By their names: the writer may have closed an index since.
                if remove(path, *map(path.with_name, _indexes_of(path.name))):
                    excess -= file.bytes
                    with suppress(OSError):
                        # Unless it has files.
                        path.parent.rmdir()

    def _stored(self) -> list[_StoredFile]:
        """Return the files that we wrote, by their names and places; all others are not ours to remove."""
        found = [file for place in _places(self._folder) for file in _files_of(place)]
        recent = file_clock(self._folder) - RECENT_SECONDS
        self.writers = max(1, len({layout.worker_of(each.path) for each in found if each.modified > recent}))
        return found


def _places(folder: Path) -> list[Path]:
    """Return the folders in which files are ours, without symlinks."""
    steps = [*folder.glob("steps=*")]
    validate = folder / layout.VALIDATE
    if not validate.is_symlink():
        steps += validate.glob("steps=*")
    bundles = [each for each in steps if layout.first_step_of(each.name) is not None]
    return [each for each in (folder / layout.OPEN, folder / layout.NO_STEP, *bundles) if not each.is_symlink()]


def _files_of(folder: Path) -> Iterator[_StoredFile]:
    sizes: dict[str, tuple[float, int]] = {}
    with suppress(OSError), os.scandir(folder) as entries:
        for entry in entries:
            with suppress(OSError):
                if entry.is_file(follow_symlinks=False):
                    status = entry.stat(follow_symlinks=False)
                    sizes[entry.name] = (status.st_mtime, status.st_size)
    for name, (modified, size) in sizes.items():
        # A process that lives writes its file of running trajectories anew every few seconds: it is never the oldest.
        if layout.is_ours(name):
            total = size + sum(sizes.get(each, (0, 0))[1] for each in _indexes_of(name))
            yield _StoredFile(modified, f"{folder}/{name}", total)


def _indexes_of(name: str) -> tuple[str, ...]:
    """Return the names that the indexes of a file have while it is open, and once it is closed."""
    stem = name.removesuffix(layout.FRAMES)
    return (stem + layout.INDEX, stem + layout.CLOSED_INDEX) if stem != name else ()
