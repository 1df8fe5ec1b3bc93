"""The files that one worker has open: one for each step that is being rolled out, the longest unused closed first."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

from otel_rollout.trace_folder import layout
from otel_rollout.trace_folder.append_file import FileGoneError
from otel_rollout.trace_folder.frames import make_compressor
from otel_rollout.trace_folder.index import TraceSummary
from otel_rollout.trace_folder.retention import enforce_bound
from otel_rollout.trace_folder.step_file import StepFile

if TYPE_CHECKING:
    import zstandard

__all__ = ["StepFiles"]

MAX_FILES: Final = 8
FILES_IN_BOUND: Final = 8
"""With a bound on the folder no file grows beyond this part of it, for only whole files can be removed."""
CHECKS_IN_BOUND: Final = 32
"""How often the bound is looked at while a worker writes as much as the bound allows."""
_ATTEMPTS: Final = 8


class StepFiles:
    """One worker's files.

    Args:
        folder: The trace folder.
        worker: The worker's name.
        file_max_bytes: A file that has grown to this is followed by a new one.
        max_bytes: What the whole folder may take; None for no bound.
    """

    def __init__(self, folder: Path, worker: str, file_max_bytes: int, max_bytes: int | None) -> None:
        self.worker = worker
        self._folder = folder
        self._max_bytes = max_bytes
        self._file_max_bytes = file_max_bytes if max_bytes is None else min(file_max_bytes, max_bytes // FILES_IN_BOUND)
        self._files: OrderedDict[str, StepFile] = OrderedDict()
        self._numbers: dict[str, int] = {}
        self._compressor: zstandard.ZstdCompressor | None = None
        self._written = 0

    def append(self, pieces: Sequence[bytes | memoryview], summary: TraceSummary) -> None:
        """Append a trajectory to the file of its step.

        Args:
            pieces: Its spans as a line, in pieces.
            summary: What the index says of it.

        Raises:
            OSError: The disk did not take it, and has none of it.
        """
        place = layout.step_folder(summary.step, validate=summary.validate)
        for attempt in range(_ATTEMPTS):
            try:
                file = self._file(place)
                self._written += file.append(pieces, summary)
                break
            except FileGoneError:
                # Somebody has removed it: what comes goes into the next one.
                self._close(place, is_full=True)
                if attempt == _ATTEMPTS - 1:
                    raise
        if file.end >= self._file_max_bytes:
            self._close(place, is_full=True)
        if self._max_bytes is not None and self._written > self._max_bytes // CHECKS_IN_BOUND:
            self._keep_bound(place)

    def close(self) -> None:
        """Let go of all files."""
        for place in list(self._files):
            self._close(place)
        if self._max_bytes is not None:
            enforce_bound(self._folder, self._max_bytes)

    def forget(self) -> None:
        """Let go of all files as they are; in a forked child, where they are the parent's."""
        for file in self._files.values():
            file.forget()
        self._files.clear()

    def _file(self, place: str) -> StepFile:
        file = self._files.get(place)
        if file is None:
            if self._compressor is None:
                self._compressor = make_compressor()
            path = layout.data_path(self._folder / place, self.worker, self._numbers.setdefault(place, 1))
            file = self._files[place] = StepFile(path, self._compressor, self._folder)
            if len(self._files) > MAX_FILES:
                self._close(next(iter(self._files)))
        self._files.move_to_end(place)
        return file

    def _close(self, place: str, *, is_full: bool = False) -> None:
        file = self._files.pop(place, None)
        can_go_on = file.close() if file is not None else True
        if is_full or not can_go_on:
            self._numbers[place] = self._numbers.get(place, 1) + 1

    def _keep_bound(self, place: str) -> None:
        self._written = 0
        for other in [other for other in self._files if other != place]:
            # A step that is over may be removed once we let go of its file; one that is not is opened again.
            self._close(other)
        enforce_bound(self._folder, self._max_bytes or 0)
