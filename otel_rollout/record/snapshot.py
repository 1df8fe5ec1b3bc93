"""The snapshot: a value as it is now, as bytes that nothing of the program refers to.

Agents change the message lists that they pass around; a span shows a value as it was at the call. CPython's pickler
reads plain data in C; what isn't plain is copied first, by `readers`. Both are bounded: in bytes, and in units of about
25 ns. What doesn't fit loses items, keys and characters; notes have their numbers.
"""

from __future__ import annotations

import pickle
import sys
from collections.abc import Callable
from itertools import islice
from typing import Any, Final

from otel_rollout.guard.log_once import internal_error
from otel_rollout.guard.provenance import is_programs
from otel_rollout.record.fields import Part, class_name
from otel_rollout.record.readers import SCALARS, array_summary, read_dict, reader_of
from otel_rollout.text.plain_json import on_program_thread, value_to_json
from otel_rollout.text.plain_text import cut_text

DEFAULT_BUDGET: Final = 1024 * 1024
"""The most bytes of a value."""
UNITS: Final = 250_000
"""The most units of a snapshot, 170,000 of them for one try to keep all."""
FIRST_UNITS: Final = 170_000
SMALL_UNITS: Final = 16_000
BYTES_OF_A_UNIT: Final = 2
BYTES_OF_A_SNAPSHOT: Final = 56 + 33
"""The object, and the head of its bytes."""
UNITS_OF_A_TRY: Final = 250
MAX_LOOKS: Final = 2_000
OPCODES: Final = 128
MAX_DEPTH: Final = 40
MAX_OBJECT_DEPTH: Final = 6
"""At this depth, objects of unknown classes become their class's name, and nothing is cut inside."""
MANY_ITEMS: Final = 4096
FEW_ITEMS: Final = 256
"""A container of so few items keeps all of them, each with its share of the budget."""
SAMPLE: Final = 64
TAIL_ITEMS: Final = 8
LEAST_BUDGET: Final = 64
SMALL_BYTES: Final = 64 * 1024
_CONTAINED: Final = frozenset((dict, list, tuple, set, frozenset))
_PLAIN: Final = _CONTAINED | {bytes}
_SHORT: Final = frozenset((int, float, bool, type(None)))
_HEAD, _STOP = b"\x80\x05", b"."
_FRAME: Final = 0x95
_TEXTS: Final = frozenset(b"X\x8d")
_FIXED: Final = {ord("K"): 1, ord("M"): 2, ord("J"): 4, ord("G"): 8, _FRAME: 8}
_COUNTED: Final = {0x8C: 1, ord("C"): 1, 0x8A: 1, ord("X"): 4, ord("B"): 4, 0x8B: 4, 0x8D: 8, 0x8E: 8, 0x96: 8}
"""The bytes after an opcode, or of the number of those that follow."""
_CONTAINERS: Final = frozenset(b"]}\x8f\x91")


class OtherError(Exception):
    """There is a value that isn't plain data."""


class FullError(Exception):
    """The budget is used up."""


class _Sink:
    """Takes what the pickler writes, and stops it before a part that doesn't fit."""

    __slots__ = ("is_content", "is_private", "left", "parts", "units")

    def __init__(self, budget: int, units: int, is_private: bool) -> None:
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
        at = 0 if self.parts else 2
        if part[at] == _FRAME:
            start = at + 9
            at = start + int.from_bytes(part[at + 1 : start], "little")
            self.units -= size >> 6 if size < 2 * MANY_ITEMS else _units(part, start, at)
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


def _units(part: bytes, start: int, end: int) -> int:
    """Return the units that a frame took, by its first opcodes."""
    at, units = start, 0
    for _ in range(OPCODES):
        if at >= end:
            break
        opcode = part[at]
        units += 6 if opcode in _CONTAINERS else 1
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


def _note(value: Any) -> bytes:
    return pickle.dumps(value, 5)[2:-1]


