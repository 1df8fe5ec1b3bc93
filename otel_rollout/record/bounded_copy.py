"""Copies any value as plain data within a budget of bytes and units, of about 25 ns each; cuts what doesn't fit.

Small parts of a large value stay whole, each large one gets its share, and notes count what is left out.
"""

from __future__ import annotations

from itertools import islice
from typing import Any, Final

from otel_rollout.guard.log_once import internal_error
from otel_rollout.guard.provenance import is_programs
from otel_rollout.record.bounded_pickle import (
    CONTAINERS,
    HEAD,
    MIN_READ_BYTES,
    STOP,
    FullError,
    OtherError,
    Sink,
    body_of,
    dict_items,
    dump,
    list_items,
    opened,
    units_of,
    whole_body,
)
from otel_rollout.record.fields import Part, class_name
from otel_rollout.record.readers import SCALARS, array_summary, reader_of, with_plain_keys
from otel_rollout.text.plain_text import cut_text
from otel_rollout.text.sanitize import fits_int64

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
SAMPLE: Final = 64
MAX_SAMPLED: Final = 4096
"""The sample of a dict or set is from so many first items."""
TAIL_ITEMS: Final = 8
LEAST_BUDGET: Final = 64
SHORT_TEXT: Final = 16
_SHORT: Final = frozenset((int, float, bool, type(None)))
_KEYS: Final = SCALARS | {tuple}


class Copier:
    """Copies a value within a budget of units.

    Args:
        units: The budget.
    """

    __slots__ = ("left", "left_out", "path")

    def __init__(self, units: int) -> None:
        self.left = units
        self.left_out = 0
        """The items, keys and characters that were left out."""
        self.path: list[int] = []
        """The ids of the containers and objects around a value."""

    def take(self, units: int) -> None:
        """Use up units.

        Raises:
            FullError: There are fewer.
        """
        if units > self.left:
            raise FullError
        self.left -= units

    def copy(self, value: Any, depth: int = 0) -> Any:
        """Return private plain data: scalars, lists, dicts and arrays of numpy.

        Raises:
            FullError: The units are used up.
        """
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
        """Read a value by the reader of its class; return its result, or a note.

        Raises:
            FullError: The units are used up.
        """
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
    """Makes the stream of one value.

    Args:
        budget: The most bytes; a larger one than the default may take longer.
    """

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
        self.most, self.looks = self.left // 4, SAMPLE
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

    def _may_fit(self, value: Any, budget: float) -> bool:
        """Return False if a value can't fit by the lengths of what it holds; a sample stands for a long container."""
        units, seen = float(min(self.left, self.most)), 0
        stack: list[tuple[Any, float]] = [(value, 1.0)]
        try:
            while stack and seen < self.looks and budget >= 0 and units >= 0:
                seen += 1
                each, weight = stack.pop()
                kind = type(each)
                if kind is str:
                    budget -= (len(each) + 2) * weight
                elif kind is int:
                    budget -= each.bit_length() // 8 * weight
                elif kind in CONTAINERS:
                    units -= (6 + len(each)) * weight
                    # A key takes three bytes at least.
                    budget -= len(each) * (3 if kind is dict else 1) * weight
                    held = each.values() if kind is dict else each
                    if budget >= 0 and (len(each) <= TAIL_ITEMS or type(next(iter(held), 0)) not in _SHORT):
                        sample = _sample(held)
                        weight *= len(each) / max(len(sample), 1)
                        stack += [(item, weight) for item in sample]
                elif kind not in SCALARS:
                    units -= reader_of(kind).cost * weight
        except RuntimeError as error:  # another thread changes it
            if is_programs(error):
                raise
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
        is_dict, length = type(value) is dict, len(value)
        if length <= min(FEW_ITEMS, budget // LEAST_BUDGET):
            return self._few([*value.items()] if is_dict else [*value], budget, depth, is_dict=is_dict)
        tail = [*value[-TAIL_ITEMS:]] if type(value) is list or type(value) is tuple else []
        items = islice(value.items() if is_dict else value, length - len(tail))
        waiting: list[Any] = []
        body, kept, room, size = b"", 0, budget - budget // TAIL_ITEMS, SAMPLE
        while size > TAIL_ITEMS and self.left > UNITS_OF_A_TRY:
            try:
                waiting += islice(items, max(size - len(waiting), 0))
            except RuntimeError as error:  # another thread changes it
                if is_programs(error):
                    raise
                items = islice((), 0)
            first = waiting[:size]
            before = self.left
            stream = self.whole(dict(first) if is_dict else first, room) if first else None
            if stream is None:
                size //= 4
                continue
            more = opened(whole_body(stream))
            self.left -= units_of(stream, len(HEAD) + 9, len(stream)) if len(stream) < MIN_READ_BYTES else 0
            body += more
            room -= len(more)
            kept += len(first)
            del waiting[: len(first)]
            if is_dict and not {type(key) for key, _ in first} <= _KEYS:
                # Texts that stand for keys are numbered within one part only.
                break
            # The first keys of a large dict are far from each other in memory.
            self.left -= len(first) * is_dict
            # At most half of what is left is for the next ones.
            more_units = min(self.left / 2, self.most * 0.9) / (before - self.left)
            size = int(size * min(SAMPLE, more_units, 0.9 * room / len(more)))
        if not kept:
            kept = min(FEW_ITEMS // 4, length - len(tail), budget // LEAST_BUDGET)
            first = [*islice(value.items() if is_dict else value, kept)]
            body = opened(self._few(first, room, depth, is_dict=is_dict))
        cut = length - len(tail) - kept
        self.left_out += cut
        if is_dict:
            return b"}" + body + (dict_items([body_of("…")], [body_of(f"[{cut:,} keys cut]")]) if cut else b"")
        notes = [body_of(f"…[{cut:,} items cut]")] if cut else []
        return b"]" + body + list_items([*notes, *self._shares(tail, budget // TAIL_ITEMS, depth)])

    def _few(self, items: list[Any], budget: int, depth: int, *, is_dict: bool) -> bytes:
        if not is_dict:
            return b"]" + list_items(self._shares(items, budget, depth))
        plain = with_plain_keys(dict(items))
        keys = self._shares([*plain], budget // 4, depth)
        return b"}" + dict_items(keys, self._shares([*plain.values()], budget - budget // 4, depth))

    def _shares(self, items: list[Any], budget: int, depth: int) -> list[bytes]:
        """Return the body of each item, cut if it exceeds its share; what small ones leave goes to the others."""
        # A single container fits as little as what it is in.
        is_tried = len(items) != 1 or type(items[0]) not in CONTAINERS
        share = budget // max(len(items), 1)
        streams = [self.whole(item, share) if is_tried and self.left > UNITS_OF_A_TRY else None for item in items]
        kept = [stream for stream in streams if stream is not None]
        share = (budget - sum(map(len, kept))) // max(len(items) - len(kept), 1)
        return [
            self.body(item, share, depth + 1) if stream is None else whole_body(stream)
            for item, stream in zip(items, streams, strict=True)
        ]


def _sample(items: Any) -> list[Any]:
    """Return some items of a container, evenly taken; of a dict or set from its first ones."""
    length = len(items)
    if type(items) is list or type(items) is tuple:
        return [*items[:: max(length // SAMPLE, 1)]]
    return [*islice(items, 0, MAX_SAMPLED, max(min(length, MAX_SAMPLED) // SAMPLE, 1))]
