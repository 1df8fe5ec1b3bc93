"""The open files of one worker, each with its index: one for each bundle of steps that are being rolled out."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final

from otel_rollout.facts.builder import SummaryBuilder
from otel_rollout.folder import layout
from otel_rollout.folder.append_file import AppendFile, FileGoneError
from otel_rollout.folder.frames import append_frame
from otel_rollout.folder.index import entry_of, index_line
from otel_rollout.folder.lines import MAX_INDEX_LINE_BYTES, read_lines
from otel_rollout.folder.retention import FolderBound
from otel_rollout.guard.clock import monotonic
from otel_rollout.guard.log_once import internal_error

MAX_FILES: Final = 8
FILES_IN_BOUND: Final = 8
"""With a bound on the folder, the part of it that the files which are written have at most: only whole ones can go."""
CHECKS_IN_BOUND: Final = 32
"""The number of checks of the bound while the workers write as much as the bound allows."""
IDLE_SECONDS: Final = 60.0
"""A file that has had no trajectory for so long is closed when another one is written to."""
_ATTEMPTS: Final = 8


class StepFiles:
    """One worker's files; if there are more than `MAX_FILES`, the least recently used is closed.

    Args:
        folder: The trace folder.
        worker: The worker's name.
        file_max_bytes: A file of this size is followed by a new one.
        max_bytes: The bound on the whole folder; None for no bound.
    """

    def __init__(self, folder: Path, worker: str, file_max_bytes: int, max_bytes: int | None) -> None:
        self._worker = worker
        self._folder = folder
        self._bound = FolderBound(folder, max_bytes) if max_bytes is not None else None
        self._file_max_bytes = file_max_bytes if max_bytes is None else min(file_max_bytes, max_bytes // FILES_IN_BOUND)
        self._files: OrderedDict[str, _StepFile] = OrderedDict()
        self._numbers: dict[str, int] = {}
        self._written = 0
        self.is_closing = False
        """Leave the bound to `close`: what a journal holds until then would count twice, and files go for it."""

    def append(self, pieces: Sequence[bytes | memoryview], summary: SummaryBuilder) -> None:
        """Append a trajectory to the file of its bundle.

        Args:
            pieces: Its spans as a line, in pieces.
            summary: The facts of its spans.

        Raises:
            OSError: The disk did not take it, and has none of it.
        """
        place = layout.bundle_folder(summary.step, validate=summary.validate)
        for attempt in range(_ATTEMPTS):
            try:
                file = self._file(place)
                self._written += file.append(pieces, summary)
                break
            except FileGoneError:
                # The next spans go into the next file.
                self._close(place, is_full=True)
                if attempt == _ATTEMPTS - 1:
                    raise
        if file.frames.end >= self._file_max_bytes // (self._bound.writers if self._bound else 1):
            self._close(place, is_full=True)
        idlest = next(iter(self._files), place)
        if idlest != place and self._files[idlest].used < monotonic() - IDLE_SECONDS:
            self._close(idlest)
        bound = None if self.is_closing else self._bound
        if bound is not None and self._written > bound.max_bytes // CHECKS_IN_BOUND // bound.writers:
            self._written = 0
            for other in [other for other in self._files if other != place]:
                # The file of a bundle that is over can be removed once it is closed; others are opened again.
                self._close(other)
            bound.enforce_soon()

    def close(self) -> None:
        """Close all files, and enforce the bound."""
        for place in list(self._files):
            self._close(place)
        if self._bound is not None:
            self._bound.enforce()

    def forget(self) -> None:
        """Close all files as they are; in a forked child they are the parent's."""
        for file in self._files.values():
            file.forget()
        self._files.clear()

    def _file(self, place: str) -> _StepFile:
        file = self._files.get(place)
        if file is None:
            path = layout.data_path(self._folder / place, self._worker, self._numbers.setdefault(place, 1))
            file = self._files[place] = _StepFile(path, self._folder)
            if len(self._files) > MAX_FILES:
                self._close(next(iter(self._files)))
        self._files.move_to_end(place)
        file.used = monotonic()
        return file

    def _close(self, place: str, *, is_full: bool = False) -> None:
        file = self._files.pop(place, None)
        can_be_continued = file.close() if file is not None else True
        if is_full or not can_be_continued:
            self._numbers[place] = self._numbers.get(place, 1) + 1


class _StepFile:
    """A file of trajectories with its index, which is compressed when it is closed."""

    def __init__(self, path: Path, within: Path) -> None:
        self.frames = AppendFile(path, within)
        self.used = monotonic()
        self._within = within
        try:
            self._index = AppendFile(layout.index_path(path), within)
        except OSError:
            self.frames.close()
            raise
        self._waiting: list[bytes] = []

    def append(self, pieces: Sequence[bytes | memoryview], summary: SummaryBuilder) -> int:
        """Append a trajectory, and return its size on disk.

        Raises:
            OSError: The disk did not take it, and has none of it.
            FileGoneError: The file or its index was removed.
        """
        # The index keeps the order of the frames: readers decompress each frame that it has no line for.
        self._write_index()
        frame = append_frame(self.frames, *pieces)
        try:
            line = index_line(entry_of(summary, frame, sum(map(len, pieces))))
        except Exception:
            # The trajectory is stored: an error would have it written again, or counted as lost.
            internal_error("indexing a trajectory")
            return frame.length
        if len(line) > MAX_INDEX_LINE_BYTES:
            return frame.length
        self._waiting.append(line)
        with suppress(OSError):
            # The trajectory is stored, and found without the index.
            self._write_index()
        return frame.length + len(line)

    def close(self) -> bool:
        """Close both files; False if the index lacks lines, so that no more may be appended."""
        with suppress(OSError):
            self._write_index()
        with suppress(OSError):
            # The open index stays then, which readers take as well.
            self._close_index()
        self.forget()
        return not self._waiting

    def _close_index(self) -> None:
        """Move the lines of the open index to the closed one; a crash in between leaves them in both."""
        path = self._index.path
        if self._index.end:
            closed = AppendFile(path.with_name(path.name + layout.ZST), self._within)
            try:
                for _, lines in read_lines(path):
                    append_frame(closed, b"".join([line + b"}\n" for line in lines]))
            finally:
                closed.close()
        path.unlink()

    def forget(self) -> None:
        """Close both files as they are."""
        self._index.close()
        self.frames.close()

    def _write_index(self) -> None:
        if self._waiting:
            self._index.append(self._waiting)
            self._waiting.clear()
