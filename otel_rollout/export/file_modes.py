"""Who may read the files that we make: nobody else, unless they are put into a folder that says otherwise.

A folder that we make is 0700 and a file 0600. In a folder that exists a file takes its group and other bits (0750 makes
0640), whatever the umask: a disk that is shared is set up once, by its folder.
"""

from __future__ import annotations

import os
import stat
from contextlib import suppress
from pathlib import Path
from typing import Final

__all__ = ["make_folder", "narrow", "open_private"]

_FILE: Final = 0o600
_FOLDER: Final = 0o700
_FILE_BITS_OF_OTHERS: Final = 0o066
_FOLDER_BITS_OF_OTHERS: Final = 0o077


def open_private(path: str | os.PathLike[str], flags: int) -> int:
    """Open a file, make it if there is none, and return its descriptor; a symlink in its place is not followed.

    Args:
        path: The file, in a folder that exists.
        flags: What `os.open` is to do beside that.

    Raises:
        OSError: It can't be made or opened; `ELOOP` if it is a symlink.
    """
    flags |= getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_NOFOLLOW", 0)
    try:
        descriptor = os.open(path, flags | os.O_CREAT | os.O_EXCL, _FILE)
    except FileExistsError:
        return os.open(path, flags)
    # Some network file systems let nobody change modes: there it stays private, or as they have it.
    with suppress(OSError, AttributeError):
        mode = _FILE | (os.stat(os.path.dirname(path) or ".").st_mode & _FILE_BITS_OF_OTHERS)  # noqa: PTH116, PTH120
        if stat.S_IMODE(os.fstat(descriptor).st_mode) != mode:
            os.fchmod(descriptor, mode)
    return descriptor


def make_folder(path: Path, within: Path | None = None) -> None:
    """Make a folder, and those above it that are missing.

    Args:
        path: The folder.
        within: The folder that it belongs to: what is made below that takes its group and other bits.

    Raises:
        OSError: One can't be made.
    """
    if path.is_dir():
        return
    make_folder(path.parent, within)
    try:
        path.mkdir(_FOLDER)
    except FileExistsError:
        # Another process was faster; what is no folder is an error.
        if not path.is_dir():
            raise
        return
    if within is not None and within in path.parents:
        with suppress(OSError):
            shared = path.parent.stat().st_mode & _FOLDER_BITS_OF_OTHERS
            if shared:
                # With what the system has set by itself: a folder in a set-group-id folder is one too.
                path.chmod(stat.S_IMODE(path.stat().st_mode) | shared)


def narrow(path: Path) -> None:
    """Take from a file what its folder does not allow, for a file that a library has made for us.

    Args:
        path: The file.
    """
    with suppress(OSError):
        mode = stat.S_IMODE(path.stat().st_mode)
        allowed = _FILE | (path.parent.stat().st_mode & _FILE_BITS_OF_OTHERS)
        if mode & ~allowed:
            path.chmod(mode & allowed)
