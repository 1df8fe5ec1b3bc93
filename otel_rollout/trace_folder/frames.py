"""Files of zstd frames, one line in each, so that one is read without the others and a torn one harms no other.

`zstdcat` shows such a file as the lines that were put in.

Source: https://datatracker.ietf.org/doc/html/rfc8878#section-3.1.1 (where a frame ends).
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from otel_rollout.errors import MissingExtraError, UnreadableTraceError
from otel_rollout.trace_folder.append_file import AppendFile, FileGoneError
from otel_rollout.trace_folder.file_lock import is_being_written, open_to_read, try_take

if TYPE_CHECKING:
    import zstandard

__all__ = [
    "DamagedFrameError",
    "FileGoneError",
    "Frame",
    "FrameFile",
    "TornFrame",
    "checksum_at",
    "is_being_written",
    "make_compressor",
    "read_frame",
    "require_zstandard",
    "scan_frames",
    "try_take",
]

LEVEL: Final = 1
WINDOW_LOG: Final = 21
"""Level 1 looks back half a MiB of its own: turns that repeat a long history repeat what is farther away."""
MAX_LINE_BYTES: Final = 2**28
"""A longer line is not written, and what says that it is longer is damaged: 256 MiB of zeros are 8 KB on disk."""
MAX_FRAME_BYTES: Final = MAX_LINE_BYTES + MAX_LINE_BYTES // 128
"""What can't be compressed becomes a little longer."""

_MAGIC: Final = b"\x28\xb5\x2f\xfd"
_DICTIONARY_BYTES: Final = (0, 1, 2, 4)
_CONTENT_SIZE_BYTES: Final = (0, 2, 4, 8)
_MAX_HEADER: Final = 18
_CHECKSUM_BYTES: Final = 4
_MAX_BLOCKS: Final = 2**15
"""A block has up to 128 KiB; more than these are looked for nowhere: each is a look at the disk."""
_SEARCH_BYTES: Final = 2**20
_local = threading.local()


class Frame(NamedTuple):
    """Where a frame stands in its file.

    Args:
        offset: Its first byte.
        length: How many bytes it has.
    """

    offset: int
    length: int


class TornFrame(NamedTuple):
    """Bytes that are no whole frame: a write that was cut short, or damage.

    Args:
        offset: The first of them.
        length: How many there are before the next frame, or the file's end.
    """

    offset: int
    length: int


class DamagedFrameError(UnreadableTraceError):
    """A frame can't be read: it is torn, or its bytes are not those that were written."""


