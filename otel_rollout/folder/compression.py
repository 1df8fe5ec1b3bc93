"""Decompresses files and request bodies in pieces: a kilobyte can claim to be a gigabyte."""

from __future__ import annotations

import io
import zlib
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, Final

from otel_rollout.folder.frames import require_zstandard

if TYPE_CHECKING:
    from _typeshed import WriteableBuffer

ENCODINGS: Final = ("gzip", "zstd", "deflate", "identity")
MAGICS: Final = {b"\x28\xb5\x2f\xfd": "zstd", b"\x1f\x8b": "gzip"}
"""The first bytes of a compressed file."""
# HTTP's deflate is zlib's form (RFC 9110, section 8.4.1.2).
_WINDOWS: Final = {"gzip": 31, "deflate": 15}
_MAX_WINDOW_BYTES: Final = 2**27
_PIECE_BYTES: Final = 1024
"""At most 32 MiB once decompressed: zstd's decompressor has no limit."""
_MAX_MEMBERS: Final = 64


class BodyTooLargeError(ValueError):
    """A body has more bytes than the limit; the message says which."""


class CutOffError(ValueError):
    """Compressed data ends within a member."""


def decompress(body: bytes, encoding: str, max_bytes: int) -> bytes:
    """Return a body without its content encoding.

    Args:
        body: The body.
        encoding: One of `ENCODINGS`; empty for none.
        max_bytes: The limit.

    Raises:
        BodyTooLargeError: It is larger than the limit once decompressed.
        ValueError: It is damaged, cut off, or has too many members.
    """
    parts, size = [], 0
    is_plain = encoding in ("identity", "")
    for part in (body,) if is_plain else decompressed(io.BytesIO(body).read, encoding, _MAX_MEMBERS):
        parts.append(part)
        size += len(part)
        if size > max_bytes:
            raise BodyTooLargeError(f"the body has more than {max_bytes:,} bytes once decompressed, which is the limit")
    return b"".join(parts)


def decompressed(read: Callable[[int], bytes], encoding: str, max_members: int | None = None) -> Iterator[bytes]:
    """Yield the data of compressed members, which may follow one another.

    Args:
        read: Returns up to so many bytes; none at the end.
        encoding: `gzip`, `deflate` or `zstd`.
        max_members: The limit on the members; None for none.

    Raises:
        CutOffError: It ends within a member.
        ValueError: It is damaged, or has too many members.
    """
    zstandard = require_zstandard()
    shared = zstandard.ZstdDecompressor(max_window_size=_MAX_WINDOW_BYTES)
    piece = read(_PIECE_BYTES)
    members = 0
    while piece:
        members += 1
        if max_members is not None and members > max_members:
            raise ValueError(f"the body has more than {max_members} compressed members")
        # A stream reader would be shorter, and takes what is cut off for whole.
        member: Any = shared.decompressobj() if encoding == "zstd" else zlib.decompressobj(_WINDOWS[encoding])
        while not member.eof:
            if not piece:
                raise CutOffError("the body is cut off")
            try:
                data: bytes = member.decompress(piece)
            except (zstandard.ZstdError, zlib.error, MemoryError) as error:
                raise ValueError(f"the body is no {encoding}: {error or 'out of memory'}") from error
            if data:
                yield data
            piece = member.unused_data if member.eof else read(_PIECE_BYTES)
        piece = piece or read(_PIECE_BYTES)


class DecompressedFile(io.RawIOBase):
    """The data of a compressed file, up to the first damage.

    Args:
        file: The file.
        encoding: `gzip` or `zstd`.
    """

    def __init__(self, file: io.BufferedReader, encoding: str) -> None:
        self.fault: ValueError | None = None
        """The reason that the rest can't be read; a `CutOffError` if the file ends within a member."""
        self._pieces = decompressed(file.read, encoding)
        self._data = memoryview(b"")

    def readable(self) -> bool:
        """Return True."""
        return True

    def readinto(self, buffer: WriteableBuffer) -> int:
        """Fill a part of a buffer, and return its size; 0 at the end."""
        target = memoryview(buffer).cast("B")
        if not self._data:
            try:
                self._data = memoryview(next(self._pieces, b""))
            except ValueError as error:
                self.fault = error
        piece = self._data[: len(target)]
        target[: len(piece)] = piece
        self._data = self._data[len(piece) :]
        return len(piece)
