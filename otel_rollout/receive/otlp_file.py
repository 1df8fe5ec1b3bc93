"""Reads the files of the OpenTelemetry Collector's `file` exporter, whatever its format and compression.

JSON is a line for each request. Protobuf, and whatever is compressed by request, has its length before it: four bytes,
the highest first. With the exporter's native compression the file as a whole is zstd.

Source: https://github.com/open-telemetry/opentelemetry-collector-contrib/tree/main/exporter/fileexporter#file-format.
"""

from __future__ import annotations

import io
import re
import struct
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal

import orjson

from otel_rollout.errors import UnreadableTraceError
from otel_rollout.files.file_lock import open_to_read
from otel_rollout.folder.frame_scanning import TornFrame, has_content_size, scan_frames
from otel_rollout.folder.frames import MAX_LINE_BYTES, DamagedFrameError, read_frame, require_zstandard
from otel_rollout.receive.request_body import (
    JSON,
    MAX_WINDOW_BYTES,
    PROTOBUF,
    ZSTD_PIECE_BYTES,
    BodyTooLargeError,
    decompress,
)

if TYPE_CHECKING:
    from _typeshed import WriteableBuffer

_ZSTD: Final = b"\x28\xb5\x2f\xfd"
_BRACE: Final = b"{"
_FIELD_1: Final = b"\x0a"
"""The first byte of a request in protobuf: `resource_spans`."""
_LENGTH: Final = struct.Struct(">I")
_HEAD_BYTES: Final = 256
_SKIP_BYTES: Final = 2**20

_EMPTY: Final = b"{}"
"""A request without anything in it."""
_KEYS: Final = ("resourceSpans", "resourceMetrics", "resourceLogs", "resourceProfiles")
_KEY: Final = rf'"(?:{"|".join(_KEYS)})"'.encode()
_REQUEST: Final = re.compile(rb"\s*\{\s*" + _KEY + rb"\s*:")
_PRETTY: Final = re.compile(
    rb"(?:\xef\xbb\xbf)?\s*\{\s*(?:\n\s*" + _KEY + rb"|" + _KEY + rb"\s*:\s*\[\s*\n(?!" + _REQUEST.pattern + rb"))"
)
"""The start of a request on several lines; the lookahead excludes a line that is cut off before whole ones."""
_BEFORE_TEXT: Final = b"\0\xef\xbb\xbf"
"""Bytes that may precede the first line: NULs after logrotate's `copytruncate`, a byte order mark."""
_LOOK_AHEAD_BYTES: Final = 2**25
_NULS: Final = bytes(_SKIP_BYTES)
_MAX_NULS: Final = 2**32
"""`copytruncate` leaves as many NULs as the file had bytes."""

_Form = Literal["lines", "framed", "pretty", "frames"]


class NoOtlpFileError(UnreadableTraceError):
    """The file is none of the Collector's."""


@dataclass(frozen=True)
class OtlpRequest:
    """A request in a file.

    Args:
        body: The request, decompressed.
        media_type: Its content type.
    """

    body: bytes
    media_type: str


