"""Lines of a file that is not compressed; one that is longer than any of ours takes no memory."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Final

from otel_rollout.trace_folder.file_lock import open_to_read
from otel_rollout.trace_folder.frames import MAX_LINE_BYTES

__all__ = ["read_piece", "scan_lines"]

_SKIPPED_BYTES: Final = 2**20


def read_piece(path: str | os.PathLike[str], offset: int, length: int) -> bytes:
    """Return a piece of a file, or as much of it as there is.

    Args:
        path: The file.
        offset: Where it begins.
        length: How long it is.

    Raises:
        OSError: The file is gone or can't be read.
    """
    with os.fdopen(open_to_read(path), "rb") as file:
        file.seek(offset)
        return file.read(length)


def scan_lines(path: str | os.PathLike[str], start: int = 0) -> Iterator[tuple[int, int, bytes | None]]:
    """Yield the lines of a file: where each begins, how long it is, and the line with its end; None if it is too long.

    Args:
        path: The file.
        start: Where a line begins.

    Raises:
        OSError: The file is gone or can't be read.
    """
    with os.fdopen(open_to_read(path), "rb") as file:
        file.seek(start)
        offset = start
        while line := file.readline(MAX_LINE_BYTES):
            length, is_too_long = len(line), False
            while len(line) >= (_SKIPPED_BYTES if is_too_long else MAX_LINE_BYTES) and not line.endswith(b"\n"):
                is_too_long = True
                line = file.readline(_SKIPPED_BYTES)
                length += len(line)
            yield offset, length, None if is_too_long else line
            offset += length
