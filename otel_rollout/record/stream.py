"""The stream of a plain value: written by CPython's pickler within a budget of real bytes, loaded on our own threads.

The pickler reads dicts, lists and texts in C. Changes by other threads meanwhile do no harm, and no code of a class
runs. It hands over what isn't plain data, and what it returns is written in its place.
"""

from __future__ import annotations

import pickle
import sys
from io import BytesIO
from struct import Struct
from typing import Any, Final, Protocol

from otel_rollout.text.plain_json import describe_bytes, key_text

READS_OBJECTS: Final = sys.version_info < (3, 14)
"""True if the pickler may be given objects. Since Python 3.14 it adds notes to whatever passes through it, made of the
keys' reprs: a value goes in without its objects, and it stops at the first that is left."""
PROTOCOL: Final = 5
PART_BYTES: Final = 32 * 1024
_FRAME: Final = 0x95
_LONG: Final = Struct("<Q").unpack_from
_SHORT: Final = Struct("<I").unpack_from
_PROTOCOL_BYTES: Final = 2
_FRAME_BYTES: Final = 9
_FIRST_FRAME: Final = _PROTOCOL_BYTES + _FRAME_BYTES
_SHORT_HEADER: Final = 5
_LONG_HEADER: Final = 9
_MAX_UNFRAMED: Final = 3
"""The pickler writes fewer than four bytes without a frame."""
_NOTE: Final = "when serializing "
_traceback: Final[Any] = BaseException.__dict__["__traceback__"].__get__
_context: Final[Any] = BaseException.__dict__["__context__"].__get__
_fields: Final[Any] = BaseException.__dict__["__dict__"].__get__
_ANNOUNCES: Final = {
    0x58: "str",  # BINUNICODE
    0x8D: "str",  # BINUNICODE8
    0x42: "bytes",  # BINBYTES
    0x8E: "bytes",  # BINBYTES8
    0x96: "bytearray",  # BYTEARRAY8
}
"""The opcodes after which the pickler writes 64 KiB or more in one piece.

Source: https://github.com/python/cpython/blob/main/Modules/_pickle.c, `_Pickler_write_bytes`.
"""


class OtherError(Exception):
    """There is a value that isn't plain data, and nothing to read it."""


class FullError(Exception):
    """The budget is used up."""


class ObjectReader(Protocol):
    """Reads what isn't plain data."""

    def read(self, value: Any) -> Any:
        """Return plain data for a value, or an array of numpy.

        Raises:
            FullError: Its budget is used up.
        """


class _Sink:
    """Takes what the pickler writes, and stops it before a part that doesn't fit.

    Args:
        budget: The most bytes.
    """

    __slots__ = ("announced", "left", "parts")

    def __init__(self, budget: int) -> None:
        self.left = budget
        self.parts: list[bytes] = []
        self.announced: str | None = None
        """The type of the value whose content is the next part."""

    def write(self, part: bytes) -> None:
        """Take a part: frames, the header of a long text or `bytes`, or the content that belongs to a header."""
        size = len(part)
        if not self.parts and part[_PROTOCOL_BYTES] == _FRAME and _LONG(part, 3)[0] + _FIRST_FRAME == size:
            # All of a small value.
            self.left -= size
        else:
            part = self._read_part(part, size)
        if self.left < 0:
            raise FullError
        self.parts.append(part)

    def _read_part(self, part: bytes, size: int) -> bytes:
        """Return a part as it is kept."""
        announced = self.announced
        if announced is not None:
            self.announced = None
            # The part of a bytearray is the program's own memory.
            return part if announced == "str" else _opcodes_of(describe_bytes(announced, part, size))
        at = 0 if self.parts else _PROTOCOL_BYTES
        if part[at] == _FRAME:
            at += _FRAME_BYTES + _LONG(part, at + 1)[0]
        if size - at > _MAX_UNFRAMED + 1:
            part = self._read_header(part, _SHORT_HEADER if size - at < _LONG_HEADER else _LONG_HEADER)
        self.left -= len(part)
        return part

    def _read_header(self, part: bytes, length: int) -> bytes:
        """Return a part that ends with a header as it is kept, and note what follows it."""
        start = len(part) - length
        self.announced = announced = _ANNOUNCES[part[start]]
        if announced != "str":
            return part[:start]
        self.left -= (_LONG if length == _LONG_HEADER else _SHORT)(part, start + 1)[0]
        return part


class _Pickler(pickle.Pickler):
    """A pickler for which every value is plain data."""

    objects: ObjectReader | None = None
    has_numbers = False

    def reducer_override(self, value: Any) -> Any:
        """Return the text that is written in place of a value that isn't plain data."""
        objects = self.objects
        if objects is None:
            raise OtherError
        plain = objects.read(value)
        if not self.has_numbers:
            # By their numbers: by their names, the pickler would call the program's `__import__`.
            self.memo = _NUMBERS
            self.has_numbers = True
        numpy = sys.modules.get("numpy")
        if numpy is not None and type(plain) is numpy.ndarray:
            data = plain.tobytes()
            # In parts that are written within frames: longer `bytes` are described, not kept.
            parts = [data[at : at + PART_BYTES] for at in range(0, len(data), PART_BYTES)]
            return _array, (parts, plain.dtype.str, plain.shape)
        return _same, (plain,)