class OtlpFile:
    """A file of requests.

    Args:
        path: The file.
        on_problem: Called with a sentence for everything that can't be read.

    Raises:
        NoOtlpFileError: It holds something else.
        OSError: It can't be read.
    """

    def __init__(self, path: Path, on_problem: Callable[[str], object]) -> None:
        self.path = path
        self.position = 0
        """The number of bytes that are read."""
        self.is_cut_off = False
        """True if the file ends within a request, as it does while it is written."""
        self._on_problem = on_problem
        with self._open() as file:
            has_frames = has_content_size(file.peek(_HEAD_BYTES)[:_HEAD_BYTES])
            with _decompressed(file) as stream:
                # As a trace folder has them, with a request in protobuf each.
                is_ours = has_frames and stream.peek(1).startswith(_FIELD_1)
                form: _Form | None = "frames" if is_ours else _form_of(stream)
        if form is None:
            raise NoOtlpFileError(
                f"{path} is no file of the Collector's `file` exporter: neither OTLP JSON nor protobuf"
            )
        self._form: _Form = form

    def requests(self) -> Iterator[OtlpRequest]:
        """Yield the requests in their order.

        Raises:
            OSError: The file can't be read.
        """
        if self._form == "pretty":
            self._on_problem(f"{self.path}: a request must stand on one line, as `jq -c .` writes it")
            return
        if self._form == "frames":
            yield from self._frames()
            return
        with self._open() as file, _decompressed(file) as stream:
            for request in self._lines(stream) if self._form == "lines" else self._framed(stream):
                self.position = file.tell()
                yield request
            self.position = file.tell()
            if isinstance(stream.raw, _ZstdStream):
                self.is_cut_off = (self.is_cut_off or stream.raw.is_cut_off) and not stream.raw.damage
                if stream.raw.damage:
                    self._on_problem(
                        f"{self.path}: the zstd stream is damaged before byte {file.tell()}: {stream.raw.damage}"
                    )

    def _frames(self) -> Iterator[OtlpRequest]:
        for frame in scan_frames(self.path):
            self.position = frame.offset + frame.length
            try:
                if isinstance(frame, TornFrame):
                    raise DamagedFrameError("it is torn")
                yield OtlpRequest(read_frame(self.path, *frame), PROTOBUF)
            except DamagedFrameError as error:
                self._on_problem(f"{self.path}: the frame at byte {frame.offset} is damaged: {error}")

    def _open(self) -> io.BufferedReader:
        return io.BufferedReader(io.FileIO(open_to_read(self.path), closefd=True), _SKIP_BYTES)

    def _lines(self, file: io.BufferedReader) -> Iterator[OtlpRequest]:
        number = 0
        while line := file.readline(MAX_LINE_BYTES):
            number += 1
            if not line.endswith(b"\n"):
                if len(line) == MAX_LINE_BYTES:
                    self._on_problem(f"{self.path}: a line of more than {MAX_LINE_BYTES:,} bytes")
                    while (rest := file.readline(_SKIP_BYTES)) and not rest.endswith(b"\n"):
                        pass
                    continue
                # A whole request without a line end is an editor's or a copy's.
                if not _is_whole(line):
                    self.is_cut_off = True
                    return
            if _is_request(line):
                yield OtlpRequest(line, JSON)
            elif line.strip() not in (b"", _EMPTY):
                self._on_problem(f"{self.path}: line {number} is damaged or no OTLP request")

    def _framed(self, file: io.BufferedReader) -> Iterator[OtlpRequest]:
        offset = 0
        while length := file.read(_LENGTH.size):
            size = _LENGTH.unpack(length)[0] if len(length) == _LENGTH.size else 0
            if size > MAX_LINE_BYTES:
                # Nothing shows where the next one begins.
                self._on_problem(f"{self.path}: damaged at byte {offset}, nothing behind it is read")
                return
            body = file.read(size)
            if not size or len(body) < size:
                self.is_cut_off = True
                return
            try:
                data = decompress(body, "zstd", MAX_LINE_BYTES) if body.startswith(_ZSTD) else body
            except (BodyTooLargeError, ValueError) as error:
                self._on_problem(f"{self.path}: the request at byte {offset} is damaged: {error}")
            else:
                if not _is_json(data):
                    yield OtlpRequest(data, PROTOBUF)
                elif _is_request(data):
                    yield OtlpRequest(data, JSON)
                elif data.strip() != _EMPTY:
                    self._on_problem(f"{self.path}: the JSON at byte {offset} is damaged or no OTLP request")
            offset += _LENGTH.size + size


