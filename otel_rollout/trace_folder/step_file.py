"""A file of trajectories with its index, written side by side."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from otel_rollout.trace_folder.append_file import AppendFile
from otel_rollout.trace_folder.frames import FrameFile
from otel_rollout.trace_folder.index import MAX_INDEX_LINE_BYTES, TraceSummary, index_line
from otel_rollout.trace_folder.layout import index_path

if TYPE_CHECKING:
    import zstandard

__all__ = ["StepFile"]


class StepFile:
    """One worker's trajectories of one step, up to a size.

    Args:
        path: The file of the trajectories.
        compressor: What compresses.
        within: The trace folder.

    Raises:
        OSError: It can't be made or opened.
        FileGoneError: Another process is removing or consuming it.
    """

    def __init__(self, path: Path, compressor: zstandard.ZstdCompressor, within: Path) -> None:
        self._frames = FrameFile(path, compressor, within)
        try:
            self._index = AppendFile(index_path(path), within)
        except OSError:
            self._frames.close()
            raise
        self._waiting: list[bytes] = []

    @property
    def path(self) -> Path:
        """The file of the trajectories."""
        return self._frames.path

    @property
    def end(self) -> int:
        """How many bytes the file has, without the index."""
        return self._frames.end

    def append(self, pieces: Sequence[bytes | memoryview], summary: TraceSummary) -> int:
        """Append a trajectory, and return how many bytes that took.

        Args:
            pieces: Its spans as a line, in pieces.
            summary: What the index says of it.

        Raises:
            OSError: The disk did not take it, and has none of it.
            FileGoneError: The file or its index was removed.
        """
        # Its lines stand in the order of the frames: readers look at each frame that it has no line for.
        self._write_index()
        frame = self._frames.append_pieces(pieces)
        line = index_line(summary.entry(frame.offset, frame.length, sum(map(len, pieces)), self._frames.checksum))
        if len(line) > MAX_INDEX_LINE_BYTES:
            return frame.length
        self._waiting.append(line)
        with suppress(OSError):
            # The trajectory is stored all the same, and found without the index.
            self._write_index()
        return frame.length + len(line)

    def close(self) -> bool:
        """Let go of both files; whether more can be appended to them later."""
        with suppress(OSError):
            self._write_index()
        self._index.close()
        self._frames.close()
        return not self._waiting

    def forget(self) -> None:
        """Let go of both files as they are; in a forked child, where they are the parent's."""
        self._index.close()
        self._frames.close()

    def _write_index(self) -> None:
        if self._waiting:
            self._index.append(self._waiting)
            self._waiting.clear()
