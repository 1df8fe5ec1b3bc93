"""Recognises files of the OpenTelemetry Collector's `file` exporter that are not lines of JSON.

Protobuf, and whatever is compressed by request, has its length before it: four bytes, the highest first.
"""

from __future__ import annotations

from enum import Enum
from typing import Final

from otel_rollout.folder.frames import (
    MAGIC,
    MAX_FRAME_BYTES,
    DamagedFrameError,
    FrameExtent,
    TornFrame,
    has_content_size,
    read_frame,
    read_range,
    scan_frames,
)
from otel_rollout.folder.trace_files import TraceFile

__all__ = ["FOR_IMPORT", "Framing", "framing_of", "is_length"]

FOR_IMPORT: Final = "Collector file for `otel-rollout import`"
"""The `what` of a `ReadProblem` for a file that readers don't read."""

_LENGTH_BYTES: Final = 4
_HEAD_BYTES: Final = 32
_PROTOBUF: Final = b"\x0a"


class Framing(Enum):
    """The separator of the requests in a file."""

    OURS = "lines, or frames of one line each"
    COMPRESSED_REQUESTS = "frames of one line of JSON each, with their lengths before them"
    OTHER = "protobuf, or one zstd stream"


def framing_of(file: TraceFile) -> Framing:
    """Return the format of a file, by its first bytes."""
    try:
        head = read_range(file.place, 0, _HEAD_BYTES)
        if head.startswith(MAGIC):
            is_stream = not file.is_compressed or not has_content_size(head)
            return Framing.OTHER if is_stream else Framing.OURS
        length, start = int.from_bytes(head[:_LENGTH_BYTES], "big"), head[_LENGTH_BYTES:]
        if not 0 < length <= MAX_FRAME_BYTES:
            return Framing.OURS
        if start.startswith(MAGIC):
            first = next(scan_frames(file.place, _LENGTH_BYTES), None)
            if isinstance(first, FrameExtent) and first.length == length:
                line = read_frame(file.place, *first)
                return Framing.COMPRESSED_REQUESTS if line.startswith(b"{") else Framing.OTHER
        # The length of a line's first bytes, if they are JSON, is above the limit.
        return Framing.OTHER if start.startswith(_PROTOBUF) else Framing.OURS
    except (OSError, DamagedFrameError):
        return Framing.OURS


def is_length(place: str, torn: TornFrame | FrameExtent) -> bool:
    """Return True if bytes between two frames are the length of the second."""
    if torn.length != _LENGTH_BYTES:
        return False
    length = int.from_bytes(read_range(place, torn.offset, _LENGTH_BYTES), "big")
    following = next(scan_frames(place, torn.offset + _LENGTH_BYTES), None)
    return isinstance(following, FrameExtent) and following.length == length
