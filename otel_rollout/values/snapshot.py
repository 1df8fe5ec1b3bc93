"""The snapshot: a private copy of any value, taken on the caller's thread.

Agents change the message lists that they pass around; a span shows a value as it was at the call. The copy has new
dicts and lists, and refers to the immutable values in them. No other thread can change it, so orjson may walk it later:
orjson reads a list by raw pointers, and crashes if the list changes meanwhile.

The walk reads values and never calls their methods: see `object_reading` and `library_types`. It stops at a budget.
"""

from __future__ import annotations

from itertools import islice
from typing import Any, Final

from otel_rollout.safety.signal_handlers import is_from_signal_handler
from otel_rollout.values.library_types import key_text, reader_of
from otel_rollout.values.object_reading import Standin, class_name

__all__ = ["DEFAULT_BUDGET", "Snapshot", "cut_text", "snapshot"]

DEFAULT_BUDGET: Final = 2 * 1024 * 1024
"""The cost of all parts of a value, in the units below: a few milliseconds, whatever the value."""
CONTAINER_COST: Final = 384
DICT_ITEM_COST: Final = 32
LIST_ITEM_COST: Final = 12
OBJECT_COST: Final = 384
"""In addition to the bytes of texts. A unit is at most a byte, and about a nanosecond."""
LONGEST_TEXT_SHARE: Final = 2
"""A text over the budget divided by this loses its middle."""
MAX_DEPTH: Final = 40
MAX_OBJECT_DEPTH: Final = 6
"""At this depth, objects of unknown classes become their class's name: their fields may lead anywhere."""
CYCLE_DEPTH: Final = 4
"""Dicts and lists at this depth and below are checked for cycles; objects always are."""
TAIL_ITEMS: Final = 8
"""The number of last items that stay if the budget is too small for a whole list."""
MAX_TRIES: Final = 4
"""The number of attempts to read a container that another thread changes."""
SHORT_TEXT: Final = 1000
"""Longer texts are checked for their cost."""
NUMBERS_IN_ROW: Final = 16
"""From this length, a list is first checked for holding only numbers."""


class Snapshot:
    """A private copy of a value.

    Args:
        value: Private dicts, lists and numpy arrays, and immutable values that orjson knows.
        size: The bytes that it holds in memory, estimated.
        left_out: The items, keys and characters that the budget left out, at least.
    """

    __slots__ = ("left_out", "size", "value")

    def __init__(self, value: Any, size: int, left_out: int = 0) -> None:
        self.value = value
        self.size = size
        self.left_out = left_out


def snapshot(value: Any, budget: int = DEFAULT_BUDGET) -> Snapshot:
    """Return a copy of `value` that later changes don't reach; no code of a user's class runs.

    Args:
        value: Any value. Plain data, known types (pydantic, dataclasses, attrs, OmegaConf, numpy, torch, PIL, pandas,
            enums, dates, sets) and the public fields of other objects are copied. If a class has a method
            `__rollout_payload__`, its result is copied in place of the object.
        budget: The cost of all parts; beyond it, a note stands in place of the rest.

    Raises:
        BaseException: From a signal handler, or from `__rollout_payload__` if it is not an Exception.
    """
    walk = _Walk(budget)
    try:
        copied, left = _copy(value, type(value), budget, 0, walk)
    except RecursionError:
        # The caller's stack is nearly full.
        return Snapshot(f"<{class_name(type(value))} that could not be read: the stack is full>", 0, 1)
    return Snapshot(copied, budget - left, walk.left_out)


class _Walk:
    """The state of one walk over a value, except for the rest of its budget."""

    __slots__ = ("above", "left_out", "longest_text")

    def __init__(self, budget: int) -> None:
        self.longest_text = budget // LONGEST_TEXT_SHARE
        self.left_out = 0
        self.above: set[int] | None = None
        """The ids of the containers around the current value, except for dicts and lists above `CYCLE_DEPTH`."""


# Each function returns its copy and the rest of the budget. Below zero, the walk stops.


def _copy(value: Any, kind: type, left: int, depth: int, walk: _Walk) -> tuple[Any, int]:
    """Return a private copy of a value of any type.

    Args:
        value: The value.
        kind: Its type.
        left: The rest of the budget.
        depth: The number of containers around it.
        walk: The walk.
    """
    if depth < CYCLE_DEPTH:
        if kind is dict:
            return _copy_dict(value, left, depth, walk)
        if kind is list:
            return _copy_list(value, left, depth, walk)
    if kind is str:
        return _copy_text(value, left, walk)
    if kind is int or kind is float or kind is bool or value is None:
        return value, left
    return _copy_once(value, kind, left, depth, walk)


def _copy_once(value: Any, kind: type, left: int, depth: int, walk: _Walk) -> tuple[Any, int]:
    """Return a private copy of a value that may contain itself: an object, or a container far down."""
    above = walk.above
    if above is None:
        above = walk.above = set()
    identity = id(value)
    if identity in above:
        return f"<cycle to {class_name(kind)}>", left
    if depth >= MAX_DEPTH:
        walk.left_out += 1
        return f"…<{class_name(kind)}>", left
    above.add(identity)
    if kind is dict:
        copied: tuple[Any, int] = _copy_dict(value, left, depth, walk)
    elif kind is list:
        copied = _copy_list(value, left, depth, walk)
    else:
        copied = _copy_object(value, kind, left - OBJECT_COST, depth, walk)
    above.discard(identity)
    return copied


