"""Finds the frames of a file without decompressing; damage before one does not hide it.

Source: https://datatracker.ietf.org/doc/html/rfc8878#section-3.1.1 (where a frame ends).
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Final, NamedTuple

from otel_rollout.files.file_lock import open_to_read
from otel_rollout.folder.frames import CHECKSUM_BYTES, FrameExtent, require_zstandard

MAGIC: Final = b"\x28\xb5\x2f\xfd"
_DICTIONARY_BYTES: Final = (0, 1, 2, 4)
_CONTENT_SIZE_BYTES: Final = (0, 2, 4, 8)
_MAX_HEADER: Final = 18
_MAX_BLOCKS: Final = 2**15
"""A block has up to 128 KiB; for each block there is a read."""
_SEARCH_BYTES: Final = 2**20


class TornFrame(NamedTuple):
    """Bytes up to the next frame, or the file's end, that are no whole frame: an interrupted write, or damage."""

    offset: int
    length: int


def has_content_size(start: bytes) -> bool:
    """Return True if a frame has the size of its request, as ours do; `start` is its header."""
    zstandard = require_zstandard()
    try:
        return bool(zstandard.frame_content_size(start) >= 0)
    except zstandard.ZstdError:
        return False


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
        return os.pread(descriptor, CHECKSUM_BYTES, end - CHECKSUM_BYTES).hex()
    finally:
        os.close(descriptor)


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
            return position + (CHECKSUM_BYTES if description & 4 else 0)
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
