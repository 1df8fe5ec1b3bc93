"""Files of zstd frames with one OTLP request each: it is read without the others, and a torn one harms no other.

`zstdcat` prints such a file as one request: concatenated requests in protobuf are one.

Source: https://datatracker.ietf.org/doc/html/rfc8878#section-3.1.1 (where a frame ends).
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final, NamedTuple

from otel_rollout.errors import MissingExtraError, UnreadableTraceError
from otel_rollout.files.file_lock import open_to_read
from otel_rollout.folder.append_file import AppendFile
from otel_rollout.installing import install_line

__all__ = [
    "MAGIC",
    "DamagedFrameError",
    "FrameExtent",
    "FrameFile",
    "TornFrame",
    "checksum_at",
    "has_content_size",
    "read_frame",
    "read_range",
    "require_zstandard",
    "scan_frames",
]

LEVEL: Final = 3
WINDOW_LOG: Final = 21
"""2 MiB: turns repeat a long history."""
MAX_LINE_BYTES: Final = 2**28
"""The largest request. A frame that claims a larger one is damaged: 256 MiB of zeros are 8 KB on disk."""
MAX_FRAME_BYTES: Final = MAX_LINE_BYTES + MAX_LINE_BYTES // 128
"""Incompressible data becomes a little longer."""

MAGIC: Final = b"\x28\xb5\x2f\xfd"
_DICTIONARY_BYTES: Final = (0, 1, 2, 4)
_CONTENT_SIZE_BYTES: Final = (0, 2, 4, 8)
_MAX_HEADER: Final = 18
_CHECKSUM_BYTES: Final = 4
_MAX_BLOCKS: Final = 2**15
"""A block has up to 128 KiB; for each block there is a read."""
_SEARCH_BYTES: Final = 2**20
_local = threading.local()


class FrameExtent(NamedTuple):
    """The place of a frame: its first byte in the file, and its size in bytes."""

    offset: int
    length: int


class TornFrame(NamedTuple):
    """Bytes up to the next frame, or the file's end, that are no whole frame: an interrupted write, or damage."""

    offset: int
    length: int


class DamagedFrameError(UnreadableTraceError):
    """A frame is torn, or its bytes are not those that were written."""


class FrameFile:
    """An append-only file of frames; not thread-safe.

    Args:
        path: The file, continued if it exists; missing folders are created.
        within: The folder that it belongs to; folders created below take its mode, others are private.

    Raises:
        OSError: It can't be created or opened.
        FileGoneError: Another process is removing or consuming it.
        MissingExtraError: zstandard isn't installed.
    """

    def __init__(self, path: str | os.PathLike[str], within: Path | None = None) -> None:
        require_zstandard()
        self._file = AppendFile(path, within)
        self.checksum = ""
        """The checksum of the last request."""
        self.path = self._file.path

    @property
    def end(self) -> int:
        """The file's size in bytes."""
        return self._file.end

    def append(self, *pieces: bytes | memoryview) -> FrameExtent:
        """Append a request and return the place of its frame.

        Args:
            pieces: The request; several pieces are concatenated.

        Raises:
            OSError: The disk did not take all of it, and has none of it.
            FileGoneError: The file was removed.
            ValueError: It is longer than `MAX_LINE_BYTES`.
        """
        if (size := sum(map(len, pieces))) >= MAX_LINE_BYTES:
            raise ValueError(f"a request of {size:,} bytes is over the limit of {MAX_LINE_BYTES:,}")
        # In one piece: streaming takes a quarter longer, even counting the copy.
        data: bytes = _compressor().compress(b"".join(pieces) if len(pieces) > 1 else pieces[0])
        extent = FrameExtent(self._file.append([data]), len(data))
        self.checksum = data[-_CHECKSUM_BYTES:].hex()
        return extent

    def close(self) -> None:
        """Close the file; idempotent."""
        self._file.close()


def read_frame(path: str | os.PathLike[str], offset: int, length: int) -> bytes:
    """Return the request in a frame.

    Raises:
        DamagedFrameError: There is no whole frame.
        MissingExtraError: zstandard isn't installed.
    """
    if length > MAX_FRAME_BYTES:
        raise DamagedFrameError(f"{path}: the frame at {offset} claims {length:,} bytes")
    data = read_range(path, offset, length)
    zstandard = require_zstandard()
    try:
        if len(data) < length:
            raise DamagedFrameError(f"{path}: the frame at {offset} is torn: {len(data)} of {length} bytes")
        size = zstandard.frame_content_size(data)
        if size > MAX_LINE_BYTES:
            raise DamagedFrameError(f"{path}: the frame at {offset} claims a request of {size:,} bytes")
        if size < 0:
            raise DamagedFrameError(f"{path}: the frame at {offset} has no content size")
        request: bytes = _decompressor().decompress(data)
    except (zstandard.ZstdError, MemoryError) as error:
        raise DamagedFrameError(f"{path}: the frame at {offset} is damaged: {error}") from error
    return request


