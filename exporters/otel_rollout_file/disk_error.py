"""What delivery should do after an error of the disk."""

from __future__ import annotations

import errno
from pathlib import Path
from typing import Final

from otel_rollout.export.outcome import Outcome, Verdict
from otel_rollout.trace_folder.append_file import FileGoneError

__all__ = ["outcome_of_error"]

_FULL: Final = frozenset({errno.ENOSPC, errno.EDQUOT})
_DENIED: Final = frozenset(
    {
        errno.EACCES,
        errno.EPERM,
        errno.EROFS,
        errno.ENOENT,
        errno.ENOTDIR,
        errno.EISDIR,
        errno.EEXIST,
        errno.ELOOP,
        errno.ENAMETOOLONG,
    }
)


def outcome_of_error(error: OSError, folder: Path) -> Outcome:
    """Return what became of an attempt that the disk did not take.

    Args:
        error: What was raised.
        folder: The trace folder.
    """
    reason = f"{folder}: {error.strerror or error}"
    if isinstance(error, FileGoneError) or error.errno not in _DENIED:
        # A full disk, an interrupted call, too many open files, a network file system that is away: all pass.
        hint = ": free space, or bound the folder by OTEL_ROLLOUT_DIR_MAX_BYTES" if error.errno in _FULL else ""
        return Outcome(Verdict.RETRY, reason + hint)
    return Outcome(Verdict.DENIED, f"{reason}: OTEL_ROLLOUT_DIR must be a folder that this process may write to")
