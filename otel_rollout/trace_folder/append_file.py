"""A file that grows by whole pieces: each is there entirely or not at all, as far as the disk lets us."""

from __future__ import annotations

import errno
import os
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final

from otel_rollout.export.file_modes import make_folder, open_private
from otel_rollout.trace_folder.file_lock import hold

__all__ = ["AppendFile", "FileGoneError"]


_ATTEMPTS: Final = 4
_MAX_PIECES: Final = 1024
"""More than these no system call takes (IOV_MAX of Linux)."""


class FileGoneError(OSError):
    """The file was removed, or taken by another process, so nothing that is appended to it would be found."""


class AppendFile:
    """A file with one writer, made where there is none and held until it is closed.

    Args:
        path: The file; folders on the way are made too.
        within: The folder that it belongs to; folders made below it are as open as it is, others are private.

    Raises:
        OSError: It can't be made or opened.
        FileGoneError: Another process is removing or consuming it.
    """

    def __init__(self, path: str | os.PathLike[str], within: Path | None = None) -> None:
        self.path = Path(path)
        self.descriptor = _open(self.path, within)
        if not hold(self.descriptor):
            os.close(self.descriptor)
            raise _gone(self.path)
        self.end = os.fstat(self.descriptor).st_size

    def append(self, pieces: Sequence[bytes | memoryview]) -> int:
        """Write `pieces`, one behind the other, behind what is there, and return where the first begins.

        Args:
            pieces: What belongs together.

        Raises:
            OSError: The disk did not take all of it; what it took is cut off again.
            FileGoneError: The file was removed.
        """
        if os.fstat(self.descriptor).st_nlink == 0:
            raise _gone(self.path)
        start = end = self.end
        try:
            for first in range(0, len(pieces), _MAX_PIECES):
                end = self._write(pieces[first : first + _MAX_PIECES], end)
        except OSError:
            # Where even that fails, what comes next is written over the rest of this.
            with suppress(OSError):
                os.ftruncate(self.descriptor, start)
            raise
        self.end = end
        return start

    def _write(self, pieces: Sequence[bytes | memoryview], offset: int) -> int:
        """Write pieces from `offset` on, and return where they end."""
        size = sum(map(len, pieces))
        written = os.pwritev(self.descriptor, pieces, offset)
        if written < size:
            rest = b"".join(pieces)
            while written < size:
                written += os.pwrite(self.descriptor, memoryview(rest)[written:], offset + written)
        return offset + size

    def read(self, offset: int, length: int) -> bytes:
        """Return a piece of what was appended.

        Args:
            offset: Where it begins.
            length: How long it is.

        Raises:
            OSError: It can't be read, or is no longer there.
        """
        data = os.pread(self.descriptor, length, offset)
        while len(data) < length:
            more = os.pread(self.descriptor, length - len(data), offset + len(data))
            if not more:
                raise OSError(errno.EIO, "the file was cut off by another process", str(self.path))
            data += more
        return data

    def clear(self) -> None:
        """Cut off everything.

        Raises:
            OSError: The disk did not let us.
        """
        os.ftruncate(self.descriptor, 0)
        self.end = 0

    def close(self) -> None:
        """Let go of the file; a second time is harmless."""
        if self.descriptor >= 0:
            descriptor, self.descriptor = self.descriptor, -1
            with suppress(OSError):
                # NFS may say only now that it is full; what was appended is not to be stored twice for that.
                os.close(descriptor)


def _open(path: Path, within: Path | None) -> int:
    for _ in range(_ATTEMPTS):
        with suppress(FileNotFoundError):
            return open_private(path, os.O_RDWR)
        # Whoever removes old files removes folders that are empty: again, if that was between these two lines.
        make_folder(path.parent, within)
    return open_private(path, os.O_RDWR)


def _gone(path: Path) -> FileGoneError:
    return FileGoneError(errno.ENOENT, "the file was removed or taken by another process", str(path))