def write_stream(value: Any, budget: int, objects: ObjectReader | None = None) -> bytes:
    """Return the stream of a value.

    Args:
        value: Any value.
        budget: The most bytes.
        objects: Reads the objects in it, if there may be some.

    Raises:
        OtherError: There is an object, and nothing to read it.
        FullError: The budget is used up.
        RuntimeError: Another thread has changed a dict or a set meanwhile.
        ValueError: A container holds itself.
        RecursionError: It is nested too deeply.
    """
    sink = _Sink(budget)
    pickler = _Pickler(sink, PROTOCOL)
    pickler.fast = True
    if objects is not None:
        pickler.objects = objects
    handled = None if READS_OBJECTS else sys.exc_info()[1]
    try:
        pickler.dump(value)
    except BaseException as error:
        passing = error if READS_OBJECTS else _without_notes(error, handled)
        if passing is error:
            del passing
            raise
    else:
        parts = sink.parts
        return parts[0] if len(parts) == 1 else b"".join(parts)
    try:
        raise passing
    finally:
        del passing


def _without_notes(error: BaseException, handled: BaseException | None) -> BaseException:
    """Return the exception that goes on where one has come through the pickler of Python 3.14, as it was before that.

    A note runs signal handlers, and fails for a key of many digits: what comes of it replaces the exception, which
    becomes its context. The program's exception goes on if there is one, else what came first.

    Args:
        error: The exception.
        handled: The exception that the caller handles, which is the context of the first.
    """
    if type(error) is OtherError or type(error) is FullError:
        return error
    chain = [error]
    trace = _traceback(error)
    is_programs = [trace is not None and trace.tb_next is not None]
    while (context := _context(chain[-1])) is not None and context is not handled:
        is_stop = type(context) is OtherError or type(context) is FullError
        if is_programs[-1] and not is_stop and _traceback(context) is not None:
            break
        chain.append(context)
        is_programs.append(not is_stop and _traceback(context) is not None)
    place = is_programs.index(True) if True in is_programs else len(chain) - 1
    passing = chain[place]
    if place < len(chain) - 1:
        passing.__context__ = handled
    fields = _fields(passing)
    notes = fields.get("__notes__")
    if type(notes) is list:
        while notes and type(notes[-1]) is str and notes[-1].startswith(_NOTE):
            notes.pop()
        if not notes:
            del fields["__notes__"]
    return passing


def load_stream(data: bytes) -> Any:
    """Return the value of a stream."""
    try:
        return _load(data, _FUNCTIONS)
    except TypeError:
        # An object is the key of a dict, or in a set: what stands for it has no hash.
        return _without_hashes(_load(data, _HASHABLE))


def _load(data: bytes, functions: pickle.Unpickler) -> Any:
    unpickler = pickle.Unpickler(BytesIO(data))  # noqa: S301 - our own bytes
    unpickler.memo = functions.memo
    return unpickler.load()


def _same(value: Any) -> Any:
    return value


def _array(parts: list[bytes], dtype: str, shape: tuple[int, ...]) -> Any:
    numpy = sys.modules["numpy"]
    return numpy.frombuffer(b"".join(parts), dtype=dtype).reshape(shape)


class _Key:
    """A substitute for an object in a place that needs a hash.

    Args:
        value: Plain data.
    """

    def __init__(self, value: Any) -> None:
        self.value = value

    def __repr__(self) -> str:
        """Return the text of the key in JSON."""
        return key_text(self.value)


def _array_key(*parts: Any) -> _Key:
    return _Key(_array(*parts))


class _Numbered(pickle.Unpickler):
    """An unpickler that has functions under the numbers from 0, for the memo of others.

    A memo can't be set to a dict: CPython puts the items into the memo that it then drops.

    Args:
        functions: The functions.
    """

    def __init__(self, *functions: Any) -> None:
        numbers = range(len(functions))
        opcodes = b"".join(b"c-\n%d\n\x94" % number for number in numbers)
        super().__init__(BytesIO(b"\x80\x05" + opcodes + b"."))
        self._functions = functions
        self.load()

    def find_class(self, module: str, name: str) -> Any:
        """Return the function of a number."""
        return self._functions[int(name)]


_NUMBERS: Final[Any] = {id(_same): (0, _same), id(_array): (1, _array)}
_FUNCTIONS: Final = _Numbered(_same, _array)
_HASHABLE: Final = _Numbered(_Key, _array_key)


def _without_hashes(value: Any) -> Any:
    """Return a value with plain data in place of each `_Key`, except for keys of dicts."""
    kind = type(value)
    if kind is _Key:
        return _without_hashes(value.value)
    if kind is dict:
        return {key: _without_hashes(item) for key, item in value.items()}
    return [_without_hashes(item) for item in value] if kind in (list, tuple, set, frozenset) else value


def _opcodes_of(value: Any) -> bytes:
    """Return the opcodes of a small value, for the stream of another."""
    buffer = BytesIO()
    pickler = pickle.Pickler(buffer, PROTOCOL)
    pickler.fast = True
    pickler.dump(value)
    data = buffer.getvalue()
    return data[_PROTOCOL_BYTES + (_FRAME_BYTES if data[_PROTOCOL_BYTES] == _FRAME else 0) : -1]
