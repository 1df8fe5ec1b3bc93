"""Who may touch a file: its writer holds it shared, and whoever removes or consumes it takes it exclusively."""

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

__all__ = ["hold", "is_being_written", "open_to_read", "remove", "size_of", "try_hold_alone", "try_lock", "try_take"]

QUIET_SECONDS: Final = 3600.0
"""Where files can't be locked: one that was modified since then counts as being written."""

_OPTIONS: Final = getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_NONBLOCK", 0)
"""A pipe would not be opened before somebody writes to it."""

_BUSY: Final = (errno.EWOULDBLOCK, errno.EACCES)
_ATTEMPTS: Final = 50


def hold(descriptor: int) -> bool:
    """Hold a file that is open, as its writer, until it is closed; False where it was removed or is being consumed.

    Args:
        descriptor: The open file.
    """
    for attempt in range(_ATTEMPTS):
        if _lock(descriptor, is_exclusive=False) is not False:
            return os.fstat(descriptor).st_nlink > 0
        # Somebody who looks whether it is being written holds it for microseconds.
        time.sleep(0.0002 * attempt)
    return False


def is_being_written(path: str | os.PathLike[str]) -> bool:
    """Say whether a process holds the file at `path` open to write to it; False if there is none to be opened.

    Args:
        path: The file.
    """
    try:
        with try_take(path) as descriptor:
            return descriptor is None
    except OSError:
        # Gone, or nothing that anybody writes lines to.
        return False


@contextmanager
def try_take(path: str | os.PathLike[str]) -> Iterator[int | None]:
    """Take a file for oneself while the context lasts: give its descriptor, or None where another process has it.

    Args:
        path: The file.

    Raises:
        FileNotFoundError: There is none, or it was removed in the meantime.
        OSError: It can't be opened, or is no regular file.
    """
    descriptor = _open(path)
    try:
        is_locked = _lock(descriptor, is_exclusive=True)
        status = os.fstat(descriptor)
        if status.st_nlink == 0:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(path))
        if is_locked is None:
            is_locked = time.time() - status.st_mtime > QUIET_SECONDS
        yield descriptor if is_locked else None
    finally:
        os.close(descriptor)


@contextmanager
def try_hold_alone(folder: Path) -> Iterator[bool]:
    """Be the only one who tidies a folder while the context lasts; gives False where another process is.

    Args:
        folder: The folder; where there is none, or no lock to be had, one is as good as alone.
    """
    try:
        descriptor = os.open(folder, os.O_RDONLY | getattr(os, "O_DIRECTORY", 0))
    except OSError:
        yield True
        return
    try:
        yield _lock(descriptor, is_exclusive=True) is not False
    finally:
        os.close(descriptor)


def open_to_read(path: str | os.PathLike[str]) -> int:
    """Open a file to read it, and return its descriptor.

    Args:
        path: The file; a link to one is as good.

    Raises:
        OSError: It is gone, can't be read, or is no file but a folder, a pipe, a device.
    """
    return _regular(os.open(path, os.O_RDONLY | _OPTIONS), path)


def size_of(path: str | os.PathLike[str]) -> int:
    """Return how many bytes a file has.

    Args:
        path: The file; a link to one is as good.

    Raises:
        OSError: It is gone, can't be looked at, or is no file but a folder, a pipe, a device.
    """
    status = os.stat(path)  # noqa: PTH116 - one of many
    if not stat.S_ISREG(status.st_mode):
        raise _no_file(path)
    return status.st_size


def try_lock(descriptor: int) -> bool:
    """Lock a file that is open, until it is closed; False if another process has it, True where there are no locks.

    Args:
        descriptor: The open file.
    """
    return _lock(descriptor, is_exclusive=True) is not False


def _open(path: str | os.PathLike[str]) -> int:
    try:
        # NFS takes an exclusive lock only on what is open for writing.
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
    raise _no_file(path)


def _no_file(path: str | os.PathLike[str]) -> OSError:
    return OSError(errno.EINVAL, "no regular file", str(path))


def _lock(descriptor: int, *, is_exclusive: bool) -> bool | None:
    """Lock without waiting; None where this file system has no locks."""
    if fcntl is None:
        return None
    try:
        fcntl.flock(descriptor, (fcntl.LOCK_EX if is_exclusive else fcntl.LOCK_SH) | fcntl.LOCK_NB)
    except OSError as error:
        return False if error.errno in _BUSY else None
    return True


def remove(path: Path, index: Path | None = None) -> bool:
    """Remove a file that nobody writes; whether it is gone.

    Args:
        path: The file.
        index: The index that goes with it, before it: an index without its file would mislead.
    """
    try:
        with try_take(path) as descriptor:
            if descriptor is None:
                return False
            if index is not None:
                index.unlink(missing_ok=True)
            path.unlink()
    except FileNotFoundError:
        return True
    except OSError:
        return False
    return True
