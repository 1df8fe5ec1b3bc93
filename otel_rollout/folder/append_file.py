"""An append-only file: each write is there entirely or not at all, as far as the disk allows."""

from __future__ import annotations

import errno
import os
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final

from otel_rollout.files.file_lock import lock_shared
from otel_rollout.files.file_modes import make_folder, open_private

_ATTEMPTS: Final = 4


class FileGoneError(OSError):
    """The file was removed or taken by another process: nobody would find what is appended to it."""


class AppendFile:
    """A file with one writer, created if it is missing and locked until it is closed.

    Args:
        path: The file; missing folders are created.
        within: The folder that it belongs to; folders created below take its mode, others are private.

    Raises:
        OSError: It can't be created or opened.
        FileGoneError: Another process is removing or consuming it.
    """

    def __init__(self, path: str | os.PathLike[str], within: Path | None = None) -> None:
        self.path = Path(path)
        self.descriptor = _open(self.path, within)
        if not lock_shared(self.descriptor):
            os.close(self.descriptor)
            raise _gone(self.path)
        self.end = os.fstat(self.descriptor).st_size

    def append(self, pieces: Sequence[bytes | memoryview]) -> int:
        """Write `pieces`, one after the other, at the end, and return the offset of the first.

        Raises:
            OSError: The disk did not take all of it; the part that it took is cut off again.
            FileGoneError: The file was removed.
        """
        if os.fstat(self.descriptor).st_nlink == 0:
            raise _gone(self.path)
        start, left = self.end, memoryview(b"".join(pieces))
        end = start + len(left)
        try:
            while left:
                left = left[os.pwrite(self.descriptor, left, end - len(left)) :]
        except OSError:
            # If even that fails, the next write overwrites the rest.
            with suppress(OSError):
                os.ftruncate(self.descriptor, start)
            raise
        self.end = end
        return start

    def read(self, offset: int, length: int) -> bytes:
        """Return a part of the file.

        Raises:
            OSError: It can't be read, or was cut off.
        """
        data = read_at(self.descriptor, offset, length)
        if len(data) < length:
            raise OSError(errno.EIO, "the file was cut off by another process", str(self.path))
        return data

    def clear(self) -> None:
        """Truncate the file to nothing."""
        os.ftruncate(self.descriptor, 0)
        self.end = 0

    def close(self) -> None:
        """Close the file; idempotent."""
        if self.descriptor >= 0:
            descriptor, self.descriptor = self.descriptor, -1
            with suppress(OSError):
                # NFS may report only now that the disk is full; spans must not be stored twice for that.
                os.close(descriptor)


def _open(path: Path, within: Path | None) -> int:
    for _ in range(_ATTEMPTS):
        with suppress(FileNotFoundError):
            return open_private(path, os.O_RDWR)
        # Again, if the retention of another process removes the empty folder between these two calls.
        make_folder(path.parent, within)
    return open_private(path, os.O_RDWR)


def read_at(descriptor: int, offset: int, length: int) -> bytes:
    """Return a part of an open file, or as much of it as there is."""
    data = os.pread(descriptor, length, offset)
    while len(data) < length and (more := os.pread(descriptor, length - len(data), offset + len(data))):
        data += more
    return data


def _gone(path: Path) -> FileGoneError:
    return FileGoneError(errno.ENOENT, "the file was removed or taken by another process", str(path))
