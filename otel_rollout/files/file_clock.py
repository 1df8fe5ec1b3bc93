"""The clock that stamps files, which on a network file system is the server's."""

from __future__ import annotations

import os
import secrets
import time


def file_clock(folder: str | os.PathLike[str]) -> float:
    """Return the seconds since 1970 by the clock that stamps a folder's files.

    Args:
        folder: The folder; if no file can be created there, the clock is this host's.
    """
    path = os.path.join(folder, f".{secrets.token_hex(8)}.new")  # noqa: PTH118 - of any path
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600)
    except OSError:
        return time.time()
    try:
        os.unlink(path)  # noqa: PTH108 - of any path
        return os.fstat(descriptor).st_mtime
    except OSError:
        return time.time()
    finally:
        os.close(descriptor)