class _ZstdStream(io.RawIOBase):
    """The data of a file of zstd frames, up to the first damage.

    zstandard's own stream reader takes a file that is cut off for a whole one.

    Args:
        file: The file.
    """

    def __init__(self, file: io.BufferedReader) -> None:
        self.is_cut_off = False
        """True if the file ended within a frame."""
        self.damage = ""
        """The reason that the rest can't be read."""
        self._file = file
        self._zstandard = require_zstandard()
        self._shared = self._zstandard.ZstdDecompressor(max_window_size=MAX_WINDOW_BYTES)
        self._frame = self._shared.decompressobj()
        self._is_in_frame = False
        self._compressed = b""
        self._data = memoryview(b"")

    def readable(self) -> bool:
        """Return True."""
        return True

    def readinto(self, buffer: WriteableBuffer) -> int:
        """Fill a buffer; return less than its size only at the end."""
        target = memoryview(buffer).cast("B")
        filled = 0
        while filled < len(target) and (self._data or self._decompress()):
            piece = self._data[: len(target) - filled]
            target[filled : filled + len(piece)] = piece
            filled += len(piece)
            self._data = self._data[len(piece) :]
        return filled

    def _decompress(self) -> bool:
        """Decompress up to the next data; return False at the end."""
        while not self._data and not self.damage:
            piece = self._compressed or self._file.read(ZSTD_PIECE_BYTES)
            if not piece:
                self.is_cut_off = self._is_in_frame
                return False
            try:
                self._data = memoryview(self._frame.decompress(piece))
            except (self._zstandard.ZstdError, MemoryError) as error:
                self.damage = str(error) or "out of memory"
                return False
            self._is_in_frame = not self._frame.eof
            self._compressed = self._frame.unused_data
            if self._frame.eof:
                self._frame = self._shared.decompressobj()
        return bool(self._data)


@contextmanager
def _decompressed(file: io.BufferedReader) -> Iterator[io.BufferedReader[Any]]:
    """Open a file's data, decompressed if the file as a whole is zstd."""
    if file.peek(len(_ZSTD)).startswith(_ZSTD):
        with io.BufferedReader(_ZstdStream(file), _SKIP_BYTES) as stream:
            yield stream
    else:
        yield file


def _form_of(stream: io.BufferedReader) -> _Form | None:
    """Return the form of a file's requests, None if its start has none."""
    head = stream.peek(_SKIP_BYTES)
    if _PRETTY.match(head[:_HEAD_BYTES]):
        return "pretty"
    if _is_framed(head):
        return "framed"
    return "lines" if not head or _has_request(stream) else None


def _is_framed(head: bytes) -> bool:
    length, start = head[: _LENGTH.size], head[_LENGTH.size :]
    return start.startswith((_ZSTD, _BRACE, _FIELD_1)) and 0 < _LENGTH.unpack(length)[0] <= MAX_LINE_BYTES


def _has_request(stream: io.BufferedReader) -> bool:
    """Return True if a line near the start begins as a request does."""
    nuls = 0
    while (piece := stream.peek(1)) and nuls < _MAX_NULS and _NULS.startswith(piece):
        nuls += len(stream.read(len(piece)))
    left = _LOOK_AHEAD_BYTES
    while left > 0 and (line := stream.readline(left)):
        left -= len(line)
        text = line.lstrip(_BEFORE_TEXT)
        if _is_request(text) or (left > 0 and not line.endswith(b"\n") and _is_begun(text)):
            return True
    return False


def _is_request(line: bytes) -> bool:
    """Return True if a line begins as a request does, or is one whose key is not the first."""
    if _REQUEST.match(line):
        return True
    if not _is_json(line) or b'"resource' not in line:
        return False
    try:
        return not orjson.loads(line).keys().isdisjoint(_KEYS)
    except ValueError:
        return False


def _is_begun(line: bytes) -> bool:
    """Return True if a line is cut off within the first key of a request."""
    start = b"".join(line[:_HEAD_BYTES].split())
    return start != b"" and any(f'{{"{key}":'.encode().startswith(start) for key in _KEYS)


def _is_whole(line: bytes) -> bool:
    try:
        return isinstance(orjson.loads(line), dict)
    except ValueError:
        return False


def _is_json(data: bytes) -> bool:
    return data.lstrip()[:1] == _BRACE