def _dump(value: Any, sink: _Sink) -> bytes:
    """Return the stream of a value.

    Raises:
        OtherError: It isn't plain data.
        FullError: It doesn't fit.
        Exception: It changes meanwhile, contains itself, or is nested too deeply.
    """
    pickler = _Pickler(sink, 5)
    pickler.fast = True
    if sink.is_private:
        pickler.is_private = True
    pickler.dump(value)
    parts = sink.parts
    return parts[0] if len(parts) == 1 else b"".join(parts)


_LEFT_OUT: Final = _note("…")


class _Work:
    """Makes one snapshot. A body is a stream without its first two bytes and the last: bodies make up a container."""

    __slots__ = ("cost", "left", "left_out", "more", "path")

    def __init__(self, budget: int = DEFAULT_BUDGET) -> None:
        # A larger budget, which a user has asked for, may take longer.
        self.more = max(budget // DEFAULT_BUDGET, 1)
        self.left = UNITS * self.more
        self.cost = 0
        """The units that the last try took, apart from the look before it."""
        self.left_out = 0
        """The items, keys and characters that were left out."""
        self.path: list[int] = []
        """The ids of the containers and objects around a value."""

    def whole(self, value: Any, budget: int, *, is_measured: bool = False) -> bytes | None:
        """Return the stream of a value; None if it doesn't fit."""
        kind = type(value)
        if (kind in _SHORT and (kind is not int or value.bit_length() <= 64)) or (kind is str and len(value) <= 16):
            self.left -= UNITS_OF_A_TRY // 8
            return pickle.dumps(value, 5)
        before, given = self.left_out, self.left - UNITS_OF_A_TRY
        limit = min(given, max(budget // BYTES_OF_A_UNIT, LEAST_BUDGET), FIRST_UNITS * self.more)
        self.left = limit
        try:
            if not is_measured and not self._look_through(value, budget):
                # Most of what is left is for what fits, if this doesn't.
                rest = self.left * 2 // 3
                limit -= rest
                self.left -= rest
            self.cost = self.left
            sink = _Sink(budget, self.left, False)
            try:
                return _dump(value, sink)
            except OtherError:
                pass
            except Exception as error:  # it changes, contains itself, or is nested too deeply
                if type(error) is FullError or is_programs(error):
                    raise
            finally:
                self.left = max(sink.units, 0)
            self.path = []
            plain = self.copy(value, 0)
            sink = _Sink(budget, self.left, True)
            try:
                return _dump(plain, sink)
            finally:
                self.left = max(sink.units, 0)
        except FullError:
            self.left_out = before
            return None
        finally:
            self.cost -= self.left
            self.left += given - limit

    def _look_through(self, value: Any, budget: int) -> bool:
        """Find out from the lengths of what a value holds if it can't fit; False if that is too much to look at.

        Of a long list some items stand for all.

        Raises:
            FullError: It can't fit.
        """
        units, seen = self.left, 0
        stack = [(iter((value,)), 1)]
        try:
            while stack and seen < MAX_LOOKS:
                items, weight = stack[-1]
                for each in items:
                    seen += 1
                    kind = type(each)
                    if kind is str:
                        length = len(each)
                        budget -= (length + (2 if length < FEW_ITEMS else 5)) * weight
                    elif kind in _CONTAINED:
                        units -= (6 + len(each)) * weight
                        # A key takes three bytes at least.
                        budget -= len(each) * (3 if kind is dict else 1) * weight
                        held = each.values() if kind is dict else each
                        if units > 0 and budget > 0 and type(next(iter(held), 0)) not in _SHORT:
                            step = len(each) // SAMPLE if kind is list or kind is tuple else 0
                            stack.append((iter(each[::step] if step else held), weight * max(step, 1)))
                            break
                    elif kind not in SCALARS:
                        units -= reader_of(kind).cost * weight
                    if budget < 0 or units < 0:
                        raise FullError
                else:
                    stack.pop()
        except RuntimeError as error:  # it changes
            if is_programs(error):
                raise
        finally:
            self.left -= 4 * seen
        return not stack

    def copy(self, value: Any, depth: int) -> Any:
        """Return private plain data for any value."""
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
            self._take(16 + 4 * len(value))
            plain: Any = value.copy()
            if not {*map(type, plain)} <= SCALARS:
                plain = read_dict(plain)
            self._values(plain, depth)
        elif kind is list or kind is tuple or kind is set or kind is frozenset:
            self._take(8 + len(value) // 4)
            plain = self._list([*value], depth)
        else:
            plain = self._read(value, kind, depth)
            kind = type(plain)
            if kind is dict:
                self._values(plain, depth)
            elif kind is list:
                plain = self._list(plain, depth)
            elif kind not in SCALARS and kind.__name__ != "ndarray":
                plain = self.copy(plain, depth + 1)
        path.pop()
        return plain

    def _values(self, plain: dict[Any, Any], depth: int) -> None:
        units = 4 * len(plain)
        if units > self.left:
            raise FullError
        self.left -= units
        for key, item in plain.items():
            if type(item) not in SCALARS:
                plain[key] = self.copy(item, depth + 1)

    def _list(self, items: list[Any], depth: int) -> list[Any]:
        kinds = {*map(type, items)}
        if kinds <= SCALARS:
            return items
        self._take(4 * len(items))
        if len(kinds) == 1 and len(items) > TAIL_ITEMS and (reader := reader_of(kinds.pop())).is_leaf:
            self._take(reader.cost * len(items))
            try:
                plain = [*map(reader.read, items)]
            except Exception as error:
                if is_programs(error):
                    raise
            else:
                if {*map(type, plain)} <= SCALARS:
                    return plain
        return [item if type(item) in SCALARS else self.copy(item, depth + 1) for item in items]

    def _read(self, value: Any, kind: type, depth: int) -> Any:
        try:
            read, cost, is_known, _ = reader_of(kind)
            if cost > self.left:
                raise FullError
            self.left -= cost
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

    def _take(self, units: int) -> None:
        if units > self.left:
            raise FullError
        self.left -= units

    def body(self, value: Any, budget: int, depth: int) -> bytes:
        """Return the body of a value that doesn't fit as it is: what fits of it."""
        kind = type(value)
        if kind is str:
            room = max(budget if value.isascii() else budget // 3, TAIL_ITEMS * 4)
            self.left_out += max(len(value) - room, 0)
            return _note(cut_text(value, room) if len(value) > room else value)
        self.left -= UNITS_OF_A_TRY // 2
        if kind is int and value.bit_length() > 64:
            self.left_out += 1
            return _note(f"<int of {value.bit_length():,} bits>")
        if kind in SCALARS:
            return _note(value)
        if budget < LEAST_BUDGET or depth >= MAX_OBJECT_DEPTH or self.left < UNITS_OF_A_TRY:
            self.left_out += 1
            return _note(f"…<{class_name(kind)}>")
        if kind in (dict, list, tuple, set, frozenset):
            return self._part(value, kind, budget, depth)
        try:
            plain = self._read(value, kind, 0)
        except FullError:
            self.left_out += 1
            return _note(f"…<{class_name(kind)}>")
        if type(plain).__name__ == "ndarray":
            plain = array_summary(plain)
        return self.body(plain, budget, depth + 1)

    def _part(self, value: Any, kind: Any, budget: int, depth: int) -> bytes:
        """Return the body of the first items of a container, and of the last ones of a list."""
        length, tail = len(value), []
        self.left -= 2 * UNITS_OF_A_TRY
        if length <= min(FEW_ITEMS, budget // LEAST_BUDGET):
            return self._few(value, length, budget, depth)
        if kind is dict:
            items = value.items()
            sample: Any = dict([*islice(items, SAMPLE // 2), *islice(reversed(items), SAMPLE // 2)])
        elif kind is list or kind is tuple:
            sample, tail = value[:: max(length // SAMPLE, 1)], [*value[-TAIL_ITEMS:]]
        else:
            sample = [*islice(value, SAMPLE)]
        head, kept = self._head(value, sample, length - len(tail), budget - budget // TAIL_ITEMS, depth)
        if not (cut := length - len(tail) - kept):
            return head + b"(" + b"".join(self._shares(tail, budget // TAIL_ITEMS, depth)) + b"e" if tail else head
        self.left_out += cut
        if kind is dict:
            return head + b"(" + _note("…") + _note(f"[{cut:,} keys cut]") + b"u"
        notes = [_note(f"…[{cut:,} items cut]"), *self._shares(tail, budget // TAIL_ITEMS, depth)]
        return head + b"(" + b"".join(notes) + b"e"

    def _head(self, value: Any, sample: Any, length: int, budget: int, depth: int) -> tuple[bytes, int]:
        """Return the body of as many first items as fit, and their number."""
        first: Callable[[int], Any] = lambda count: (  # noqa: E731
            dict(islice(value.items(), count)) if type(value) is dict else [*islice(value, count)]
        )
        stream = self.whole(sample, budget)
        if stream is None and type(sample) is not dict:
            sample = sample[::TAIL_ITEMS]
            stream = self.whole(sample, budget)
        if stream is not None:
            bytes_each = len(stream) / len(sample)
            units_each = (self.cost + _units(stream, len(_HEAD) + 9, len(stream))) / len(sample)
            room = 0.9 * min(
                budget / bytes_each,
                min(self.left * 0.6, budget // BYTES_OF_A_UNIT, FIRST_UNITS * self.more * 0.75) / units_each,
            )
            count = min(length, int(room))
            while count > FEW_ITEMS // 4 and self.left > UNITS_OF_A_TRY:
                stream = self.whole(first(count), budget, is_measured=True)
                if stream is not None:
                    return stream[2:-1], count
                count //= 2
        count = min(FEW_ITEMS // 4, length, budget // LEAST_BUDGET)
        return self._few(first(count), count, budget, depth), count

    def _few(self, value: Any, length: int, budget: int, depth: int) -> bytes:
        if type(value) is not dict:
            bodies = self._shares([*islice(value, length)], budget, depth)
            return b"](" + b"".join(bodies) + b"e"
        plain = read_dict(value)
        keys = self._shares([*plain], budget // 4, depth)
        items = self._shares([*plain.values()], budget - budget // 4, depth)
        return b"}(" + b"".join([part for pair in zip(keys, items) for part in pair]) + b"u"  # noqa: B905 - alike

    def _shares(self, items: list[Any], budget: int, depth: int) -> list[bytes]:
        """Return the body of each item, cut if it exceeds its share; what small ones leave goes to the others."""
        fair = budget // max(len(items), 1)
        # A single container fits as little as what it is in.
        tries = len(items) != 1 or type(items[0]) not in _CONTAINED
        parts: list[Any] = [self.whole(item, fair) if tries and self.left > UNITS_OF_A_TRY else None for item in items]
        missing = [place for place, part in enumerate(parts) if part is None]
        share = (budget - sum(map(len, filter(None, parts)))) // max(len(missing), 1)
        parts = [None if part is None else part[2:-1] for part in parts]
        for place in missing:
            if self.left < UNITS_OF_A_TRY:
                self.left_out += 1
                parts[place] = _LEFT_OUT
                continue
            parts[place] = self.body(items[place], share, depth + 1)
        return parts


class Snapshot:
    """A value as it was, in bytes.

    Args:
        stream: The stream of the value, or what is left of a larger one.
        left_out: The items, keys and characters that the budget left out.
    """

    __slots__ = ("left_out", "stream")

    is_note = False
    """True if it replaces a payload that was dropped."""
    is_stream = False
    """True if it is the list of what a generator yielded."""

    def __init__(self, stream: bytes, left_out: int = 0) -> None:
        self.stream = stream
        self.left_out = left_out

    @property
    def size(self) -> int:
        """The bytes that it holds in memory."""
        return BYTES_OF_A_SNAPSHOT + len(self.stream)

    @classmethod
    def of_note(cls, text: str, left_out: int = 0) -> Snapshot:
        """Return the note that replaces a payload that was dropped."""
        return _Note(pickle.dumps(text, 5), left_out)

    @classmethod
    def of_items(cls, items: list[Snapshot], cut: int) -> Snapshot:
        """Return the snapshot of a generator's items, as a list.

        Args:
            items: Their snapshots.
            cut: The number of items that are left out at its end.
        """
        bodies = [item.stream[2:-1] for item in items]
        if cut:
            bodies.append(_note(f"…[{cut:,} items cut]"))
        return _Stream(_HEAD + b"](" + b"".join(bodies) + b"e" + _STOP, sum(item.left_out for item in items) + cut)

    def load(self) -> Any:
        """Return a new copy of the value: plain data, with bytes, sets, tuples, and keys of any plain type."""
        return pickle.loads(self.stream)  # noqa: S301 - our own bytes


class _Note(Snapshot):
    __slots__ = ()

    is_note = True


class _Stream(Snapshot):
    __slots__ = ()

    is_stream = True


def take_snapshot(value: Any, budget: int = DEFAULT_BUDGET) -> Snapshot:
    """Return a copy of `value` that later changes don't reach; no code of a user's class runs.

    Args:
        value: Any value. Plain data, known types (pydantic, dataclasses, attrs, OmegaConf, numpy, torch, PIL, pandas,
            enums, dates, sets) and the public fields of other objects are copied. If a class has a method
            `__rollout_payload__`, its result is copied in place of the object.
        budget: The most bytes; notes replace the rest.

    Raises:
        BaseException: From `__rollout_payload__` if it is not an Exception, and whatever interrupts the thread.
    """
    try:
        has_objects, is_long = _look(value)
        if not (has_objects or is_long):
            # Most values are plain data.
            try:
                return Snapshot(_dump(value, _Sink(min(budget, SMALL_BYTES), SMALL_BYTES, False)))
            except (FullError, OtherError):
                pass
            except Exception as error:  # it changes, contains itself, or is nested too deeply
                if is_programs(error):
                    raise
        work = _Work(budget)
        if has_objects:
            work.left = SMALL_UNITS
            try:
                return Snapshot(_dump(work.copy(value, 0), _Sink(budget, SMALL_UNITS, True)), work.left_out)
            except FullError:
                work = _Work(budget)
        stream = work.whole(value, budget)
        if stream is None:
            stream = _HEAD + work.body(value, budget, 0) + _STOP
        return Snapshot(stream, work.left_out)
    except Exception as error:
        if is_programs(error):
            raise
        internal_error("taking a snapshot")
        return Snapshot.of_note(f"<unreadable {class_name(type(value))}>", 1)


def _look(value: Any) -> tuple[bool, bool]:
    """Return True if a value or an argument of a call is an object, and True if one is long."""
    has_objects = is_long = False
    for item in [*value.values()] if type(value) is dict and len(value) <= TAIL_ITEMS * 2 else [value]:
        kind = type(item)
        if kind is str or kind is list or kind is tuple:
            is_long = is_long or len(item) > SMALL_BYTES
            kind = str if kind is str else type([*item[:1], 0][0])
        has_objects = has_objects or not (kind in SCALARS or kind in _PLAIN)
    return has_objects, is_long


def plain_value(value: Any) -> Any:
    """Return a private copy of a small value, as plain data."""
    return take_snapshot(value).load()


def to_json(taken: Snapshot) -> bytes:
    """Return a snapshot as JSON in UTF-8."""
    return value_to_json(taken.load())


def json_text(value: Any) -> str:
    """Return any value as JSON text, on the program's thread."""
    with on_program_thread():
        return to_json(take_snapshot(value)).decode()


def first_fields(value: Any) -> dict[Any, Any]:
    """Return a dict, or the fields of an object; empty for other values."""
    kind = type(value)
    if kind is dict:
        return value  # type: ignore[no-any-return]  # just checked
    if kind in SCALARS or kind is list or kind is tuple or reader_of(kind).cost > FEW_ITEMS:
        return {}
    plain = _Work()._read(value, kind, 0)  # noqa: SLF001
    return plain if type(plain) is dict else {}