def has_content_size(start: bytes) -> bool:
    """Return True if a frame has the size of its request, as ours do; `start` is its header."""
    zstandard = require_zstandard()
    try:
        return bool(zstandard.frame_content_size(start) >= 0)
    except zstandard.ZstdError:
        return False


def read_range(path: str | os.PathLike[str], offset: int, length: int) -> bytes:
    """Return a part of a file, or as much of it as there is."""
    descriptor = open_to_read(path)
    try:
        data = os.pread(descriptor, length, offset)
        while len(data) < length and (more := os.pread(descriptor, length - len(data), offset + len(data))):
            data += more
        return data
    finally:
        os.close(descriptor)


def scan_frames(path: str | os.PathLike[str], start: int = 0) -> Iterator[FrameExtent | TornFrame]:
    """Yield the frames of a file, and the bytes between them that are none, without decompressing.

    Args:
        path: The file.
        start: The offset of a frame.
    """
    descriptor = open_to_read(path)
    try:
        offset = start
        while offset < (size := os.fstat(descriptor).st_size):
            end = _frame_end(descriptor, offset)
            if end is not None and end <= size:
                yield FrameExtent(offset, end - offset)
            else:
                end = _next_frame(descriptor, offset + 1, size)
                yield TornFrame(offset, end - offset)
            offset = end
    finally:
        os.close(descriptor)


def checksum_at(path: str | os.PathLike[str], offset: int, length: int) -> str:
    """Return the checksum at the end of a frame in hexadecimal; "" if there is no frame."""
    descriptor = open_to_read(path)
    try:
        end = offset + length
        if _frame_end(descriptor, offset) != end:
            return ""
        return os.pread(descriptor, _CHECKSUM_BYTES, end - _CHECKSUM_BYTES).hex()
    finally:
        os.close(descriptor)


def require_zstandard() -> Any:
    """Return the module `zstandard`.

    Raises:
        MissingExtraError: It isn't installed.
    """
    try:
        import zstandard
    except ImportError as error:
        raise MissingExtraError(
            f"trace folders need zstandard, which isn't installed ({error}): {install_line('file')}"
        ) from error
    return zstandard


def _compressor() -> Any:
    # One for all files of a thread: it takes megabytes.
    if not hasattr(_local, "compressor"):
        module = require_zstandard()
        parameters = module.ZstdCompressionParameters.from_level(
            LEVEL, window_log=WINDOW_LOG, write_checksum=True, write_content_size=True
        )
        _local.compressor = module.ZstdCompressor(compression_params=parameters)
    return _local.compressor


def _decompressor() -> Any:
    if not hasattr(_local, "decompressor"):
        _local.decompressor = require_zstandard().ZstdDecompressor()
    return _local.decompressor


def _frame_end(descriptor: int, offset: int) -> int | None:
    """Return the end of the frame at `offset` by its headers; None if there is no frame."""
    header = os.pread(descriptor, _MAX_HEADER + 3, offset)
    if len(header) < 6 or not header.startswith(MAGIC):
        return None
    description = header[4]
    is_single_segment = bool(description & 0x20)
    size = 5 + (not is_single_segment) + _DICTIONARY_BYTES[description & 3]
    size += _CONTENT_SIZE_BYTES[description >> 6] or is_single_segment
    position = offset + size
    block = header[size : size + 3]
    for _ in range(_MAX_BLOCKS):
        if len(block) < 3:
            return None
        number = int.from_bytes(block, "little")
        is_last, kind, length = bool(number & 1), number >> 1 & 3, number >> 3
        if kind == 3:
            return None
        # A run-length block has one byte, and the number of its repetitions.
        position += 3 + (1 if kind == 1 else length)
        if is_last:
            return position + (_CHECKSUM_BYTES if description & 4 else 0)
        block = os.pread(descriptor, 3, position)
    return None


def _next_frame(descriptor: int, offset: int, size: int) -> int:
    """Return the offset of the first frame at or after `offset`; `size` if there is none."""
    while offset < size:
        data = os.pread(descriptor, _SEARCH_BYTES, offset)
        if len(data) < len(MAGIC):
            return size
        found = data.find(MAGIC)
        if found < 0:
            offset += len(data) - len(MAGIC) + 1
            continue
        end = _frame_end(descriptor, offset + found)
        if end is not None and end <= size:
            return offset + found
        offset += found + 1
    return size
