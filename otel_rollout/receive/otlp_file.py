"""Reads the files of the OpenTelemetry Collector's `file` exporter, whatever its format and compression.

JSON is a line for each request. Protobuf, and whatever is compressed by request, has its length before it: four bytes,
the highest first. With the exporter's native compression the file as a whole is zstd.

Source: https://github.com/open-telemetry/opentelemetry-collector-contrib/tree/main/exporter/fileexporter#file-format.
"""

from __future__ import annotations

import io
import struct
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, Final, cast

import orjson

from otel_rollout.errors import UnreadableTraceError
from otel_rollout.receive.media_types import JSON, PROTOBUF
from otel_rollout.receive.request_body import BodyTooLargeError, decompress
from otel_rollout.trace_folder.file_lock import open_to_read
from otel_rollout.trace_folder.frames import MAX_LINE_BYTES, require_zstandard

__all__ = ["NoOtlpFileError", "OtlpFile", "OtlpRequest"]

_ZSTD: Final = b"\x28\xb5\x2f\xfd"
_BRACE: Final = b"{"
_FIELD_1: Final = b"\x0a"
"""The first byte of a request in protobuf: `resource_spans`."""
_LENGTH: Final = struct.Struct(">I")
_HEAD_BYTES: Final = 64
_SKIP_BYTES: Final = 2**20
_WINDOW_BYTES: Final = 2**27


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
            self._check(file.read(_HEAD_BYTES))

    def requests(self) -> Iterator[OtlpRequest]:
        """Yield the requests in their order.

        Raises:
            OSError: The file can't be read.
        """
        with self._open() as file:
            is_zstd = file.read(len(_ZSTD)) == _ZSTD
            file.seek(0)
            stream: BinaryIO = file
            if is_zstd:
                decompressor = require_zstandard().ZstdDecompressor(max_window_size=_WINDOW_BYTES)
                stream = cast(
                    BinaryIO, io.BufferedReader(decompressor.stream_reader(file, read_across_frames=True), _SKIP_BYTES)
                )
            buffered = cast(io.BufferedReader, stream)
            try:
                for request in self._lines(buffered) if _is_json(buffered.peek(1)) else self._framed(buffered):
                    self.position = file.tell()
                    yield request
            except require_zstandard().ZstdError as error:
                self._on_problem(f"{self.path}: the zstd stream is damaged before byte {file.tell()}: {error}")
            self.position = file.tell()

    def _open(self) -> io.BufferedReader:
        return io.BufferedReader(io.FileIO(open_to_read(self.path), closefd=True), _SKIP_BYTES)

    def _check(self, head: bytes) -> None:
        if not head or _is_json(head) or head.startswith(_ZSTD):
            return
        length, start = head[: _LENGTH.size], head[_LENGTH.size :]
        if len(length) < _LENGTH.size or not start.startswith((_ZSTD, _BRACE, _FIELD_1)):
            raise NoOtlpFileError(
                f"{self.path} is no file of the Collector's `file` exporter: neither OTLP JSON nor protobuf"
            )
        if not 0 < _LENGTH.unpack(length)[0] <= MAX_LINE_BYTES:
            raise NoOtlpFileError(
                f"{self.path} is no file of the Collector's `file` exporter: neither OTLP JSON nor protobuf"
            )

    def _lines(self, file: io.BufferedReader) -> Iterator[OtlpRequest]:
        while line := file.readline(MAX_LINE_BYTES):
            if not line.endswith(b"\n"):
                if len(line) < MAX_LINE_BYTES:
                    if _is_whole(line):
                        # Not the Collector's end, but an editor's or a copy's.
                        yield OtlpRequest(line, JSON)
                    else:
                        self.is_cut_off = True
                    return
                self._on_problem(f"{self.path}: a line of more than {MAX_LINE_BYTES:,} bytes")
                while (rest := file.readline(_SKIP_BYTES)) and not rest.endswith(b"\n"):
                    pass
            elif not line.isspace():
                yield OtlpRequest(line, JSON)

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
                yield OtlpRequest(data, JSON if _is_json(data) else PROTOBUF)
            offset += _LENGTH.size + size


def _is_whole(line: bytes) -> bool:
    try:
        return isinstance(orjson.loads(line), dict)
    except ValueError:
        return False


def _is_json(data: bytes) -> bool:
    return data.lstrip()[:1] == _BRACE
