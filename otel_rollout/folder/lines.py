"""Lines of text files: of an index or a journal, sealed with a checksum, and of any file.

A sealed line is a JSON object with the CRC-32 of the text before it as its last name: `{"a":1,"crc32":"89abcdef"}`
has the checksum of `{"a":1`. Other readers pass over the name.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Final
from zlib import crc32

from otel_rollout.files.file_lock import open_to_read
from otel_rollout.folder.frames import MAX_LINE_BYTES

__all__ = ["SEAL_BYTES", "checksum_of", "is_whole", "scan_lines", "seal_of", "unseal"]

_NAME: Final = b',"crc32":"'
SEAL_BYTES: Final = len(_NAME) + 10
"""The length of the checksum with its name, up to the object's end."""
_SKIPPED_BYTES: Final = 2**20


def seal_of(start: bytes | memoryview) -> bytes:
    """Return the end of an object's sealed line, line end included; `start` is the object without its brace."""
    return b'%b%08x"}\n' % (_NAME, crc32(start))


def is_whole(line: bytes) -> bool:
    """Return True if a line, without its line end, is sealed and its checksum holds."""
    # The slice is a copy, which is faster than a view of a few hundred bytes.
    return line.endswith(b'%b%08x"}' % (_NAME, crc32(line[:-SEAL_BYTES])))


def checksum_of(line: bytes) -> str:
    """Return the checksum that a line, without its line end, is sealed with; else compute it."""
    return line[-10:-2].decode("ascii", "replace") if _is_sealed(line) else f"{crc32(line):08x}"


def unseal(line: bytes, *, may_be_unsealed: bool = False) -> bytes:
    """Return a line, with its line end, without its checksum.

    Args:
        line: The line.
        may_be_unsealed: Return a line without a checksum, another tool's, as it is.

    Raises:
        ValueError: The checksum does not hold.
    """
    if may_be_unsealed and not _is_sealed(line[:-1]):
        return line
    # A view: a journal's line can have megabytes.
    start = memoryview(line)[: -SEAL_BYTES - 1]
    if not line.endswith(seal_of(start)):
        raise ValueError("the checksum does not hold")
    return b"".join((start, b"}\n"))


def scan_lines(path: str | os.PathLike[str], start: int = 0) -> Iterator[tuple[int, int, bytes | None]]:
    """Yield offset, length and text (with its line end) of each line; None for the text of an overlong line.

    Args:
        path: The file.
        start: The offset of a line.
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


def _is_sealed(line: bytes) -> bool:
    return line.endswith(b'"}') and line.startswith(_NAME, len(line) - SEAL_BYTES)
