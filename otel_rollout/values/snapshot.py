"""The snapshot: a private copy of any value, taken on the caller's thread.

Agents go on changing the message lists that they pass around, so a span shows a value as it was at the call. The copy
has new dicts and lists, and refers to the immutable values in them. No other thread can change it, so that orjson may
walk it later: orjson reads a list by raw pointers, and crashes if that list changes during its walk.

The walk reads values and never calls them: see `object_reading` and `library_types`. It stops at a budget in bytes.
"""

from __future__ import annotations

from itertools import islice
from typing import Any, Final

from otel_rollout.safety.signal_handlers import is_from_signal_handler
from otel_rollout.values.library_types import reader_of_library_type
from otel_rollout.values.object_reading import Standin, class_name, key_text, reader_of, register_reader

register_reader(reader_of_library_type)

__all__ = ["DEFAULT_BUDGET", "Snapshot", "cut_text", "snapshot"]

DEFAULT_BUDGET: Final = 2 * 1024 * 1024
"""What the parts of a value may cost together, in the units below: some milliseconds, whatever the value."""
CONTAINER_COST: Final = 384
DICT_ITEM_COST: Final = 32
LIST_ITEM_COST: Final = 12
OBJECT_COST: Final = 384
"""Beside the bytes of texts: a part costs more units than it holds bytes, and about as many as it takes nanoseconds."""
LONGEST_TEXT_SHARE: Final = 2
"""A text longer than this part of the budget loses its middle."""
MAX_DEPTH: Final = 40
MAX_OBJECT_DEPTH: Final = 6
"""Objects of unknown classes are named only, from this depth on: their fields lead anywhere."""
CYCLE_DEPTH: Final = 4
"""Dicts and lists below this depth are compared with those that they stand in, to find cycles; objects always are."""
TAIL_ITEMS: Final = 8
"""How many of the last items of a list stay if the budget is too small for all of them."""
MAX_TRIES: Final = 4
"""How often a container is read that another thread changes."""
SHORT_TEXT: Final = 1000
"""A longer text is looked at more closely."""
NUMBERS_IN_ROW: Final = 16
"""A list as long as this is looked at as a list of numbers first."""


class Snapshot:
    """A value as it was when the snapshot was taken.

    Args:
        value: A tree of private dicts and lists over immutable values that orjson knows, and private arrays of numpy.
        size: What it holds in memory, in bytes, about.
        left_out: How much of the value the budget left out: one for each item, key and character, at least.
    """

    __slots__ = ("left_out", "size", "value")

    def __init__(self, value: Any, size: int, left_out: int = 0) -> None:
        self.value = value
        self.size = size
        self.left_out = left_out


def snapshot(value: Any, budget: int = DEFAULT_BUDGET) -> Snapshot:
    """Return a copy of `value` that later changes don't reach; no code of a user's class runs.

    Args:
        value: Anything. Plain data, known types (pydantic, dataclasses, attrs, OmegaConf, numpy, torch, PIL, pandas,
            enums, dates, sets) and the public fields of other objects are copied by their content. If a class has a
            method `__rollout_payload__`, its result is copied in place of the object.
        budget: What the parts may cost together; what is beyond is left out, and said in its place.

    Raises:
        BaseException: What a signal handler raised meanwhile, or a `__rollout_payload__` that is no Exception.
    """
    walk = _Walk(budget)
    try:
        copied, left = _copy(value, type(value), budget, 0, walk)
    except RecursionError:
        # The caller stands near the end of its stack.
        return Snapshot(f"<{class_name(type(value))} that could not be read: the stack is full>", 0, 1)
    return Snapshot(copied, budget - left, walk.left_out)


class _Walk:
    """What one walk over a value knows beside what is left of its budget.

    Args:
        budget: What the parts may cost together.
    """

    __slots__ = ("above", "left_out", "longest_text")

    def __init__(self, budget: int) -> None:
        self.longest_text = budget // LONGEST_TEXT_SHARE
        self.left_out = 0
        self.above: set[int] | None = None
        """The ids of the containers that the walk is in, but for dicts and lists above `CYCLE_DEPTH`."""


# Each function returns what it copied and what is left of the budget. Below zero, no further part is looked at.


def _copy(value: Any, kind: type, left: int, depth: int, walk: _Walk) -> tuple[Any, int]:
    """Return a private copy of a value of any type.

    Args:
        value: The value.
        kind: Its type.
        left: What is left of the budget.
        depth: How many containers it stands in.
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
    """Return a private copy of what may stand in itself: an object, or a container far down."""
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
                    # A copy may compare keys, by code of their class.
                    break
            else:
                copied = value.copy()
        if copied is None:
            copied = _shallow_dict(value, left, walk)
    except RuntimeError as error:
        if is_from_signal_handler(error):
            raise
        # Another thread added or removed a key meanwhile.
        copied = _shallow_dict(value, left, walk)
    left -= CONTAINER_COST + DICT_ITEM_COST * len(copied)
    for key, item in copied.items():
        kind = type(item)
        if kind is str and len(item) <= SHORT_TEXT:
            left -= len(item)
        elif kind is not int and kind is not float and kind is not bool and item is not None:
            copied[key], left = _copy(item, kind, left, depth + 1, walk)
        if left < 0:
            return _without_rest(copied, key, walk), left
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
    """Return a leaf, or a private dict or list, for a value that is of none of JSON's own types."""
    for attempt in range(MAX_TRIES):
        try:
            child = reader_of(kind)(value, max(left, 0) // LIST_ITEM_COST, depth < MAX_OBJECT_DEPTH)
        except Exception as error:
            if is_from_signal_handler(error):
                raise
            if isinstance(error, RuntimeError) and attempt < MAX_TRIES - 1:
                # Another thread changed a set or a dict of fields meanwhile.
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
        # An array of numpy is the only leaf of any size.
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
    """Return a private copy of any dict, or of its first items, with texts as keys."""
    for _ in range(MAX_TRIES):
        try:
            pairs = [*islice(value.items(), max(left, 0) // DICT_ITEM_COST)]
        except RuntimeError as error:
            if is_from_signal_handler(error):
                raise
            # Another thread added or removed a key meanwhile.
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


def _without_rest(copied: dict[str, Any], last: str, walk: _Walk) -> dict[str, Any]:
    """Return a private dict without what stands behind a key: it was not looked at."""
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
    """Return `text` with its middle replaced by a note of what was cut, at most about `characters` long."""
    head = max(1, characters * 3 // 4)
    tail = max(0, characters - head)
    return f"{text[:head]}…[{len(text) - head - tail:,} characters cut]…{text[len(text) - tail :] if tail else ''}"
