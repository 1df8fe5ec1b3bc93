"""Copies any value as plain data within a budget of bytes and units, of about 25 ns each; cuts what doesn't fit.

CPython's pickler writes plain data in C as a stream. A stream without its first two bytes and its last one is a body:
the bodies of its items make up a container's. Of what doesn't fit, small parts stay whole, each large one gets its
share, and notes count what is left out.
"""

from __future__ import annotations

import pickle
import sys
from itertools import chain, islice
from typing import Any, Final

from otel_rollout.guard.log_once import internal_error
from otel_rollout.guard.provenance import is_programs
from otel_rollout.record.fields import Part, class_name
from otel_rollout.record.readers import MAX_ITEMS, SCALARS, array_summary, reader_of, with_plain_keys
from otel_rollout.text.plain_text import cut_text
from otel_rollout.text.sanitize import fits_int64

HEAD, STOP = b"\x80\x05", b"."
BODY: Final = slice(len(HEAD), -1)
"""The body of a stream."""
CONTAINERS: Final = frozenset((dict, list, tuple, set, frozenset))
MIN_READ_BYTES: Final = 8192
"""The units of a smaller frame aren't worth being counted."""
_MAX_OPCODES: Final = 48
"""At most this many opcodes are read of a frame; they stand for all."""
_FRAME: Final = 0x95
_TEXTS: Final = frozenset(b"X\x8d")
_OPENING: Final = frozenset(b"]}\x8f\x91")
"""The opcodes that begin a container."""
_FIXED: Final = {ord("K"): 1, ord("M"): 2, ord("J"): 4, ord("G"): 8, _FRAME: 8}
_COUNTED: Final = {0x8C: 1, ord("C"): 1, 0x8A: 1, ord("X"): 4, ord("B"): 4, 0x8B: 4, 0x8D: 8, 0x8E: 8, 0x96: 8}
"""The operand's bytes of an opcode, and the bytes of its length."""
DEFAULT_BUDGET: Final = 1024 * 1024
"""The most bytes of a value."""
UNITS: Final = 170_000
"""The most units to keep all of a value."""
UNITS_OF_PARTS: Final = 100_000
"""The most units to keep parts of one that doesn't fit."""
UNITS_OF_A_TRY: Final = 250
UNITS_OF_A_LOOK: Final = 15
BYTES_OF_A_UNIT: Final = 2
MAX_DEPTH: Final = 40
MAX_OBJECT_DEPTH: Final = 6
"""At this depth, objects of unknown classes become their class's name, and nothing is cut inside."""
FEW_ITEMS: Final = 256
"""A container of so few items keeps all of them, each with its share of the budget."""
FIRST_ITEMS: Final = 64
"""So many are looked at, and make the first part that is kept of a long container."""
TAIL_ITEMS: Final = 8
LEAST_BUDGET: Final = 64
SHORT_TEXT: Final = 16
_SHORT: Final = frozenset((int, float, bool, type(None)))
_KEYS: Final = SCALARS | {tuple}


class OtherError(Exception):
    """There is a value that isn't plain data."""


class FullError(Exception):
    """The budget is used up."""


class Sink:
    """Takes what the pickler writes, and stops it before a part that doesn't fit.

    Args:
        budget: The most bytes.
        units: The most units.
        is_private: True if the value is a copy of ours, which may have arrays of numpy.
        min_read: The least bytes of a frame whose opcodes are read, one by one in Python.
    """

    __slots__ = ("is_content", "is_private", "left", "min_read", "parts", "units")

    def __init__(self, budget: int, units: int, *, is_private: bool = False, min_read: int = MIN_READ_BYTES) -> None:
        self.left = budget
        self.units = units
        self.min_read = min_read
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
            self.units -= size >> 6 if size < self.min_read else units_of(part, start, at)
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
    return pickle.dumps(value, 5)[BODY]


def list_items(bodies: list[bytes]) -> bytes:
    """Return the items of a list."""
    return b"(" + b"".join(bodies) + b"e"


def _dict_items(keys: list[bytes], items: list[bytes]) -> bytes:
    return b"(" + b"".join(chain.from_iterable(zip(keys, items, strict=True))) + b"u"


