"""Files of zstd frames with one OTLP request each: it is read without the others, and a torn one harms no other.

`zstdcat` prints such a file as one request: concatenated requests in protobuf are one.
"""

from __future__ import annotations

import os
import threading
from pathlib import Path
from typing import Any, Final, NamedTuple

from otel_rollout.errors import MissingExtraError, UnreadableTraceError
from otel_rollout.files.file_lock import open_to_read
from otel_rollout.folder.append_file import AppendFile
from otel_rollout.installing import install_line

LEVEL: Final = 3
WINDOW_LOG: Final = 21
"""2 MiB: turns repeat a long history."""
MAX_LINE_BYTES: Final = 2**28
"""The largest request. A frame that claims a larger one is damaged: 256 MiB of zeros are 8 KB on disk."""
MAX_FRAME_BYTES: Final = MAX_LINE_BYTES + MAX_LINE_BYTES // 128
"""Incompressible data becomes a little longer."""

CHECKSUM_BYTES: Final = 4
_local = threading.local()


class FrameExtent(NamedTuple):
    """The place of a frame: its first byte in the file, and its size in bytes."""

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
        data: bytes = compressor().compress(b"".join(pieces) if len(pieces) > 1 else pieces[0])
        extent = FrameExtent(self._file.append([data]), len(data))
        self.checksum = data[-CHECKSUM_BYTES:].hex()
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
        request: bytes = decompressor().decompress(data)
    except (zstandard.ZstdError, MemoryError) as error:
        raise DamagedFrameError(f"{path}: the frame at {offset} is damaged: {error}") from error
    return request


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


def compressor() -> Any:
    """Return the thread's compressor, which takes megabytes."""
    if not hasattr(_local, "compressor"):
        module = require_zstandard()
        parameters = module.ZstdCompressionParameters.from_level(
            LEVEL, window_log=WINDOW_LOG, write_checksum=True, write_content_size=True
        )
        _local.compressor = module.ZstdCompressor(compression_params=parameters)
    return _local.compressor


def decompressor() -> Any:
    """Return the thread's decompressor."""
    if not hasattr(_local, "decompressor"):
        _local.decompressor = require_zstandard().ZstdDecompressor()
    return _local.decompressor
