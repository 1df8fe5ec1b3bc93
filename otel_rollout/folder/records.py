"""The records of a journal: an OTLP request each, after its length and its checksum.

A record begins with four bytes that neither UTF-8 nor a length begins with, so that what follows damage is found.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Iterator
from typing import Final, NamedTuple
from zlib import crc32

from otel_rollout.files.file_lock import open_to_read
from otel_rollout.folder.frames import MAX_LINE_BYTES

MAGIC: Final = b"\xf5otl"
_HEAD: Final = struct.Struct("<4sII")
HEAD_BYTES: Final = _HEAD.size
_SEARCH_BYTES: Final = 2**20


class Record(NamedTuple):
    """A part of a journal.

    Args:
        offset: Its first byte in the file.
        length: Its size, with its head.
        request: The request; None for bytes that are no whole record: an interrupted write, or damage.
        checksum: The request's CRC-32 in hexadecimal.
    """

    offset: int
    length: int
    request: bytes | None
    checksum: str


def head_of(request: bytes) -> bytes:
    """Return the head of a request's record."""
    return _HEAD.pack(MAGIC, len(request), crc32(request))


def unpack(record: bytes, checksum: str = "") -> bytes:
    """Return the request in a record.

    Args:
        record: The record.
        checksum: The checksum that it must have; empty for any.

    Raises:
        ValueError: It is no whole record, or another one.
    """
    request = record[HEAD_BYTES:]
    if not record.startswith(head_of(request)) or (checksum and checksum != f"{crc32(request):08x}"):
        raise ValueError("not the record that was written")
    return request


def scan_records(path: str | os.PathLike[str], start: int = 0) -> Iterator[Record]:
    """Yield the records of a journal, and the bytes between them that are none.

    Args:
        path: The file.
        start: The offset of a record.
    """
    descriptor = open_to_read(path)
    try:
        torn = offset = start
        while offset < (size := os.fstat(descriptor).st_size):
            record = _record_at(descriptor, offset)
            if record is None:
                offset = _next_magic(descriptor, offset + 1, size)
                continue
            if torn < offset:
                yield Record(torn, offset - torn, None, "")
            yield record
            torn = offset = offset + record.length
        if torn < offset:
            yield Record(torn, offset - torn, None, "")
    finally:
        os.close(descriptor)


def _record_at(descriptor: int, offset: int) -> Record | None:
    head = os.pread(descriptor, HEAD_BYTES, offset)
    if len(head) < HEAD_BYTES or not head.startswith(MAGIC):
        return None
    _, size, checksum = _HEAD.unpack(head)
    if size > MAX_LINE_BYTES:
        return None
    request = os.pread(descriptor, size, offset + HEAD_BYTES)
    if len(request) < size or crc32(request) != checksum:
        return None
    return Record(offset, HEAD_BYTES + size, request, f"{checksum:08x}")


def _next_magic(descriptor: int, offset: int, size: int) -> int:
    """Return the offset of the first magic at or after `offset`; `size` if there is none."""
    while offset < size:
        data = os.pread(descriptor, _SEARCH_BYTES, offset)
        found = data.find(MAGIC)
        if found >= 0:
            return offset + found
        if len(data) < len(MAGIC):
            return size
        offset += len(data) - len(MAGIC) + 1
    return size
