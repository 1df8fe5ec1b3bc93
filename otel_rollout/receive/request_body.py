"""Decompresses request bodies, up to a limit: a kilobyte can claim to be a gigabyte."""

from __future__ import annotations

import io
import zlib
from typing import Final

from otel_rollout.trace_folder.frames import require_zstandard

__all__ = ["ENCODINGS", "BodyTooLargeError", "decompress"]

ENCODINGS: Final = ("gzip", "zstd", "identity")
_GZIP: Final = 31
_MAX_WINDOW_BYTES: Final = 2**27


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
    if encoding == "gzip":
        data = _gunzip(body, max_bytes)
    elif encoding == "zstd":
        data = _decompress_zstd(body, max_bytes)
    else:
        data = body
    if len(data) > max_bytes:
        raise BodyTooLargeError(f"the body has more than {max_bytes:,} bytes once decompressed, which is the limit")
    return data


def _gunzip(body: bytes, max_bytes: int) -> bytes:
    data, rest = b"", body
    while rest:
        # Several members may follow one another.
        member = zlib.decompressobj(_GZIP)
        try:
            data += member.decompress(rest, max_bytes + 1 - len(data))
        except zlib.error as error:
            raise ValueError(f"the body is no gzip: {error}") from error
        if len(data) > max_bytes:
            return data
        if not member.eof:
            raise ValueError("the body is cut off within its gzip")
        rest = member.unused_data
    return data


def _decompress_zstd(body: bytes, max_bytes: int) -> bytes:
    zstandard = require_zstandard()
    decompressor = zstandard.ZstdDecompressor(max_window_size=_MAX_WINDOW_BYTES)
    parts: list[bytes] = []
    size = 0
    try:
        with decompressor.stream_reader(io.BytesIO(body), read_across_frames=True) as reader:
            while size <= max_bytes and (part := reader.read(max_bytes + 1 - size)):
                parts.append(part)
                size += len(part)
    except (zstandard.ZstdError, MemoryError) as error:
        raise ValueError(f"the body is no zstd: {error}") from error
    return b"".join(parts)
