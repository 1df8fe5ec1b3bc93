"""Lines of text files: of an index, sealed with a checksum, and of any file.

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


def scan_lines(path: str | os.PathLike[str]) -> Iterator[tuple[int, int, bytes | None]]:
    """Yield offset, length and text (with its line end) of each line; None for the text of an overlong line."""
    with os.fdopen(open_to_read(path), "rb") as file:
        offset = 0
        while line := file.readline(MAX_LINE_BYTES):
            length, is_too_long = len(line), False
            while len(line) >= (_SKIPPED_BYTES if is_too_long else MAX_LINE_BYTES) and not line.endswith(b"\n"):
                is_too_long = True
                line = file.readline(_SKIPPED_BYTES)
                length += len(line)
            yield offset, length, None if is_too_long else line
            offset += length
