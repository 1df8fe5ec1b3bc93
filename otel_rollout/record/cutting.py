"""Cuts a value to a budget of bytes and units: small parts stay whole, and notes count what is left out."""

from __future__ import annotations

from itertools import islice
from typing import Any, Final

from otel_rollout.guard.guard import is_of_program
from otel_rollout.record.bounded_pickle import (
    CONTAINERS,
    HEAD,
    FullError,
    OtherError,
    Sink,
    body_of,
    dict_of,
    dump,
    list_of,
    units_of,
)
from otel_rollout.record.copying import MAX_OBJECT_DEPTH, Copier
from otel_rollout.record.fields import class_name
from otel_rollout.record.readers import SCALARS, array_summary, reader_of, with_plain_keys
from otel_rollout.text.plain_text import cut_text

DEFAULT_BUDGET: Final = 1024 * 1024
"""The most bytes of a value."""
UNITS: Final = 250_000
"""The most units of a value, 170,000 of them for one try to keep all of it or of a part."""
FIRST_UNITS: Final = 170_000
UNITS_OF_A_TRY: Final = 250
BYTES_OF_A_UNIT: Final = 2
MAX_LOOKS: Final = 2000
FEW_ITEMS: Final = 256
"""A container of so few items keeps all of them, each with its share of the budget."""
SAMPLE: Final = 64
MAX_SAMPLED: Final = 4096
"""The sample of a dict or set is from so many first items."""
TAIL_ITEMS: Final = 8
LEAST_BUDGET: Final = 64
WIDE_BITS: Final = 64
_SHORT: Final = frozenset((int, float, bool, type(None)))


