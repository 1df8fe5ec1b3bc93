"""Finds the requests in files of OTLP that other programs wrote, whatever their format and compression.

JSON is mostly a line for each request, as of the OpenTelemetry Collector's `file` exporter; other programs write a
request on several lines, or several on one. Protobuf, and whatever the Collector compresses by request, has its length
before it: four bytes, the highest first. A file as a whole may be zstd or gzip.

Source: https://github.com/open-telemetry/opentelemetry-collector-contrib/tree/main/exporter/fileexporter#file-format.
"""

from __future__ import annotations

import io
import re
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final, Literal, TypeAlias

import orjson

from otel_rollout.errors import UnreadableTraceError
from otel_rollout.files.file_lock import open_to_read
from otel_rollout.folder.compression import MAGICS, CutOffError, DecompressedFile, decompress
from otel_rollout.folder.frames import MAGIC, MAX_LINE_BYTES, Frame, claimed_size, scan_frames
from otel_rollout.text.json_marks import marks_outside_text

_BRACE: Final = b"{"
_FIELD_1: Final = b"\x0a"
"""The first byte of a request in protobuf: `resource_spans`."""
_LENGTH: Final = struct.Struct(">I")
_HEAD_BYTES: Final = 256
_READ_BYTES: Final = 2**20
_KEYS: Final = ("resourceSpans", "batches", "resourceMetrics", "resourceLogs", "resourceProfiles")
"""The first key of a request; `batches` is Grafana Tempo's."""
_KEY: Final = '"(?:{})"\\s*:'.format("|".join(_KEYS)).encode()
_REQUEST: Final = re.compile(rb"\s*\{\s*" + _KEY)
_JOINT: Final = re.compile(rb"\}\s*(?=\{\s*(?:\Z|" + _KEY + rb"))")
"""The place between two requests on one line; within a request there is none, not in a text either."""
_CUT_OFF: Final = "a request that is cut off"
_ENDS_WITHIN: Final = "the file ends within a request"
_BEFORE_TEXT: Final = b"\0\xef\xbb\xbf"
"""Bytes that may precede the first line: NULs after logrotate's `copytruncate`, a byte order mark."""
_LOOK_AHEAD_BYTES: Final = 2**25

Form: TypeAlias = Literal["lines", "framed", "frames"]


class NoOtlpFileError(UnreadableTraceError):
    """The file has no OTLP."""


