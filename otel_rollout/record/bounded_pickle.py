"""CPython's pickler within a budget: it writes plain data in C as a stream.

A stream without its first two bytes and its last one is a body: the bodies of its items make up a container's.
"""

from __future__ import annotations

import pickle
import sys
from collections.abc import Iterable
from typing import Any, Final

HEAD, STOP = b"\x80\x05", b"."
CONTAINERS: Final = frozenset((dict, list, tuple, set, frozenset))
MIN_READ_BYTES: Final = 8192
"""The units of a smaller frame aren't worth being counted."""
_MAX_OPCODES: Final = 128
"""At most this many opcodes are read of a frame; they stand for all."""
_FRAME: Final = 0x95
_TEXTS: Final = frozenset(b"X\x8d")
_OPENING: Final = frozenset(b"]}\x8f\x91")
"""The opcodes that begin a container."""
_FIXED: Final = {ord("K"): 1, ord("M"): 2, ord("J"): 4, ord("G"): 8, _FRAME: 8}
_COUNTED: Final = {0x8C: 1, ord("C"): 1, 0x8A: 1, ord("X"): 4, ord("B"): 4, 0x8B: 4, 0x8D: 8, 0x8E: 8, 0x96: 8}
"""The operand's bytes of an opcode, and the bytes of its length."""


class OtherError(Exception):
    """There is a value that isn't plain data."""


class FullError(Exception):
    """The budget is used up."""


class Sink:
    """Takes what the pickler writes, and stops it before a part that doesn't fit.

    Args:
        budget: The most bytes.
        units: The most units, of about 25 ns of work each.
        is_private: True if the value is a copy of ours, which may have arrays of numpy.
    """

    __slots__ = ("is_content", "is_private", "left", "parts", "units")

    def __init__(self, budget: int, units: int, *, is_private: bool = False) -> None:
        self.left = budget
        self.units = units
        self.is_private = is_private
        self.is_content = False
        self.parts: list[bytes] = []

    def write(self, part: bytes) -> None:
        """Take frames, the header of a long text or `bytes`, or the content that belongs to a header."""
        if self.is_content:
            self.is_content = False
            self.parts.append(part)
            return
        size = len(part)
        at = 0 if self.parts else len(HEAD)
        if part[at] == _FRAME:
            start = at + 9
            at = start + int.from_bytes(part[at + 1 : start], "little")
            self.units -= size >> 6 if size < MIN_READ_BYTES else units_of(part, start, at)
        if size - at > 4:
            # The content isn't copied yet.
            header = size - (5 if size - at < 9 else 9)
            if part[header] not in _TEXTS and not self.is_private:
                raise OtherError
            size += int.from_bytes(part[header + 1 :], "little")
            self.is_content = True
        self.left -= size
        if self.left < 0 or self.units < 0:
            raise FullError
        self.parts.append(part)


def units_of(part: bytes, start: int, end: int) -> int:
    """Return the units that a part of a stream took, by its first opcodes."""
    at, units = start, 0
    for _ in range(_MAX_OPCODES):
        if at >= end:
            break
        opcode = part[at]
        units += 6 if opcode in _OPENING else 1
        at += 1 + _FIXED.get(opcode, 0)
        if width := _COUNTED.get(opcode):
            at += width + int.from_bytes(part[at : at + width], "little")
    return units * (end - start) // max(min(at, end) - start, 1)


class _Pickler(pickle.Pickler):
    is_private = False

    def reducer_override(self, value: Any) -> Any:
        if not self.is_private:
            raise OtherError
        return NotImplemented if value is _array else (_array, (value.tobytes(), value.dtype.str, value.shape))


def _array(data: bytes, dtype: str, shape: tuple[int, ...]) -> Any:
    return sys.modules["numpy"].frombuffer(data, dtype=dtype).reshape(shape)


def dump(value: Any, sink: Sink) -> bytes:
    """Return the stream of a value.

    Raises:
        OtherError: It isn't plain data.
        FullError: It doesn't fit.
        Exception: Another thread changes it, it contains itself, or it is nested too deeply.
    """
    pickler = _Pickler(sink, 5)
    pickler.fast = True
    if sink.is_private:
        pickler.is_private = True
    pickler.dump(value)
    parts = sink.parts
    return parts[0] if len(parts) == 1 else b"".join(parts)


def body_of(value: Any) -> bytes:
    """Return the body of a scalar."""
    return pickle.dumps(value, 5)[len(HEAD) : -1]


def whole_body(stream: bytes) -> bytes:
    """Return the body of a stream."""
    return stream[len(HEAD) : -1]


def opened(body: bytes) -> bytes:
    """Return the items of a container's body, to be put into another one."""
    return body[10:] if body[0] == _FRAME else body[1:]


def list_items(bodies: Iterable[bytes]) -> bytes:
    """Return the items of a list."""
    return b"(" + b"".join(bodies) + b"e"


def dict_items(keys: Iterable[bytes], items: Iterable[bytes]) -> bytes:
    """Return the items of a dict."""
    return b"(" + b"".join([part for pair in zip(keys, items, strict=True) for part in pair]) + b"u"
