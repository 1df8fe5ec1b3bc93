"""Files of zstd frames with one OTLP request each: it is read without the others, and a torn one harms no other.

`zstdcat` prints such a file as one request: concatenated requests in protobuf are one.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from typing import Any, Final, NamedTuple

from otel_rollout.errors import MissingExtraError, UnreadableTraceError
from otel_rollout.files.file_lock import open_to_read
from otel_rollout.folder.append_file import AppendFile, read_at
from otel_rollout.installing import install_line

MAGIC: Final = b"\x28\xb5\x2f\xfd"
LEVEL: Final = 3
FAST_LEVEL: Final = -100
"""Takes the time of a CRC-32, since it hardly compresses."""
WINDOW_LOG: Final = 21
"""2 MiB: turns repeat a long history."""
MAX_LINE_BYTES: Final = 2**28
"""The largest request. A frame that claims a larger one is damaged: 256 MiB of zeros are 8 KB on disk."""
MAX_FRAME_BYTES: Final = MAX_LINE_BYTES + MAX_LINE_BYTES // 128
"""Incompressible data becomes a little longer."""

CHECKSUM_BYTES: Final = 4
_PIECE_BYTES: Final = 2**12
"""At most 128 MiB once decompressed."""
_SEARCH_BYTES: Final = 2**20
_HEADER_BYTES: Final = 18
"""The most bytes that zstd's header of a frame has."""


_codecs: Final = threading.local()
"""The compressor for each level and the decompressor of a thread, kept for all files: one takes megabytes."""


class Frame(NamedTuple):
    """A request in a file, or bytes that are none.

    Args:
        offset: Its first byte in the file, or in the data of a file that is compressed as a whole.
        length: Its size in bytes.
        request: The request, if it was read; None for bytes that are none.
        checksum: The frame's checksum in hexadecimal.
        fault: A clause on bytes that are no request.
        is_cut_off: True if the file ends within a request, as it does while it is written.
        is_json: True for a request in JSON, False for protobuf.
    """

    offset: int
    length: int
    request: bytes | None = None
    checksum: str = ""
    fault: str = ""
    is_cut_off: bool = False
    is_json: bool = False


def append_frame(file: AppendFile, *pieces: bytes | memoryview) -> Frame:
    """Append a request to a file, and return its frame, without the request.

    Args:
        file: The file.
        pieces: The request; several pieces are concatenated.

    Raises:
        OSError: The disk did not take all of it, and has none of it.
        FileGoneError: The file was removed.
        MissingExtraError: zstandard isn't installed.
        ValueError: It is longer than `MAX_LINE_BYTES`.
    """
    if (size := sum(map(len, pieces))) >= MAX_LINE_BYTES:
        raise ValueError(f"a request of {size:,} bytes is over the limit of {MAX_LINE_BYTES:,}")
    # In one piece: streaming takes a quarter longer, even counting the copy.
    data = frame_of(b"".join(pieces) if len(pieces) > 1 else pieces[0])
    return Frame(file.append([data]), len(data), checksum=data[-CHECKSUM_BYTES:].hex())


def frame_of(request: bytes | memoryview, level: int = LEVEL) -> bytes:
    """Return a request as a frame.

    Raises:
        MissingExtraError: zstandard isn't installed.
    """
    codecs = vars(_codecs)
    if (name := str(level)) not in codecs:
        module = require_zstandard()
        parameters = module.ZstdCompressionParameters.from_level(
            level, window_log=WINDOW_LOG, write_checksum=True, write_content_size=True
        )
        codecs[name] = module.ZstdCompressor(compression_params=parameters)
    frame: bytes = codecs[name].compress(request)
    return frame


def request_of(frame: bytes, checksum: str = "") -> bytes:
    """Return the request in a frame.

    Args:
        frame: The frame.
        checksum: The checksum that it must have, in hexadecimal; empty for any.

    Raises:
        ValueError: It is no whole frame, or another one.
        MissingExtraError: zstandard isn't installed.
    """
    size = claimed_size(frame)
    if size > MAX_LINE_BYTES:
        raise ValueError(f"it claims a request of {size:,} bytes")
    if size < 0:
        raise ValueError("it has no content size")
    if checksum and frame[-CHECKSUM_BYTES:].hex() != checksum:
        raise ValueError("it is another one")
    codecs = vars(_codecs)
    if "decompressor" not in codecs:
        codecs["decompressor"] = require_zstandard().ZstdDecompressor()
    try:
        request: bytes = codecs["decompressor"].decompress(frame)
    except (require_zstandard().ZstdError, MemoryError) as error:
        raise ValueError(str(error)) from error
    return request