class Copier:
    """Copies a value within a budget of units."""

    __slots__ = ("left", "left_out", "path")

    def __init__(self, units: int) -> None:
        self.left = units
        self.left_out = 0
        """The items, keys and characters that were left out."""
        self.path: list[int] = []
        """The ids of the containers and objects around a value."""

    def take(self, units: int) -> None:
        """Use up units, or raise FullError."""
        if units > self.left:
            raise FullError
        self.left -= units

    def copy(self, value: Any, depth: int = 0) -> Any:
        """Return private plain data: scalars, lists, dicts and arrays of numpy; raise FullError without units."""
        kind = type(value)
        if kind in SCALARS:
            return value
        path, identity = self.path, id(value)
        if identity in path:
            return f"<cycle to {class_name(kind)}>"
        if depth >= MAX_DEPTH:
            self.left_out += 1
            return f"…<{class_name(kind)}>"
        path.append(identity)
        if kind is dict:
            self.take(16 + 4 * len(value))
            plain: Any = with_plain_keys(value.copy())
            self._copy_values(plain, depth)
        elif kind is list or kind is tuple or kind is set or kind is frozenset:
            self.take(8 + len(value) // 4)
            plain = self._copy_items([*value], depth)
        else:
            plain = self.read(value, kind, depth)
            kind = type(plain)
            if kind is dict:
                self._copy_values(plain, depth)
            elif kind is list:
                plain = self._copy_items(plain, depth)
            elif kind not in SCALARS and kind.__name__ != "ndarray":
                plain = self.copy(plain, depth + 1)
        path.pop()
        return plain

    def _copy_values(self, plain: dict[Any, Any], depth: int) -> None:
        self.take(4 * len(plain))
        for key, item in plain.items():
            if type(item) not in SCALARS:
                plain[key] = self.copy(item, depth + 1)

    def _copy_items(self, items: list[Any], depth: int) -> list[Any]:
        kinds = {*map(type, items)}
        if kinds <= SCALARS:
            return items
        self.take(4 * len(items))
        if len(kinds) == 1 and len(items) > TAIL_ITEMS and (reader := reader_of(kinds.pop())).is_leaf:
            self.take(reader.cost * len(items))
            try:
                plain = [*map(reader.read, items)]
            except Exception as error:  # one of them can't be read
                if is_programs(error):
                    raise
            else:
                if {*map(type, plain)} <= SCALARS:
                    return plain
        return [item if type(item) in SCALARS else self.copy(item, depth + 1) for item in items]

    def read(self, value: Any, kind: type, depth: int = 0) -> Any:
        """Read a value by the reader of its class; return its result, or a note; raise FullError without units."""
        try:
            read, cost, is_known, _ = reader_of(kind)
            self.take(cost)
            if not is_known and depth >= MAX_OBJECT_DEPTH:
                return f"<{class_name(kind)}>"
            plain = read(value)
        except Exception as error:
            if type(error) is FullError or is_programs(error):
                raise
            self.left_out += 1
            internal_error(f"reading {class_name(kind)}")
            return f"<unreadable {class_name(kind)}>"
        if type(plain) is not Part:
            return plain
        self.left_out += plain.cut
        return plain.plain


class Cutter(Copier):
    """Makes the stream of one value; a larger budget than the default may take longer."""

    __slots__ = ("looks", "more", "most")

    def __init__(self, budget: int) -> None:
        self.more = max(budget // DEFAULT_BUDGET, 1)
        self.most = UNITS * self.more
        """The most units of a try."""
        self.looks = 1000
        """The most values that are looked at before."""
        super().__init__(self.most)

    def cut(self, value: Any, budget: int) -> bytes:
        """Return the stream of a value, or of what fits of it."""
        stream = self.whole(value, budget)
        self.left = UNITS_OF_PARTS * self.more
        self.most, self.looks = self.left // 4, FIRST_ITEMS
        return HEAD + self.body(value, budget) + STOP if stream is None else stream

    def whole(self, value: Any, budget: int) -> bytes | None:
        """Return the stream of a value; None if it doesn't fit."""
        kind = type(value)
        if (kind is str and len(value) <= SHORT_TEXT) or (kind in _SHORT and (kind is not int or fits_int64(value))):
            self.left -= UNITS_OF_A_TRY // 8
            return HEAD + body_of(value) + STOP
        if not self._may_fit(value, budget):
            return None
        before, given = self.left_out, self.left - UNITS_OF_A_TRY
        limit = self.left = min(given, max(budget // BYTES_OF_A_UNIT, LEAST_BUDGET), self.most)
        try:
            return self._stream(value, budget)
        except FullError:
            self.left_out = before
            return None
        finally:
            self.left += given - limit

    def _stream(self, value: Any, budget: int) -> bytes:
        try:
            return self._dump(value, Sink(budget, self.left))
        except OtherError:
            pass
        except Exception as error:  # another thread changes it, it contains itself, or is nested too deeply
            if type(error) is FullError or is_programs(error):
                raise
        self.path = []
        plain = self.copy(value)
        return self._dump(plain, Sink(budget, self.left, is_private=True))

    def _dump(self, value: Any, sink: Sink) -> bytes:
        try:
            return dump(value, sink)
        finally:
            # A frame of 64 KiB may have taken more than there were.
            self.left = max(sink.units, -UNITS_OF_PARTS // 4)

    def _may_fit(self, value: Any, budget: int) -> bool:
        """Return False if a value can't fit by the lengths of what is first in it."""
        units, seen, stack = min(self.left, self.most), 0, [value]
        while stack and seen < self.looks and budget >= 0 and units >= 0:
            seen += 1
            each = stack.pop()
            kind = type(each)
            if kind is str:
                budget -= len(each)
            elif kind is int:
                budget -= each.bit_length() // 8
            elif kind in CONTAINERS:
                units -= len(each)
                # A key takes three bytes at least.
                budget -= len(each) * (3 if kind is dict else 1)
                if budget >= 0 and units >= 0:
                    held = [*islice(each.values() if kind is dict else each, FIRST_ITEMS)]
                    stack += [
                        item
                        for item in held
                        if type(item) not in _SHORT or (type(item) is int and not fits_int64(item))
                    ]
            elif kind not in SCALARS:
                units -= reader_of(kind).cost
        self.left -= UNITS_OF_A_LOOK * seen
        return budget >= 0 and units >= 0

    def body(self, value: Any, budget: int, depth: int = 0) -> bytes:
        """Return the body of what fits of a value that doesn't fit as it is."""
        kind = type(value)
        if kind is str:
            room = max(budget if value.isascii() else budget // 3, TAIL_ITEMS * 4)
            self.left_out += max(len(value) - room, 0)
            return body_of(cut_text(value, room) if len(value) > room else value)
        if kind is int and not fits_int64(value):
            self.left_out += 1
            return body_of(f"<int of {value.bit_length():,} bits>")
        if kind in SCALARS:
            return body_of(value)
        self.left -= UNITS_OF_A_TRY // 2
        if budget >= LEAST_BUDGET and depth < MAX_OBJECT_DEPTH and self.left >= UNITS_OF_A_TRY:
            if kind in CONTAINERS:
                return self._part(value, budget, depth)
            try:
                plain = self.read(value, kind)
                return self.body(
                    array_summary(plain) if type(plain).__name__ == "ndarray" else plain, budget, depth + 1
                )
            except FullError:
                pass
        self.left_out += 1
        return body_of(f"…<{class_name(kind)}>")

    def _part(self, value: Any, budget: int, depth: int) -> bytes:
        """Return the body of the first items of a container, and of the last ones of a list."""
        is_dict, is_list, length = type(value) is dict, type(value) is list or type(value) is tuple, len(value)
        # In one step, because another thread may change it.
        items = value if is_list else [*islice(value.items() if is_dict else value, MAX_ITEMS * self.more)]
        if length <= min(FEW_ITEMS, budget // LEAST_BUDGET):
            return self._few([*items], budget, depth, is_dict=is_dict)
        tail = [*value[-TAIL_ITEMS:]] if is_list else []
        body, kept, room, size = b"", 0, budget - budget // TAIL_ITEMS, FIRST_ITEMS
        while size > TAIL_ITEMS and self.left > UNITS_OF_A_TRY:
            first = [*items[kept : min(kept + size, length - len(tail))]]
            before = self.left
            stream = self.whole(dict(first) if is_dict else first, room) if first else None
            if stream is None:
                size //= 4
                continue
            self.left -= units_of(stream, len(HEAD) + 9, len(stream)) if len(stream) < MIN_READ_BYTES else 0
            body += (more := _opened(stream[BODY]))
            room -= len(more)
            kept += len(first)
            if is_dict and not {type(key) for key, _ in first} <= _KEYS:
                # Texts that stand for keys are numbered within one part only.
                break
            # The first keys of a large dict are far from each other in memory.
            self.left -= len(first) * is_dict
            # At most half of what is left is for the next ones.
            more_units = min(self.left / 2, self.most * 0.9) / (before - self.left)
            size = int(len(first) * min(FIRST_ITEMS, more_units, 0.9 * room / len(more)))
        if not kept:
            first = [*items[: min(FIRST_ITEMS, length - len(tail), budget // LEAST_BUDGET)]]
            body, kept = _opened(self._few(first, room, depth, is_dict=is_dict)), len(first)
        cut = length - len(tail) - kept
        self.left_out += cut
        if is_dict:
            return b"}" + body + (_dict_items([body_of("…")], [body_of(f"[{cut:,} keys cut]")]) if cut else b"")
        notes = [body_of(f"…[{cut:,} items cut]")] if cut else []
        return b"]" + body + list_items([*notes, *self._shares(tail, budget // TAIL_ITEMS, depth)])

    def _few(self, items: list[Any], budget: int, depth: int, *, is_dict: bool) -> bytes:
        if not is_dict:
            return b"]" + list_items(self._shares(items, budget, depth))
        plain = with_plain_keys(dict(items))
        keys = self._shares([*plain], budget // 4, depth)
        return b"}" + _dict_items(keys, self._shares([*plain.values()], budget - budget // 4, depth))

    def _shares(self, items: list[Any], budget: int, depth: int) -> list[bytes]:
        """Return the body of each item, cut if it exceeds its share; what small ones leave goes to the others."""
        # A single container fits as little as what it is in.
        is_tried = len(items) != 1 or type(items[0]) not in CONTAINERS
        share = budget // max(len(items), 1)
        streams = [self.whole(item, share) if is_tried and self.left > UNITS_OF_A_TRY else None for item in items]
        kept = [stream for stream in streams if stream is not None]
        share = (budget - sum(map(len, kept))) // max(len(items) - len(kept), 1)
        return [
            self.body(item, share, depth + 1) if stream is None else stream[BODY]
            for item, stream in zip(items, streams, strict=True)
        ]


def _opened(body: bytes) -> bytes:
    """Return the items of a container's body."""
    return body[10:] if body[0] == _FRAME else body[1:]
