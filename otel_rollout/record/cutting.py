"""A value that is larger than the budget: its beginning, its end, and true numbers of what is left out.

Nothing is estimated: the pickler writes a part of the value within a part of the budget, or it doesn't fit.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from itertools import islice
from typing import Any, Final, cast

from otel_rollout.record.object_reading import class_name
from otel_rollout.record.object_walk import BYTES_OF_AN_ITEM, SCALARS, ObjectWalk, first_items, first_pairs, stream_of
from otel_rollout.record.stream import FullError, load_stream, write_stream
from otel_rollout.text.plain_json import with_text_keys
from otel_rollout.text.plain_text import cut_text

FEW_ITEMS: Final = 256
"""A container of so few items keeps all of them, each with its share of the budget."""
KEYS_SHARE: Final = 4
"""The keys of a dict get one part in so many."""
TAIL_ITEMS: Final = 8
TAIL_SHARE: Final = 8
"""The last items of a longer list get one part in so many."""
SMALL_BYTES: Final = 256 * 1024
"""A stream up to this size becomes 16 MiB of objects at most."""
DENSE_BYTES: Final = 16
"""With a container in fewer bytes than these, objects take more than 14 times the bytes of their stream."""
MAX_CONTAINERS: Final = 65_536
MANY_ITEMS: Final = 1024
PROBE_ITEMS: Final = 256
"""So many first items are measured, for the number that fits."""
PART_OF_ESTIMATE: Final = 0.75
PART_OF_SAMPLE: Final = 0.95
GROWTH: Final = 16
"""A run grows by this factor at most, since later items may be larger."""
MAX_MISSES: Final = 4
MAX_DEPTH: Final = 6
MAX_BYTES_OF_A_TABLE: Final = 16 * 1024 * 1024
MAX_BYTES_OF_A_PLACE: Final = 1000
ITEMS_OF_A_SMALL_OBJECT: Final = 48
"""An object is read and its first 16 fields, whatever its share of the budget."""
WHOLE_TEXT: Final = 32
"""A text of so few characters is shorter than its beginning and a note; ours are as short."""
BITS_OF_A_NUMBER: Final = 64
"""A smaller number is shorter than a note."""
LEAST_BUDGET: Final = 64
"""No part is read for less."""


class Cut:
    """A container of which a part is left out.

    Args:
        parts: Streams and other `Cut`s. A list of a stream and a place stands for the items of the list in the stream,
            or of the list at this place in it.
        keys: The keys of a dict; None for a list.
    """

    __slots__ = ("keys", "parts")

    def __init__(self, parts: list[Any], keys: Cut | None = None) -> None:
        self.parts = parts
        self.keys = keys

    @property
    def size(self) -> int:
        """The bytes in memory."""
        return 200 + sum(map(_size, self.parts)) + (0 if self.keys is None else self.keys.size)

    def load(self) -> Any:
        """Return the value."""
        items: list[Any] = []
        for part in self.parts:
            if type(part) is list:
                stream, place = part
                held = load_stream(stream)
                items += held if place is None else held[place]
            else:
                items.append(part.load() if type(part) is Cut else load_stream(part))
        return items if self.keys is None else with_text_keys(zip(self.keys.load(), items, strict=False))


def _size(part: Any) -> int:
    if type(part) is Cut:
        return part.size
    return 80 + sys.getsizeof(part[0]) if type(part) is list else sys.getsizeof(part)


def streams_in(part: Any) -> Iterator[bytes]:
    """Yield the streams of a value that was cut."""
    if isinstance(part, Cut):
        for each in part.parts:
            yield from streams_in(each[0] if type(each) is list else each)
    else:
        yield part


class Cutter:
    """Cuts one value."""

    __slots__ = ("left_out",)

    def __init__(self) -> None:
        self.left_out = 0
        """The items, keys and characters that were left out."""

    def cut(self, value: Any, budget: int, depth: int = 0) -> bytes | Cut:
        """Return the stream of a value, or what fits of it.

        Args:
            value: A value that doesn't fit as it is.
            budget: The most bytes.
            depth: The number of containers around it.
        """
        kind = type(value)
        if kind is str:
            return self._text(value, budget)
        if id(kind) in SCALARS and kind is not bytes and (kind is not int or value.bit_length() <= BITS_OF_A_NUMBER):
            return self._note(value)
        if budget >= LEAST_BUDGET and depth < MAX_DEPTH and not _is_sparse(value):
            if kind is dict:
                return self._dict(value, budget, depth)
            if kind is list or kind is tuple or kind is set or kind is frozenset:
                return self._items(value, kind, budget, depth)
            if kind is not int and kind is not bytes and kind is not bytearray:
                return self._object(value, budget, depth)
        self.left_out += 1
        if kind is int:
            return self._note(f"<int of {value.bit_length():,} bits>")
        return self._note(f"…<{class_name(kind)}>")

    def _object(self, value: Any, budget: int, depth: int) -> bytes | Cut:
        walk = ObjectWalk(max(budget // BYTES_OF_AN_ITEM, ITEMS_OF_A_SMALL_OBJECT), cuts=True)
        plain = walk.read_object(value)
        self.left_out += walk.left_out
        return self._whole(plain, budget) or self.cut(plain, budget, depth + 1)

    def _dict(self, value: dict[Any, Any], budget: int, depth: int) -> Cut:
        length = len(value)
        if length <= FEW_ITEMS:
            pairs = first_pairs(value, FEW_ITEMS)
            keys = Cut(self._shares([key for key, _ in pairs], budget // KEYS_SHARE, depth))
            return Cut(self._shares([item for _, item in pairs], budget - budget // KEYS_SHARE, depth), keys)

        def stream(count: int) -> tuple[bytes, float] | None:
            pairs = first_pairs(value, count)
            # With the values, as one list: that bounds both.
            return self._fitting([[key for key, _ in pairs], [item for _, item in pairs]], budget)

        last = [*islice(reversed(value.items()), PROBE_ITEMS)]
        likely, budget = self._sample([*map(list, last)], budget)
        both, kept = self._run(stream, length, budget, likely)
        keys, items = Cut([[both, 0]]), Cut([[both, 1]])
        if not kept:
            kept = FEW_ITEMS // 4
            pairs = first_pairs(value, kept)
            keys = Cut(self._shares([key for key, _ in pairs], budget // KEYS_SHARE, depth))
            items = Cut(self._shares([item for _, item in pairs], budget - budget // KEYS_SHARE, depth))
        self.left_out += length - kept
        if kept < length:
            keys.parts.append(self._note("…"))
            items.parts.append(self._note(f"[{length - kept:,} keys cut]"))
        items.keys = keys
        return items

    def _items(self, value: Any, kind: Any, budget: int, depth: int) -> Cut:
        length = kind.__len__(value)
        if length <= FEW_ITEMS:
            return Cut(self._shares(first_items(value, kind, FEW_ITEMS), budget, depth))
        tail = [*value[-TAIL_ITEMS:]] if kind is list or kind is tuple else []
        room = budget - budget // TAIL_SHARE
        head = length - len(tail)
        likely, room = self._sample([*value[:: length // PROBE_ITEMS]], room) if tail else (None, room)
        run, kept = self._run(lambda count: self._fitting(first_items(value, kind, count), room), head, room, likely)
        parts: list[Any] = [[run, None]]
        if not kept:
            kept = FEW_ITEMS // 4
            parts = self._shares(first_items(value, kind, kept), room, depth)
        if kept < head:
            self.left_out += head - kept
            parts.append(self._note(f"…[{head - kept:,} items cut]"))
        return Cut(parts + self._shares(tail, budget // TAIL_SHARE, depth))

    def _run(
        self,
        stream: Callable[[int], tuple[bytes, float] | None],
        length: int,
        budget: int,
        likely: float | None = None,
    ) -> tuple[bytes, int]:
        """Return the stream of as many first items as fit, and their number; 0 if some of the first don't.

        Args:
            stream: Returns the stream of so many first items and the part of the budget that it takes; None if they
                don't fit.
            length: The number of all items.
            budget: The most bytes.
            likely: The part of the budget that an item takes on average, if it is known.
        """
        count = min(length, PROBE_ITEMS)
        before = self.left_out
        first = stream(count)
        if first is None:
            return self._note([[], []]), 0
        kept, used = first
        if likely is not None:
            used = max(used, likely * count)
        misses = 0
        while count < length and misses < MAX_MISSES:
            # Most items take two bytes or more.
            part = PART_OF_ESTIMATE if likely is None else PART_OF_SAMPLE
            more = min(length, int(count / max(used, 1e-9) * part), max(budget // 2, 1), GROWTH * count)
            more = more * (MAX_MISSES - misses) // MAX_MISSES
            if more <= count:
                break
            counted, self.left_out = self.left_out, before
            longer = stream(more)
            if longer is None:
                self.left_out = counted
                misses += 1
                continue
            (kept, used), count = longer, more
        return kept, count

    def _sample(self, items: list[Any], budget: int) -> tuple[float | None, int]:
        """Return the part of the budget that an item takes, None if some don't fit, and the budget.

        That is smaller where small items become large objects when they are loaded.
        """
        before = self.left_out
        sample = self._fitting(items, budget)
        # The items are read again, for the value.
        self.left_out = before
        if sample is None:
            return None, budget
        stream, used = sample
        if budget > SMALL_BYTES and containers_in(items) * DENSE_BYTES > len(stream):
            used, budget = used * budget / SMALL_BYTES, SMALL_BYTES
        return used / len(items), budget

    def _shares(self, items: list[Any], budget: int, depth: int) -> list[Any]:
        """Return each item, cut if it is larger than its share; what small ones leave goes to the others."""
        if not items:
            return []
        fair = budget // len(items)
        parts: list[Any] = [self._whole(item, fair) for item in items]
        missing = [position for position, part in enumerate(parts) if part is None]
        if missing:
            share = (budget - sum(map(len, filter(None, parts)))) // len(missing)
            for position in missing:
                item = items[position]
                parts[position] = self._whole(item, share) or self.cut(item, share, depth + 1)
        return parts

    def _whole(self, item: Any, budget: int) -> bytes | None:
        if is_long(item, budget):
            return None
        fitting = self._fitting(item, budget)
        return None if fitting is None else fitting[0]

    def _fitting(self, value: Any, budget: int) -> tuple[bytes, float] | None:
        """Return the stream of a value, and the part of the budget that it takes; None if it doesn't fit."""
        try:
            stream, walk = stream_of(value, budget)
        except FullError:
            return None
        self.left_out += walk.left_out
        items = budget // BYTES_OF_AN_ITEM
        return stream, max(len(stream) / budget, (items - walk.left) / max(items, 1))

    def _text(self, text: str, budget: int) -> bytes:
        # A character takes four bytes at most.
        characters = max(budget if text.isascii() else budget // 3, WHOLE_TEXT)
        if len(text) > characters:
            self.left_out += len(text) - characters
            text = cut_text(text, characters)
        return self._note(text)

    @staticmethod
    def _note(value: Any) -> bytes:
        return write_stream(value, sys.maxsize)


def containers_in(value: Any) -> int:
    """Return the number of containers in a value, up to `MAX_CONTAINERS` and one more."""
    found = 0
    waiting: list[Any] = [value]
    while waiting:
        container = waiting.pop()
        kind = type(container)
        items: list[Any] = []
        if kind is dict:
            items = [item for _, item in first_pairs(container, len(container))]
        elif kind is list or kind is tuple or kind is set or kind is frozenset:
            items = first_items(container, kind, len(container))
        for item in items:
            if id(type(item)) not in SCALARS:
                found += 1
                if found > MAX_CONTAINERS:
                    return found
                waiting.append(item)
    return found


def is_long(value: Any, budget: int) -> bool:
    """Return True for a value that can't fit, or which the pickler would read for long before it turns out not to."""
    kind = type(value)
    if kind is str or kind is dict:
        return len(value) > budget or _is_sparse(value)
    if kind is list or kind is tuple:
        # Most numbers take two bytes or more, and objects are read in Python.
        return len(value) > budget // 2 or (len(value) > MANY_ITEMS and id(type([*value[:1], 0][0])) not in SCALARS)
    if kind is int:
        return cast("int", value).bit_length() > 8 * budget
    return kind is set and _is_sparse(value)


def _is_sparse(value: Any) -> bool:
    """Return True for a dict or a set with room for many deleted items, which are passed over one by one."""
    kind = type(value)
    if kind is not dict and kind is not set:
        return False
    size = kind.__sizeof__(value)
    return size > MAX_BYTES_OF_A_TABLE and size > MAX_BYTES_OF_A_PLACE * len(value)
