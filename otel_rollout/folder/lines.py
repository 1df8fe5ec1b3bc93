"""The sealed lines of an index.

A sealed line is a JSON object with the CRC-32 of the text before it as its last name: `{"a":1,"crc32":"89abcdef"}`
has the checksum of `{"a":1`. Other readers pass over the name.
"""

from __future__ import annotations

from typing import Final
from zlib import crc32

_NAME: Final = b',"crc32":"'
SEAL_BYTES: Final = len(_NAME) + 10
"""The length of the checksum with its name, up to the object's end."""


def seal_of(start: bytes | memoryview) -> bytes:
    """Return the end of an object's sealed line, line end included; `start` is the object without its brace."""
    return b'%b%08x"}\n' % (_NAME, crc32(start))


def is_whole(line: bytes) -> bool:
    """Return True if a line, without its line end, is sealed and its checksum holds."""
    # The slice is a copy, which is faster than a view of a few hundred bytes.
    return line.endswith(b'%b%08x"}' % (_NAME, crc32(line[:-SEAL_BYTES])))