def claimed_size(start: bytes) -> int:
    """Return the size of the request that the start of a frame claims; -1 if it claims none, or is none."""
    zstandard = require_zstandard()
    try:
        size: int = zstandard.frame_content_size(start)
    except zstandard.ZstdError:
        return -1
    return size


def read_frame(path: str | os.PathLike[str], offset: int, length: int, checksum: str = "") -> bytes:
    """Return the request in a frame.

    Args:
        path: The file.
        offset: The frame's first byte.
        length: Its size in bytes.
        checksum: The checksum that it must have, in hexadecimal; empty for any.

    Raises:
        UnreadableTraceError: There is no whole frame, or another one.
        MissingExtraError: zstandard isn't installed.
    """
    try:
        data = read_range(path, offset, length)
        if len(data) < length:
            raise ValueError(f"it is torn: {len(data)} of {length} bytes")
        return request_of(data, checksum)
    except ValueError as error:
        raise UnreadableTraceError(f"{path}: the frame at {offset} is damaged: {error}") from error


def scan_frames(path: str | os.PathLike[str], start: int = 0) -> Iterator[Frame]:
    """Yield the frames of a file, and the bytes between them that are none.

    Args:
        path: The file.
        start: The offset of a frame.
    """
    descriptor = open_to_read(path)
    try:
        torn = offset = start
        is_cut_off = False
        while offset < (size := os.fstat(descriptor).st_size):
            frame = _frame_at(descriptor, offset)
            if frame.request is not None:
                if torn < offset:
                    yield Frame(torn, offset - torn, fault="a damaged frame")
                yield frame
                torn = offset = offset + frame.length
                continue
            is_cut_off = frame.is_cut_off if offset == torn else is_cut_off
            # The next may begin within the supposed length of a damaged one.
            offset = _next_magic(descriptor, offset + 1, size)
            if offset >= size:
                break
        if torn < offset:
            fault = "a torn frame" if is_cut_off else "a damaged frame"
            yield Frame(torn, offset - torn, fault=fault, is_cut_off=is_cut_off)
    finally:
        os.close(descriptor)


def _frame_at(descriptor: int, offset: int) -> Frame:
    """Return the frame at an offset; without its request if there is none, or the file ends within it."""
    data = os.pread(descriptor, _PIECE_BYTES, offset)
    left = claimed_size(data)
    if not data.startswith(MAGIC) or not 0 <= left <= MAX_LINE_BYTES:
        return Frame(offset, 0, is_cut_off=len(data) < _HEADER_BYTES and MAGIC.startswith(data[: len(MAGIC)]))
    zstandard = require_zstandard()
    member = zstandard.ZstdDecompressor().decompressobj()
    parts: list[bytes] = []
    end = offset
    while data and left >= 0:
        try:
            parts.append(member.decompress(data))
        except (zstandard.ZstdError, MemoryError):
            return Frame(offset, 0)
        left -= len(parts[-1])
        end += len(data) - len(member.unused_data)
        if member.eof:
            checksum = os.pread(descriptor, CHECKSUM_BYTES, end - CHECKSUM_BYTES).hex()
            return Frame(offset, end - offset, b"".join(parts), checksum)
        data = os.pread(descriptor, _PIECE_BYTES, end)
    return Frame(offset, 0, is_cut_off=not data)


def _next_magic(descriptor: int, offset: int, size: int) -> int:
    """Return the offset of the first magic at or after `offset`; `size` if there is none."""
    while data := os.pread(descriptor, _SEARCH_BYTES, offset):
        found = data.find(MAGIC)
        if found >= 0:
            return offset + found
        if len(data) < len(MAGIC):
            break
        offset += len(data) - len(MAGIC) + 1
    return size


def read_range(path: str | os.PathLike[str], offset: int, length: int) -> bytes:
    """Return a part of a file, or as much of it as there is."""
    descriptor = open_to_read(path)
    try:
        return read_at(descriptor, offset, length)
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