class OtlpFile:
    """A file of requests.

    Args:
        path: The file.

    Raises:
        NoOtlpFileError: It holds something else.
        OSError: It can't be read.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.position = 0
        """The number of bytes of the file that are read."""
        with _opened(path) as file:
            head = file.peek(_HEAD_BYTES)[:_HEAD_BYTES]
            self.encoding = next((encoding for magic, encoding in MAGICS.items() if head.startswith(magic)), "")
            """The compression of the file as a whole; empty for none."""
            has_frames = self.encoding == "zstd" and claimed_size(head) >= 0
            stream = _data_of(file, self.encoding)
            # As a trace folder has them, with a request in protobuf each.
            is_ours = has_frames and stream.peek(1).startswith(_FIELD_1)
            is_framed = _is_framed(stream.peek(_HEAD_BYTES))
        self.form: Form = "frames" if is_ours else "framed" if is_framed else "lines"
        if self.form == "lines" and not self._has_request():
            raise NoOtlpFileError(f"{path} has no OTLP, neither in JSON nor in protobuf")
        self.position = 0

    def requests(self) -> Iterator[Frame]:
        """Yield the requests in their order, and what is none.

        Raises:
            OSError: The file can't be read.
        """
        if self.form == "frames":
            for each in scan_frames(self.path):
                self.position = each.offset + each.length
                yield each
            return
        with _opened(self.path) as file:
            stream = _data_of(file, self.encoding)
            for each in _json_of(stream) if self.form == "lines" else _framed(stream):
                self.position = file.tell()
                fault = getattr(stream.raw, "fault", None)
                if not (each.is_cut_off and fault):
                    yield each
            self.position = file.tell()
            if isinstance(stream.raw, DecompressedFile) and (fault := stream.raw.fault):
                what = f"the compressed data is damaged before byte {file.tell()}: {fault}"
                yield Frame(self.position, 0, fault=what, is_cut_off=isinstance(fault, CutOffError))

    def _has_request(self) -> bool:
        """Return True if there is a request, or a part of one, near the start; also if there is nothing."""
        is_empty = True
        for each in self.requests():
            if each.request is not None or each.is_cut_off:
                return True
            is_empty = False
            if each.offset > _LOOK_AHEAD_BYTES:
                break
        return is_empty

    def data(self, max_bytes: int) -> bytes | None:
        """Return all data of a compressed file; None if it is more than `max_bytes`."""
        parts, size = [], 0
        with _opened(self.path) as file:
            stream = _data_of(file, self.encoding)
            # `read(max_bytes)` would allocate as much, however small the data is.
            while part := stream.read(_READ_BYTES):
                parts.append(part)
                size += len(part)
                if size > max_bytes:
                    return None
        return b"".join(parts)


def request_in(body: bytes) -> tuple[bytes, bool]:
    """Return the request in a body, decompressed, and True if it is JSON.

    Raises:
        ValueError: It is damaged, or too large.
    """
    if body.startswith(MAGIC):
        body = decompress(body, "zstd", MAX_LINE_BYTES)
    return body, body.lstrip()[:1] == _BRACE


def _opened(path: Path) -> io.BufferedReader:
    return io.BufferedReader(io.FileIO(open_to_read(path), closefd=True), _READ_BYTES)


def _data_of(file: io.BufferedReader, encoding: str) -> io.BufferedReader[Any]:
    return io.BufferedReader(DecompressedFile(file, encoding), _READ_BYTES) if encoding else file


def _json_of(stream: io.BufferedReader) -> Iterator[Frame]:
    """Yield the requests in JSON, whether a line is one, a part of one, or several."""
    offset = start = last = depth = 0
    begun = bytearray()
    while line := stream.readline(MAX_LINE_BYTES):
        at, offset = offset, offset + len(line)
        if len(line) == MAX_LINE_BYTES and not line.endswith(b"\n"):
            while (rest := stream.readline(_READ_BYTES)) and not rest.endswith(b"\n"):
                offset += len(rest)
            offset += len(rest)
            yield Frame(start if begun else at, 0, fault=f"a request of more than {MAX_LINE_BYTES:,} bytes")
            begun.clear()
            continue
        for begin, text in _split(line, at):
            if begun and _is_request(text):
                yield Frame(start, 0, fault=_CUT_OFF)
                begun.clear()
            if begun:
                size = len(begun)
                begun += text
                depth += _depth(text)
                if last and _REQUEST.match(begun, last):
                    # The brace of another one is on the line before.
                    yield Frame(start, 0, fault=_CUT_OFF)
                    del begun[:last]
                    start, size, depth = start + last, size - last, _depth(bytes(begun))
                last = size
                if depth <= 0:
                    yield Frame(start, len(begun), bytes(begun), is_json=True)
                    begun.clear()
                elif len(begun) > MAX_LINE_BYTES:
                    yield Frame(start, 0, fault=f"a request of more than {MAX_LINE_BYTES:,} bytes")
                    begun.clear()
            elif _REQUEST.match(text) or _is_begun(text):
                if (depth := _depth(text)) <= 0:
                    yield Frame(begin, len(text), text, is_json=True)
                else:
                    start, last = begin, 0
                    begun += text
            elif _is_request(text):
                yield Frame(begin, len(text), text, is_json=True)
            elif text.strip() not in (b"", b"{}"):
                yield Frame(begin, 0, fault="no OTLP request")
    if begun:
        yield Frame(start, 0, fault=_ENDS_WITHIN, is_cut_off=True)


def _split(line: bytes, offset: int) -> Iterator[tuple[int, bytes]]:
    """Yield the requests that are on one line, or its only one, with their offsets."""
    text = line.lstrip(_BEFORE_TEXT) if line[:1] in (b"\0", b"\xef") else line
    offset += len(line) - len(text)
    place = 0
    for joint in _JOINT.finditer(text):
        yield offset + place, text[place : joint.start() + 1]
        place = joint.end()
    yield offset + place, text[place:] if place else text


def _depth(text: bytes) -> int:
    """Return the number of objects that a text begins, less the number of those that it ends."""
    if text.rstrip().endswith(b"}") and text.count(b"{") == text.count(b"}"):
        return 0
    return sum(1 if brace == b"{" else -1 for brace in marks_outside_text(text, b"{}"))


def _framed(stream: io.BufferedReader) -> Iterator[Frame]:
    offset = 0
    while length := stream.read(_LENGTH.size):
        size = _LENGTH.unpack(length)[0] if len(length) == _LENGTH.size else 0
        if size > MAX_LINE_BYTES:
            yield Frame(offset, 0, fault="damaged, nothing behind it is read")
            return
        body = stream.read(size)
        if not size or len(body) < size:
            yield Frame(offset, 0, fault=_ENDS_WITHIN, is_cut_off=True)
            return
        offset += _LENGTH.size
        try:
            request, is_json = request_in(body)
        except ValueError as error:
            yield Frame(offset, 0, fault=f"damaged: {error}")
        else:
            if not is_json or _is_request(request):
                yield Frame(offset, size, request, is_json=is_json)
            elif request.strip() != b"{}":
                yield Frame(offset, 0, fault="no OTLP request")
        offset += size


def _is_framed(head: bytes) -> bool:
    length, start = head[: _LENGTH.size], head[_LENGTH.size :]
    return start.startswith((MAGIC, _BRACE, _FIELD_1)) and 0 < _LENGTH.unpack(length)[0] <= MAX_LINE_BYTES


def _is_request(text: bytes) -> bool:
    """Return True if a text begins as a request does, or is one whose key is not the first."""
    if _REQUEST.match(text):
        return True
    if text.lstrip()[:1] != _BRACE or not any(f'"{key}"'.encode() in text for key in _KEYS):
        return False
    try:
        return not orjson.loads(text).keys().isdisjoint(_KEYS)
    except ValueError:
        return False


def _is_begun(text: bytes) -> bool:
    """Return True if a text is cut off within the first key of a request."""
    start = b"".join(text[:_HEAD_BYTES].split())
    return start != b"" and any(f'{{"{key}":'.encode().startswith(start) for key in _KEYS)
