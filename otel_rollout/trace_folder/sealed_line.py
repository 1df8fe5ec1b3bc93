"""A JSON object on a line that ends with the checksum of what stands before it.

`{"a":1,"crc32":"89abcdef"}`: eight hexadecimal digits, the CRC-32 of `{"a":1`. Readers that know nothing of it find one
name more.
"""

from __future__ import annotations

from typing import Final
from zlib import crc32

__all__ = ["SEAL_BYTES", "checksum_of", "is_sealed", "is_whole", "seal_of"]

_NAME: Final = b',"crc32":"'
SEAL_BYTES: Final = len(_NAME) + 10
"""How long the checksum with its name is, up to the object's end."""


def seal_of(start: bytes | memoryview) -> bytes:
    """Return how the line of an object ends, line end included.

    Args:
        start: The object without its closing brace.
    """
    return b'%b%08x"}\n' % (_NAME, crc32(start))


def checksum_of(line: bytes) -> str:
    """Return the checksum of a line, without its end: the one that it ends with, or one that is made now.

    Args:
        line: The line.
    """
    return line[-10:-2].decode("ascii", "replace") if is_sealed(line) else f"{crc32(line):08x}"


def is_sealed(line: bytes) -> bool:
    """Say whether a line, without its end, looks as if it had a checksum.

    Args:
        line: The line.
    """
    return line.endswith(b'"}') and line.startswith(_NAME, len(line) - SEAL_BYTES)


def is_whole(line: bytes) -> bool:
    """Say whether a line, without its end, has a checksum, and is what was written.

    Args:
        line: The line.
    """
    # The slice is a copy, which is faster than a view of a few hundred bytes.
    return line.endswith(b'%b%08x"}' % (_NAME, crc32(line[:-SEAL_BYTES])))
