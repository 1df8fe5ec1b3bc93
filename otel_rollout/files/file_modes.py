"""The modes of the files that we create: private, unless their folder is shared.

A folder that we create is 0700, a file 0600. In an existing folder a file takes its group and other bits (0750 makes
0640), whatever the umask: a shared disk is set up once, by its folder. Where everybody may write, with the sticky bit
as /tmp has it, a file is 0600.
"""

from __future__ import annotations

import os
import stat
from contextlib import suppress
from pathlib import Path
from typing import Final

_FILE: Final = 0o600
_FOLDER: Final = 0o700
_FILE_BITS_OF_OTHERS: Final = 0o066
_FOLDER_BITS_OF_OTHERS: Final = 0o077


def open_private(path: str | os.PathLike[str], flags: int) -> int:
    """Open a file, or create it, and return its descriptor; a symlink is not followed.

    Args:
        path: The file, in an existing folder.
        flags: Further flags of `os.open`.

    Raises:
        OSError: It can't be created or opened; `ELOOP` if it is a symlink.
    """
    flags |= getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_NOFOLLOW", 0)
    try:
        descriptor = os.open(path, flags | os.O_CREAT | os.O_EXCL, _FILE)
    except FileExistsError:
        return os.open(path, flags)
    # Some network file systems refuse to change modes: there the file stays private, or as they made it.
    with suppress(OSError, AttributeError):
        shared = os.stat(os.path.dirname(path) or ".").st_mode  # noqa: PTH116, PTH120
        is_everybodys = shared & stat.S_ISVTX and shared & stat.S_IWOTH
        mode = _FILE if is_everybodys else _FILE | (shared & _FILE_BITS_OF_OTHERS)
        if stat.S_IMODE(os.fstat(descriptor).st_mode) != mode:
            os.fchmod(descriptor, mode)
    return descriptor


def make_folder(path: Path, within: Path | None = None) -> None:
    """Create a folder, and its missing parents.

    Args:
        path: The folder.
        within: The folder that it belongs to; folders created below take its group and other bits.

    Raises:
        OSError: One can't be created.
    """
    if path.is_dir():
        return
    make_folder(path.parent, within)
    try:
        path.mkdir(_FOLDER)
    except FileExistsError:
        # Another process was faster, or it is no folder.
        if not path.is_dir():
            raise
        return
    if within is not None and within in path.parents:
        with suppress(OSError):
            shared = path.parent.stat().st_mode & _FOLDER_BITS_OF_OTHERS
            if shared:
                # Keeps the set-group-id bit, which the system inherits.
                path.chmod(stat.S_IMODE(path.stat().st_mode) | shared)


def narrow(path: Path) -> None:
    """Remove the mode bits that a file's folder does not allow, from a file that a library has created for us."""
    with suppress(OSError):
        mode = stat.S_IMODE(path.stat().st_mode)
        allowed = _FILE | (path.parent.stat().st_mode & _FILE_BITS_OF_OTHERS)
        if mode & ~allowed:
            path.chmod(mode & allowed)
