"""The sealed lines of an index, and of the losses.

A sealed line is a JSON object with the CRC-32 of the text before it as its last name: `{"a":1,"crc32":"89abcdef"}`
has the checksum of `{"a":1`. Other readers pass over the name.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Final
from zlib import crc32

from otel_rollout.files.file_lock import open_to_read

MAX_INDEX_LINE_BYTES: Final = 2**24
"""Longer lines are neither written nor read."""
_NAME: Final = b',"crc32":"'
_SEAL_BYTES: Final = len(_NAME) + 10
"""The length of the checksum with its name, up to the object's end."""
_READ_BYTES: Final = 2**20


def seal_of(start: bytes | memoryview) -> bytes:
    """Return the end of an object's sealed line, line end included; `start` is the object without its brace."""
    return b'%b%08x"}\n' % (_NAME, crc32(start))


def read_lines(path: str | os.PathLike[str], start: int = 0) -> Iterator[tuple[int, list[bytes]]]:
    """Yield the sound lines of a file as objects without their brace, thousands at a time, up to one that is too long.

    Args:
        path: The file.
        start: The offset of a line.

    Yields:
        The bytes of the lines that are complete, damaged ones included, and those that are sound.
    """
    descriptor = open_to_read(path)
    try:
        rest, size = b"", max(1, min(_READ_BYTES, os.fstat(descriptor).st_size))
        os.lseek(descriptor, start, os.SEEK_SET)
        while data := os.read(descriptor, size):
            lines = (rest + data).split(b"\n") if rest else data.split(b"\n")
            rest = lines.pop()
            # The slice is a copy, which is faster than a view of a few hundred bytes.
            starts = [(line, line[:-_SEAL_BYTES]) for line in lines]
            sound = [start for line, start in starts if line.endswith(b'%b%08x"}' % (_NAME, crc32(start)))]
            yield sum(map(len, lines)) + len(lines), sound
            if len(rest) > MAX_INDEX_LINE_BYTES:
                return
    finally:
        os.close(descriptor)
