"""Locks on files: a writer holds a shared lock; removing or consuming a file takes the exclusive one."""

from __future__ import annotations

import errno
import os
import stat
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

try:
    import fcntl
except ImportError:  # not on Windows
    fcntl = None  # type: ignore[assignment]

QUIET_SECONDS: Final = 3600.0
"""Without locks, a file that was modified within this time counts as being written."""

# A pipe would not be opened before somebody writes to it.
_OPTIONS: Final = getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_NONBLOCK", 0)
_BUSY: Final = (errno.EWOULDBLOCK, errno.EACCES)
_ATTEMPTS: Final = 50


def lock_shared(descriptor: int) -> bool:
    """Lock an open file as its writer until it is closed; False if it was removed or is being consumed."""
    for attempt in range(_ATTEMPTS):
        if _lock(descriptor, is_exclusive=False) is not False:
            return os.fstat(descriptor).st_nlink > 0
        # `is_being_written` of another process holds the lock for microseconds.
        time.sleep(0.0002 * attempt)
    return False


def try_lock(descriptor: int) -> bool:
    """Lock an open file exclusively until it is closed; True also if the file system has no locks."""
    return _lock(descriptor, is_exclusive=True) is not False


def is_being_written(path: str | os.PathLike[str]) -> bool:
    """Return True if a process holds the file open to write to it."""
    try:
        with exclusive_lock(path) as descriptor:
            return descriptor is None
    except OSError:
        return False


@contextmanager
def exclusive_lock(path: str | os.PathLike[str]) -> Iterator[int | None]:
    """Hold the exclusive lock of a file; gives the file's descriptor, or None if another process has a lock.

    Raises:
        FileNotFoundError: There is no such file, or it was removed in the meantime.
        OSError: It can't be opened, or is not a regular file.
    """
    descriptor = _open(path)
    try:
        is_locked = _lock(descriptor, is_exclusive=True)
        status = os.fstat(descriptor)
        if status.st_nlink == 0:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(path))
        if is_locked is None:
            from otel_rollout.files.file_clock import file_clock

            # The clock of a host can be hours ahead, and a writer's file must not be taken from it.
            is_locked = file_clock(Path(path).parent) - status.st_mtime > QUIET_SECONDS
        yield descriptor if is_locked else None
    finally:
        os.close(descriptor)


@contextmanager
def exclusive_folder_lock(folder: Path) -> Iterator[bool]:
    """Hold the exclusive lock of a folder; gives False if another process has it, True if there are no locks."""
    try:
        descriptor = os.open(folder, os.O_RDONLY | getattr(os, "O_DIRECTORY", 0))
    except OSError:
        yield True
        return
    try:
        yield try_lock(descriptor)
    finally:
        os.close(descriptor)


def open_to_read(path: str | os.PathLike[str]) -> int:
    """Open a regular file, or a link to one, and return its descriptor.

    Raises:
        OSError: It is gone, can't be read, or is a folder, a pipe, a device.
    """
    return _regular(os.open(path, os.O_RDONLY | _OPTIONS), path)


def size_of(path: str | os.PathLike[str]) -> int:
    """Return the size of a regular file, or of a link's target.

    Raises:
        OSError: It is gone, or is a folder, a pipe, a device.
    """
    # Opened: NFS checks its cached attributes only then; a cached size may be seconds old.
    descriptor = open_to_read(path)
    try:
        return os.fstat(descriptor).st_size
    finally:
        os.close(descriptor)


def remove(path: Path, *indexes: Path) -> bool:
    """Remove a file and its indexes unless a process writes it; True if it is gone."""
    try:
        with exclusive_lock(path) as descriptor:
            if descriptor is None:
                return False
            for index in indexes:
                # First: an index without its file would mislead.
                index.unlink(missing_ok=True)
            path.unlink()
    except FileNotFoundError:
        return True
    except OSError:
        return False
    return True


def _open(path: str | os.PathLike[str]) -> int:
    try:
        # NFS takes an exclusive lock only on a file that is open for writing.
        descriptor = os.open(path, os.O_RDWR | _OPTIONS)
    except OSError as error:
        if error.errno not in (errno.EACCES, errno.EPERM, errno.EROFS):
            raise
        return open_to_read(path)
    return _regular(descriptor, path)


def _regular(descriptor: int, path: str | os.PathLike[str]) -> int:
    if stat.S_ISREG(os.fstat(descriptor).st_mode):
        return descriptor
    os.close(descriptor)
    raise _not_regular(path)


def _not_regular(path: str | os.PathLike[str]) -> OSError:
    return OSError(errno.EINVAL, "not a regular file", str(path))


def _lock(descriptor: int, *, is_exclusive: bool) -> bool | None:
    """Lock without waiting; None if this file system has no locks."""
    if fcntl is None:
        return None
    try:
        fcntl.flock(descriptor, (fcntl.LOCK_EX if is_exclusive else fcntl.LOCK_SH) | fcntl.LOCK_NB)
    except OSError as error:
        return False if error.errno in _BUSY else None
    return True
