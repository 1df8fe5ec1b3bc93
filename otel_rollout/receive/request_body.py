"""Decompresses request bodies, up to a limit: a kilobyte can claim to be a gigabyte."""

from __future__ import annotations

import zlib
from collections.abc import Callable
from typing import Any, Final

from otel_rollout.folder.frames import require_zstandard

ENCODINGS: Final = ("gzip", "zstd", "deflate", "identity")
_GZIP: Final = 31
_ZLIB: Final = 15
MAX_WINDOW_BYTES: Final = 2**27
_MAX_MEMBERS: Final = 64
ZSTD_PIECE_BYTES: Final = 1024
"""At most 32 MiB once decompressed: zstd's decompressor has no limit."""
PROTOBUF: Final = "application/x-protobuf"
JSON: Final = "application/json"


class BodyTooLargeError(Exception):
    """A body has more bytes than the limit; the message says which."""


def decompress(body: bytes, encoding: str, max_bytes: int) -> bytes:
    """Return a body without its content encoding.

    Args:
        body: The body.
        encoding: One of `ENCODINGS`; empty for none.
        max_bytes: The limit.

    Raises:
        BodyTooLargeError: It is larger than the limit once decompressed.
        ValueError: It is damaged, or cut off.
    """
    if encoding in ("gzip", "deflate"):
        # HTTP's deflate is zlib's form (RFC 9110, section 8.4.1.2).
        data = _inflate(body, max_bytes, encoding, _GZIP if encoding == "gzip" else _ZLIB)
    elif encoding == "zstd":
        data = _decompress_zstd(body, max_bytes)
    else:
        data = body
    if len(data) > max_bytes:
        raise BodyTooLargeError(f"the body has more than {max_bytes:,} bytes once decompressed, which is the limit")
    return data


def _inflate(body: bytes, max_bytes: int, encoding: str, window: int) -> bytes:
    def step(decompressor: Any, piece: memoryview, most: int) -> bytes:
        data: bytes = decompressor.decompress(piece, most)
        return data

    try:
        return _decompress(body, max_bytes, lambda: zlib.decompressobj(window), step, len(body))
    except zlib.error as error:
        raise ValueError(f"the body is no {encoding}: {error}") from error


def _decompress_zstd(body: bytes, max_bytes: int) -> bytes:
    zstandard = require_zstandard()
    shared = zstandard.ZstdDecompressor(max_window_size=MAX_WINDOW_BYTES)

    def step(decompressor: Any, piece: memoryview, _: int) -> bytes:
        data: bytes = decompressor.decompress(piece)
        return data

    try:
        # A stream reader would be shorter, and takes a body that is cut off for a whole one.
        return _decompress(body, max_bytes, shared.decompressobj, step, ZSTD_PIECE_BYTES)
    except (zstandard.ZstdError, MemoryError) as error:
        raise ValueError(f"the body is no zstd: {error}") from error


def _decompress(
    body: bytes,
    max_bytes: int,
    make: Callable[[], Any],
    step: Callable[[Any, memoryview, int], bytes],
    piece_bytes: int,
) -> bytes:
    """Return the data of a body, or more than `max_bytes` of it.

    Args:
        body: The body; several members may follow one another.
        max_bytes: The limit.
        make: Makes the decompressor of a member.
        step: Decompresses a piece, up to a number of bytes if it can.
        piece_bytes: The size of a piece.

    Raises:
        ValueError: It is cut off, or has too many members.
    """
    rest, parts, size, members = memoryview(body), [], 0, 0
    while rest:
        members += 1
        if members > _MAX_MEMBERS:
            # The bytes after a member are copied at its end.
            raise ValueError(f"the body has more than {_MAX_MEMBERS} compressed members")
        decompressor = make()
        while not decompressor.eof:
            if not rest:
                raise ValueError("the body is cut off")
            piece, rest = rest[:piece_bytes], rest[piece_bytes:]
            data = step(decompressor, piece, max_bytes + 1 - size)
            parts.append(data)
            size += len(data)
            if size > max_bytes:
                return b"".join(parts)
            if decompressor.eof and (unused := len(decompressor.unused_data)):
                rest = memoryview(body)[len(body) - len(rest) - unused :]
    return b"".join(parts)