def _copy_dict(value: dict[Any, Any], left: int, depth: int, walk: _Walk) -> tuple[dict[str, Any], int]:
    try:
        copied = None
        if len(value) * DICT_ITEM_COST <= left:
            for key in value:
                if type(key) is not str:
                    # Copying may call `__eq__` of a key's class.
                    break
            else:
                copied = value.copy()
        if copied is None:
            copied = _shallow_dict(value, left, walk)
    except RuntimeError as error:
        if is_from_signal_handler(error):
            raise
        # Another thread added or removed a key.
        copied = _shallow_dict(value, left, walk)
    left -= CONTAINER_COST + DICT_ITEM_COST * len(copied)
    for key, item in copied.items():
        kind = type(item)
        if kind is str and len(item) <= SHORT_TEXT:
            left -= len(item)
        elif kind is not int and kind is not float and kind is not bool and item is not None:
            copied[key], left = _copy(item, kind, left, depth + 1, walk)
        if left < 0:
            return _drop_rest(copied, key, walk), left
    return copied, left


def _copy_list(value: list[Any], left: int, depth: int, walk: _Walk) -> tuple[list[Any], int]:
    copied = _shallow_list(value, left, walk)
    left -= CONTAINER_COST + LIST_ITEM_COST * len(copied)
    if len(copied) >= NUMBERS_IN_ROW and _are_numbers(copied):
        return copied, left
    position = 0
    for item in copied:
        kind = type(item)
        if kind is dict and depth < CYCLE_DEPTH:
            copied[position], left = _copy_dict(item, left, depth + 1, walk)
        elif kind is str and len(item) <= SHORT_TEXT:
            left -= len(item)
        elif kind is not int and kind is not float and kind is not bool and item is not None:
            copied[position], left = _copy(item, kind, left, depth + 1, walk)
        position += 1  # noqa: SIM113 - `enumerate` makes a tuple for each item
        if left < 0:
            cut = len(copied) - position
            if cut:
                walk.left_out += cut
                copied[position:] = [f"…[{cut:,} items cut]"]
            break
    return copied, left


def _copy_object(value: Any, kind: type, left: int, depth: int, walk: _Walk) -> tuple[Any, int]:
    """Return a leaf or a private container for a value of a type that JSON doesn't have."""
    for attempt in range(MAX_TRIES):
        try:
            child = reader_of(kind)(value, max(left, 0) // LIST_ITEM_COST, depth < MAX_OBJECT_DEPTH)
        except Exception as error:
            if is_from_signal_handler(error):
                raise
            if isinstance(error, RuntimeError) and attempt < MAX_TRIES - 1:
                # Another thread changed a set or a dict of fields.
                continue
            break
        child_kind = type(child)
        if child_kind is Standin:
            return _copy(child.value, type(child.value), left, depth + 1, walk)
        if child_kind is dict:
            return _copy_dict(child, left, depth, walk)
        if child_kind is list:
            return _copy_list(child, left, depth, walk)
        if child_kind is str:
            return _copy_text(child, left, walk)
        # A numpy array is the only large leaf.
        return child, left - getattr(child, "nbytes", 0)
    walk.left_out += 1
    return f"<{class_name(kind)} that could not be read>", left


def _copy_text(text: str, left: int, walk: _Walk) -> tuple[str, int]:
    length = len(text)
    if length > walk.longest_text:
        walk.left_out += length - walk.longest_text
        text = cut_text(text, walk.longest_text)
        length = len(text)
    return text, left - (length if text.isascii() else 3 * length)


def _shallow_dict(value: dict[Any, Any], left: int, walk: _Walk) -> dict[str, Any]:
    """Return a private copy of any dict, or of its first items; all keys are texts."""
    for _ in range(MAX_TRIES):
        try:
            pairs = [*islice(value.items(), max(left, 0) // DICT_ITEM_COST)]
        except RuntimeError as error:
            if is_from_signal_handler(error):
                raise
            # Another thread added or removed a key.
            continue
        copied = {key if type(key) is str else key_text(key): item for key, item in pairs}
        cut = len(value) - len(pairs)
        if cut > 0:
            walk.left_out += cut
            copied["…"] = f"[{cut:,} keys cut]"
        return copied
    walk.left_out += len(value)
    return {"…": f"[{len(value):,} keys cut: they changed while they were read]"}


def _shallow_list(value: list[Any], left: int, walk: _Walk) -> list[Any]:
    """Return a private copy of a list, or of its first and last items."""
    length, room = len(value), max(left - 2 * CONTAINER_COST, 0) // LIST_ITEM_COST
    if length <= room:
        return [*value]
    head = [*islice(value, max(room - TAIL_ITEMS, 1))]
    tail = value[max(len(head), length - TAIL_ITEMS) :][:TAIL_ITEMS]
    cut = max(0, length - len(head) - len(tail))
    walk.left_out += cut
    return [*head, f"…[{cut:,} items cut]", *tail]


def _drop_rest(copied: dict[str, Any], last: str, walk: _Walk) -> dict[str, Any]:
    """Remove the items after the key `last`, which were not copied yet, and return the dict."""
    keys = [*copied]
    rest = keys[keys.index(last) + 1 :]
    if rest:
        for key in rest:
            del copied[key]
        walk.left_out += len(rest)
        copied["…"] = f"[{len(rest):,} keys cut]"
    return copied


def _are_numbers(items: list[Any]) -> bool:
    for item in items:
        kind = type(item)
        if kind is not int and kind is not float:
            return False
    return True


def cut_text(text: str, characters: int) -> str:
    """Return `text` with a note in place of its middle, about `characters` long."""
    head = max(1, characters * 3 // 4)
    tail = max(0, characters - head)
    return f"{text[:head]}…[{len(text) - head - tail:,} characters cut]…{text[len(text) - tail :] if tail else ''}"