class Cutter(Copier):
    """Makes the stream of one value.

    Args:
        budget: The most bytes; a larger one than the default may take longer.
    """

    __slots__ = ("cost", "more")

    def __init__(self, budget: int) -> None:
        self.more = max(budget // DEFAULT_BUDGET, 1)
        super().__init__(UNITS * self.more)
        self.cost = 0
        """The units that the last try took, apart from the look before it."""

    def whole(self, value: Any, budget: int, *, is_measured: bool = False) -> bytes | None:
        """Return the stream of a value; None if it doesn't fit.

        Args:
            value: The value.
            budget: The most bytes.
            is_measured: True if a sample has shown that it fits.
        """
        before, given = self.left_out, self.left - UNITS_OF_A_TRY
        limit = self.left = min(given, max(budget // BYTES_OF_A_UNIT, LEAST_BUDGET), FIRST_UNITS * self.more)
        try:
            if not is_measured and not self._look_through(value, budget):
                # Most of what is left is for what fits, if this doesn't.
                limit -= self.left * 2 // 3
                self.left -= self.left * 2 // 3
            self.cost = self.left
            return self._stream(value, budget)
        except FullError:
            self.left_out = before
            return None
        finally:
            self.cost -= self.left
            self.left += given - limit

    def _stream(self, value: Any, budget: int) -> bytes:
        try:
            return self._dump(value, Sink(budget, self.left))
        except OtherError:
            pass
        except Exception as error:  # another thread changes it, it contains itself, or is nested too deeply
            if type(error) is FullError or is_of_program(error):
                raise
        self.path = []
        plain = self.copy(value)
        return self._dump(plain, Sink(budget, self.left, is_private=True))

    def _dump(self, value: Any, sink: Sink) -> bytes:
        try:
            return dump(value, sink)
        finally:
            self.left = max(sink.units, 0)

    def _look_through(self, value: Any, budget: int) -> bool:
        """Find out from the lengths of what a value holds if it can't fit; False if that is too much to look at.

        Of a long container a sample stands for all.

        Raises:
            FullError: It can't fit.
        """
        units, seen = float(self.left), 0
        room = float(budget)
        stack: list[tuple[Any, float]] = [(value, 1.0)]
        try:
            while stack and seen < MAX_LOOKS:
                seen += 1
                each, weight = stack.pop()
                kind = type(each)
                if kind is str:
                    room -= (len(each) + 2) * weight
                elif kind is int:
                    room -= each.bit_length() // 8 * weight
                elif kind in CONTAINERS:
                    units -= (6 + len(each)) * weight
                    # A key takes three bytes at least.
                    room -= len(each) * (3 if kind is dict else 1) * weight
                    if units > 0 and room > 0:
                        sample = _sample(each.values() if kind is dict else each)
                        if sample and (len(sample) <= TAIL_ITEMS or type(sample[0]) not in _SHORT):
                            weight *= len(each) / len(sample)
                            stack += [(item, weight) for item in sample]
                elif kind not in SCALARS:
                    units -= reader_of(kind).cost * weight
                if room < 0 or units < 0:
                    raise FullError
        except RuntimeError as error:  # another thread changes it
            if is_of_program(error):
                raise
        finally:
            self.left -= 4 * seen
        return not stack

    def body(self, value: Any, budget: int, depth: int = 0) -> bytes:
        """Return the body of what fits of a value that doesn't fit as it is."""
        kind = type(value)
        if kind is str:
            room = max(budget if value.isascii() else budget // 3, TAIL_ITEMS * 4)
            self.left_out += max(len(value) - room, 0)
            return body_of(cut_text(value, room) if len(value) > room else value)
        if kind is int and value.bit_length() > WIDE_BITS:
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
        kind, length = type(value), len(value)
        self.left -= 2 * UNITS_OF_A_TRY
        if length <= min(FEW_ITEMS, budget // LEAST_BUDGET):
            return self._few(value, length, budget, depth)
        tail = [*value[-TAIL_ITEMS:]] if kind is list or kind is tuple else []
        head, kept = self._head(value, length - len(tail), budget - budget // TAIL_ITEMS, depth)
        cut = length - len(tail) - kept
        self.left_out += cut
        if kind is dict:
            return head + b"(" + body_of("…") + body_of(f"[{cut:,} keys cut]") + b"u" if cut else head
        notes = [body_of(f"…[{cut:,} items cut]")] if cut else []
        return head + b"(" + b"".join([*notes, *self._shares(tail, budget // TAIL_ITEMS, depth)]) + b"e"

    def _head(self, value: Any, length: int, budget: int, depth: int) -> tuple[bytes, int]:
        """Return the body of as many first items as fit, and their number."""
        sample = _sample(value.items() if type(value) is dict else value)
        for items in (sample, sample[::TAIL_ITEMS]):
            stream = self.whole(dict(items) if type(value) is dict else items, budget)
            if stream is None:
                continue
            bytes_each = len(stream) / len(items)
            # The first keys of a large dict are far from each other.
            units_each = (self.cost + units_of(stream, len(HEAD) + 9, len(stream))) / len(items) + (type(value) is dict)
            units = min(self.left * 0.6, budget // BYTES_OF_A_UNIT, FIRST_UNITS * self.more * 0.75)
            count = min(length, int(0.9 * min(budget / bytes_each, units / units_each)))
            while count > FEW_ITEMS // 4 and self.left > UNITS_OF_A_TRY:
                stream = self.whole(_first(value, count), budget, is_measured=True)
                if stream is not None:
                    return stream[len(HEAD) : -1], count
                count //= 2
            break
        count = min(FEW_ITEMS // 4, length, budget // LEAST_BUDGET)
        return self._few(value, count, budget, depth), count

    def _few(self, value: Any, count: int, budget: int, depth: int) -> bytes:
        first = _first(value, count)
        if type(first) is list:
            return list_of(self._shares(first, budget, depth))
        plain = with_plain_keys(first)
        keys = self._shares([*plain], budget // 4, depth)
        return dict_of(keys, self._shares([*plain.values()], budget - budget // 4, depth))

    def _shares(self, items: list[Any], budget: int, depth: int) -> list[bytes]:
        """Return the body of each item, cut if it exceeds its share; what small ones leave goes to the others."""
        # A single container fits as little as what it is in.
        is_tried = len(items) != 1 or type(items[0]) not in CONTAINERS
        share = budget // max(len(items), 1)
        streams = [self.whole(item, share) if is_tried and self.left > UNITS_OF_A_TRY else None for item in items]
        kept = [stream for stream in streams if stream is not None]
        share = (budget - sum(map(len, kept))) // max(len(items) - len(kept), 1)
        return [
            self.body(item, share, depth + 1) if stream is None else stream[len(HEAD) : -1]
            for item, stream in zip(items, streams, strict=True)
        ]


def _sample(items: Any) -> list[Any]:
    """Return some items of a container, evenly taken; of a dict or set from its first ones."""
    length = len(items)
    if type(items) is list or type(items) is tuple:
        return [*items[:: max(length // SAMPLE, 1)]]
    return [*islice(items, 0, MAX_SAMPLED, max(min(length, MAX_SAMPLED) // SAMPLE, 1))]


def _first(value: Any, count: int) -> Any:
    return dict(islice(value.items(), count)) if type(value) is dict else [*islice(value, count)]