class FrameFile:
    """A file that lines are appended to, a frame each; not to be used by two threads at once.

    Args:
        path: The file, continued where there is one; folders on the way are made.
        compressor: What compresses; one of its own where None.
        within: The folder that it belongs to; folders made below it are as open as it is, others are private.

    Raises:
        OSError: It can't be made or opened.
        FileGoneError: Another process is removing or consuming it.
        MissingExtraError: zstandard isn't installed.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        compressor: zstandard.ZstdCompressor | None = None,
        within: Path | None = None,
    ) -> None:
        self._compressor = compressor or make_compressor()
        self._file = AppendFile(path, within)
        self.checksum = ""
        self.path = self._file.path

    @property
    def end(self) -> int:
        """How many bytes the file has."""
        return self._file.end

    def append(self, line: bytes) -> Frame:
        """Append a line, and return where its frame stands.

        Args:
            line: The line, without its end.

        Raises:
            OSError: The disk did not take all of it, and has none of it.
            FileGoneError: The file was removed.
            ValueError: It is longer than `MAX_LINE_BYTES`.
        """
        return self.append_all([line])[0]

    def append_all(self, lines: Sequence[bytes]) -> list[Frame]:
        """Append lines in one write, and return where their frames stand.

        Args:
            lines: The lines, without their ends.

        Raises:
            OSError: The disk did not take all of them, and has none of them.
            FileGoneError: The file was removed.
            ValueError: One is longer than `MAX_LINE_BYTES`.
        """
        data = [self._compress([line]) for line in lines]
        offset = self._file.append(data)
        frames = []
        for each in data:
            frames.append(Frame(offset, len(each)))
            offset += len(each)
        return frames

    def append_pieces(self, pieces: Sequence[bytes | memoryview]) -> Frame:
        """Append a line that is there in pieces, and return where its frame stands; `checksum` is its line's then.

        Args:
            pieces: The line's pieces in order, without the line's end.

        Raises:
            OSError: The disk did not take all of it, and has none of it.
            FileGoneError: The file was removed.
            ValueError: It is longer than `MAX_LINE_BYTES`.
        """
        data = self._compress(pieces)
        frame = Frame(self._file.append([data]), len(data))
        self.checksum = data[-_CHECKSUM_BYTES:].hex()
        return frame

    def close(self) -> None:
        """Let go of the file; a second time is harmless."""
        self._file.close()

    def _compress(self, pieces: Sequence[bytes | memoryview]) -> bytes:
        if (size := sum(map(len, pieces))) >= MAX_LINE_BYTES:
            raise ValueError(f"a line of {size:,} bytes: readers take {MAX_LINE_BYTES:,}")
        # In one piece: as a stream it takes a quarter longer, the copy included.
        data: bytes = self._compressor.compress(b"".join([*pieces, b"\n"]))
        return data


def read_frame(path: str | os.PathLike[str], offset: int, length: int) -> bytes:
    """Return the line of a frame, without its end.

    Args:
        path: The file.
        offset: The frame's first byte.
        length: How many bytes the frame has.

    Raises:
        OSError: The file is gone or can't be read.
        DamagedFrameError: No whole frame stands there.
        MissingExtraError: zstandard isn't installed.
    """
    if length > MAX_FRAME_BYTES:
        raise DamagedFrameError(f"{path}: the frame at {offset} says that it has {length:,} bytes")
    descriptor = open_to_read(path)
    try:
        data = _read(descriptor, offset, length)
    finally:
        os.close(descriptor)
    zstandard = require_zstandard()
    try:
        if len(data) < length:
            raise DamagedFrameError(f"{path}: the frame at {offset} is torn: {len(data)} of {length} bytes")
        size = zstandard.frame_content_size(data)
        if size > MAX_LINE_BYTES:
            raise DamagedFrameError(f"{path}: the frame at {offset} says that its line has {size:,} bytes")
        if size < 0:
            raise DamagedFrameError(f"{path}: the frame at {offset} does not say how long its line is")
        line: bytes = _decompressor().decompress(data)
    except (zstandard.ZstdError, MemoryError) as error:
        raise DamagedFrameError(f"{path}: the frame at {offset} is damaged: {error}") from error
    return line[:-1] if line.endswith(b"\n") else line


def scan_frames(path: str | os.PathLike[str], start: int = 0) -> Iterator[Frame | TornFrame]:
    """Yield the frames of a file, and what is none, without decompressing them.

    Args:
        path: The file.
        start: Where a frame begins.

    Raises:
        OSError: The file is gone or can't be read.
    """
    descriptor = open_to_read(path)
    try:
        offset = start
        while offset < (size := os.fstat(descriptor).st_size):
            end = _frame_end(descriptor, offset)
            if end is not None and end <= size:
                yield Frame(offset, end - offset)
            else:
                end = _next_frame(descriptor, offset + 1, size)
                yield TornFrame(offset, end - offset)
            offset = end
    finally:
        os.close(descriptor)


def checksum_at(path: str | os.PathLike[str], frame: Frame) -> str:
    """Return the last four bytes of a frame in hexadecimal, the checksum of its line; nothing if no frame stands there.

    Args:
        path: The file.
        frame: Where the frame stands.

    Raises:
        OSError: The file is gone or can't be read.
    """
    descriptor = open_to_read(path)
    try:
        end = frame.offset + frame.length
        if _frame_end(descriptor, frame.offset) != end:
            return ""
        return os.pread(descriptor, _CHECKSUM_BYTES, end - _CHECKSUM_BYTES).hex()
    finally:
        os.close(descriptor)


def make_compressor() -> zstandard.ZstdCompressor:
    """Return what makes our frames: each says how long its line is, and has a checksum.

    Raises:
        MissingExtraError: zstandard isn't installed.
    """
    module = require_zstandard()
    parameters = module.ZstdCompressionParameters.from_level(
        LEVEL, window_log=WINDOW_LOG, write_checksum=True, write_content_size=True
    )
    compressor: zstandard.ZstdCompressor = module.ZstdCompressor(compression_params=parameters)
    return compressor


def require_zstandard() -> Any:
    """Return the module that compresses.

    Raises:
        MissingExtraError: It isn't installed.
    """
    try:
        import zstandard
    except ImportError as error:
        raise MissingExtraError(
            f"trace folders need zstandard, which isn't installed ({error}): pip install 'otel-rollout[file]'"
        ) from error
    return zstandard


def _decompressor() -> Any:
    if not hasattr(_local, "decompressor"):
        _local.decompressor = require_zstandard().ZstdDecompressor()
    return _local.decompressor


def _frame_end(descriptor: int, offset: int) -> int | None:
    """Return where the frame at `offset` ends, as its headers say; None where this is no frame."""
    header = os.pread(descriptor, _MAX_HEADER + 3, offset)
    if len(header) < 6 or not header.startswith(_MAGIC):
        return None
    description = header[4]
    is_single_segment = bool(description & 0x20)
    size = 5 + (not is_single_segment) + _DICTIONARY_BYTES[description & 3]
    size += _CONTENT_SIZE_BYTES[description >> 6] or is_single_segment
    position, is_last = offset + size, False
    block = header[size : size + 3]
    for _ in range(_MAX_BLOCKS):
        if len(block) < 3:
            return None
        number = int.from_bytes(block, "little")
        is_last, kind, length = bool(number & 1), number >> 1 & 3, number >> 3
        if kind == 3:
            return None
        # A block of one byte repeated says how often, and has that byte alone.
        position += 3 + (1 if kind == 1 else length)
        if is_last:
            return position + (_CHECKSUM_BYTES if description & 4 else 0)
        block = os.pread(descriptor, 3, position)
    return None


def _next_frame(descriptor: int, offset: int, size: int) -> int:
    """Return where a frame begins at or behind `offset`; `size` where none does."""
    while offset < size:
        data = os.pread(descriptor, _SEARCH_BYTES, offset)
        if len(data) < len(_MAGIC):
            return size
        found = data.find(_MAGIC)
        if found < 0:
            offset += len(data) - len(_MAGIC) + 1
            continue
        end = _frame_end(descriptor, offset + found)
        if end is not None and end <= size:
            return offset + found
        offset += found + 1
    return size


def _read(descriptor: int, offset: int, length: int) -> bytes:
    """Return `length` bytes, or as many as there are."""
    data = os.pread(descriptor, length, offset)
    while len(data) < length:
        more = os.pread(descriptor, length - len(data), offset + len(data))
        if not more:
            break
        data += more
    return data
