"""The walk over what the pickler hands over: objects, known types of libraries, and containers that hold themselves.

It reads fields as data and calls none of a value's methods: see `object_reading` and `library_types`.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import islice
from typing import Any, Final, cast

from otel_rollout.guard.guard import FAULTS, is_our_fault
from otel_rollout.guard.log_once import internal_error
from otel_rollout.record.library_types import key_of, reader_of
from otel_rollout.record.object_reading import Part, Reader, Substitute, class_name, is_one_of
from otel_rollout.record.stream import READS_OBJECTS, FullError, OtherError, write_stream
from otel_rollout.text.plain_json import with_text_keys

BYTES_OF_AN_ITEM: Final = 32
"""A budget of so many bytes allows one more item to be read in Python."""
ITEMS_OF_AN_OBJECT: Final = 16
"""The cost of an object, in items; a reader may have a `cost` of its own."""
ITEMS_OF_A_CONTAINER: Final = 8
MAX_COPIED: Final = 64
"""A container of more items that begins with plain data is left to the pickler, until that finds an object in it."""
MAX_FIELDS: Final = 256
MAX_DEPTH: Final = 40
MAX_OBJECT_DEPTH: Final = 6
"""At this depth, objects of unknown classes become their class's name: their fields may lead anywhere."""
CYCLE_DEPTH: Final = 4
"""Dicts and lists at this depth and below are checked for cycles; objects always are."""
MAX_TRIES: Final = 4
"""The number of attempts to read what another thread changes."""
_OF_A_CHANGE: Final[dict[type[Exception], str]] = {RuntimeError: "during iteration", TypeError: "doesn't apply to"}
"""The words of Python's error about a dict, a set or a deque, and about a descriptor of another class."""
SCALARS: Final = frozenset(map(id, (str, int, float, bool, type(None), bytes)))
"""The ids of the types of plain data that hold nothing: comparing classes may call a metaclass's `__eq__`."""
_CONTAINERS: Final = (dict, list, tuple, set, frozenset)


class ObjectWalk:
    """Reads objects within a budget in number.

    Args:
        items: The most items of containers; an object costs `ITEMS_OF_AN_OBJECT`.
        is_whole: Copy every container. Otherwise those that begin with a text or a number are left to the pickler.
        cuts: Leave out what is beyond the budget, in place of a `FullError`.
    """

    __slots__ = ("above", "arrays", "cuts", "is_whole", "left", "left_out")

    def __init__(self, items: int, *, is_whole: bool = False, cuts: bool = False) -> None:
        self.left = items
        self.cuts = cuts
        self.left_out = 0
        """The items that were left out."""
        self.is_whole = is_whole
        self.above: set[int] | None = None
        """The ids of the containers around the current value, except for dicts and lists above `CYCLE_DEPTH`."""
        self.arrays: dict[int, Any] = {}
        """The private arrays of numpy, by their ids."""

    def read(self, value: Any) -> Any:
        """Return plain data for a value that the pickler hands over, or a private array of numpy.

        Raises:
            FullError: The budget is used up.
            OtherError: The pickler may be given no objects.
        """
        if READS_OBJECTS:
            return self.read_object(value)
        if id(value) not in self.arrays:
            raise OtherError
        return value

    def read_object(self, value: Any) -> Any:
        """Return plain data for an object, or a private array of numpy.

        Raises:
            FullError: The budget is used up.
        """
        return self._read_object(value, type(value), 0)

    def without_objects(self, value: Any, depth: int = 0) -> Any:
        """Return a value with plain data in place of the objects in it and in its containers.

        Args:
            value: The value.
            depth: The number of containers around it.

        Raises:
            FullError: The budget is used up.
            OtherError: It contains itself, or is nested too deeply.
        """
        kind = type(value)
        if id(kind) in SCALARS or kind is bytearray:
            return value
        if not is_one_of(kind, _CONTAINERS):
            return self.read_object(value)
        if len(value) > MAX_COPIED and not self.is_whole and _begins_plain(value, kind):
            return value
        self._take(ITEMS_OF_A_CONTAINER + len(value))
        given = [*value.items()] if kind is dict else [*value]
        if depth >= CYCLE_DEPTH:
            self.above = self.above or set()
            if depth >= MAX_DEPTH or id(value) in self.above:
                raise OtherError
            self.above.add(id(value))
        values = [item for _, item in given] if kind is dict else given
        copied: Any = [item if id(type(item)) in SCALARS else self.without_objects(item, depth + 1) for item in values]
        if kind is dict:
            keys = [key if id(type(key)) in SCALARS else self._key(key) for key, _ in given]
            pairs = dict(zip(keys, copied, strict=True))
            # Two objects may have one text.
            copied = pairs if len(pairs) == len(keys) else with_text_keys(zip(keys, copied, strict=True))
        elif kind is tuple:
            copied = tuple(copied)
        if depth >= CYCLE_DEPTH and self.above:
            self.above.discard(id(value))
        return copied

    def copy(self, value: Any, depth: int = 0) -> Any:
        """Return plain data for any value, in private containers.

        Args:
            value: The value.
            depth: The number of containers around it.

        Raises:
            FullError: The budget is used up.
        """
        kind = type(value)
        if id(kind) in SCALARS:
            return value
        self._take(ITEMS_OF_A_CONTAINER)
        if depth >= CYCLE_DEPTH or not (kind is dict or kind is list):
            return self._copy_once(value, kind, depth)
        return self._copy_dict(value, depth) if kind is dict else self._copy_items(value, list, depth)

    def _copy_once(self, value: Any, kind: type, depth: int) -> Any:
        """Return plain data for a value that may contain itself: an object, or a container far down."""
        above = self.above
        if above is None:
            above = self.above = set()
        identity = id(value)
        if identity in above:
            return f"<cycle to {class_name(kind)}>"
        if depth >= MAX_DEPTH:
            self.left_out += 1
            return f"…<{class_name(kind)}>"
        above.add(identity)
        if kind is dict:
            copied: Any = self._copy_dict(value, depth)
        elif kind is list or kind is tuple or kind is set or kind is frozenset:
            copied = self._copy_items(value, kind, depth)
        else:
            copied = self._read_object(value, kind, depth)
        above.discard(identity)
        return copied

    def _copy_dict(self, value: dict[Any, Any], depth: int) -> Any:
        pairs = first_pairs(value, self._room())
        return self._copy_part(Part(pairs, len(value) - len(pairs), is_dict=True), depth)

    def _copy_part(self, part: Part, depth: int) -> Any:
        given = part.items
        self._take(len(given))
        if not part.is_dict:
            items = self._copy_each(given, depth)
            if cut := self._count_cut(part, items):
                items.append(f"…[{cut:,} items cut]")
            return items
        keys = self._copy_keys(given)
        items = self._copy_each([item for _, item in given[: len(keys)]], depth)
        keys = keys[: len(items)]
        copied = dict(zip(keys, items, strict=True))
        if len(copied) < len(keys):
            # Two objects have one text.
            copied = with_text_keys(zip(keys, items, strict=True))
        if cut := self._count_cut(part, items):
            copied["…"] = f"[{cut:,} keys cut]"
        return copied

    def _copy_each(self, given: list[Any], depth: int) -> list[Any]:
        """Return copies of items: of all, or of those within the budget."""
        items: list[Any] = []
        for item in given:
            if id(type(item)) in SCALARS:
                items.append(item)
            elif self.left < 0:
                break
            else:
                items.append(self.copy(item, depth + 1))
        return items

    def _count_cut(self, part: Part, items: list[Any]) -> int:
        cut = max(part.cut, 0) + len(part.items) - len(items)
        self.left_out += cut
        return cut

    def _copy_keys(self, pairs: list[tuple[Any, Any]]) -> list[Any]:
        keys: list[Any] = []
        for key, _ in pairs:
            if id(type(key)) in SCALARS:
                keys.append(key)
            elif self.left < 0:
                break
            else:
                keys.append(self._key(key))
        return keys

    def _key(self, key: Any) -> Any:
        self._take(ITEMS_OF_AN_OBJECT)
        try:
            return key_of(key)
        except FAULTS as error:
            return self._unreadable(key, error)

    def _copy_items(self, value: Any, kind: Any, depth: int) -> Any:
        if not self.is_whole and kind is not set:
            first = first_items(value, kind, 1)
            if not first or id(type(first[0])) in SCALARS:
                return value
        items = first_items(value, kind, self._room())
        return self._copy_part(Part(items, kind.__len__(value) - len(items)), depth)

    def _read_object(self, value: Any, kind: type, depth: int) -> Any:
        read = reader_of(kind)
        cost = getattr(read, "cost", ITEMS_OF_AN_OBJECT)
        self._take(cost)
        child = self.fields(read, value, depth)
        child_kind = type(child)
        if id(child_kind) in SCALARS:
            return child
        if child_kind is Substitute:
            return self.copy(child.value, depth + 1)
        if child_kind is dict:
            return self._copy_dict(child, depth)
        if child_kind is Part:
            if self.cuts and len(child.items) > (room := self._room()):
                child = Part(child.items[:room], child.cut + len(child.items) - room, is_dict=child.is_dict)
            return self._copy_part(child, depth)
        if child_kind is list:
            return self._copy_items(child, list, depth)
        self.arrays[id(child)] = child
        return child

    def fields(self, read: Reader, value: Any, depth: int) -> Any:
        """Return a reader's result: a leaf, a part of a container, a list or dict that may be live, or a stand-in."""
        for _ in range(MAX_TRIES):
            try:
                return read(value, self._room(), depth < MAX_OBJECT_DEPTH)
            except (RuntimeError, *FAULTS) as error:  # noqa: PERF203 - as a rule there is one round
                if not _is_changed(error):
                    return self._unreadable(value, error)
                read = reader_of(type(value))
        self.left_out += 1
        return f"<{class_name(type(value))} that changed while it was read>"

    def _unreadable(self, value: Any, error: Exception) -> str:
        """Return the description of a value that a reader wasn't written for; raise an error that isn't our fault."""
        if not is_our_fault(error):
            raise error
        self.left_out += 1
        internal_error(f"reading {class_name(type(value))}")
        return f"<{class_name(type(value))} that can't be read>"

    def _room(self) -> int:
        """Return the most items of a container: if the rest is cut, some of the budget is for what is in them."""
        return max(self.left // 2 if self.cuts else self.left, 0)

    def _take(self, items: int) -> None:
        self.left -= items
        if self.left < 0 and not self.cuts:
            raise FullError


def stream_of(value: Any, budget: int) -> tuple[bytes, ObjectWalk]:
    """Return the stream of a value, and the walk that read its objects.

    Args:
        value: Any value.
        budget: The most bytes.

    Raises:
        FullError: It doesn't fit.
    """
    is_whole = False
    for _ in range(MAX_TRIES):
        walk = ObjectWalk(budget // BYTES_OF_AN_ITEM, is_whole=is_whole)
        try:
            return write_stream(value if READS_OBJECTS else walk.without_objects(value), budget, walk), walk
        except OtherError:
            if is_whole:
                break
            is_whole = True
        except RecursionError as error:
            if not is_of_pickler(error):
                raise
            break
        except ValueError as error:
            if not is_of_pickler(error, "can't pickle cyclic objects"):
                raise
            break
        except RuntimeError as error:
            if not _is_changed(error):
                raise
    # It contains itself, is nested too deeply for the pickler, or changes all the time.
    walk = ObjectWalk(budget // BYTES_OF_AN_ITEM, is_whole=True, cuts=True)
    return write_stream(walk.copy(value), budget, walk), walk


def is_of_pickler(error: Exception, words: str = "") -> bool:
    """Return True if the pickler itself has raised an error, no frame below it."""
    trace = error.__traceback__
    below = None if trace is None else trace.tb_next
    is_of_dump = below is not None and below.tb_next is None and below.tb_frame.f_code is write_stream.__code__
    return is_of_dump and words in str(error.args[0] if error.args else "")


def _begins_plain(value: Any, kind: Any) -> bool:
    first = [part for pair in first_pairs(value, 1) for part in pair] if kind is dict else first_items(value, kind, 1)
    return all(id(type(part)) in SCALARS for part in first)


def _is_changed(error: Exception) -> bool:
    """Return True for Python's own error about a container, or an object's class, that another thread changes."""
    words = _OF_A_CHANGE.get(type(error))
    return words is not None and words in str(error.args[0] if error.args else "")


def first_fields(value: Any) -> dict[Any, Any]:
    """Return a dict, or the fields of an object; empty for other values."""
    kind = type(value)
    if kind is dict:
        return cast("dict[Any, Any]", value)
    if id(kind) in SCALARS or kind is list or kind is tuple:
        return {}
    walk = ObjectWalk(MAX_FIELDS)
    read = walk.fields(reader_of(kind), value, 0)
    if type(read) is Substitute:
        read = read.value
    if type(read) is Part:
        return dict(pair for pair in read.items if type(pair[0]) is str) if read.is_dict else {}
    return read if type(read) is dict else {}


def first_pairs(value: Any, room: int) -> list[tuple[Any, Any]]:
    """Return the first items of any dict, at most `room`."""
    return _first(lambda: [*islice(dict.items(value), max(room, 0))])


def first_items(value: Any, kind: Any, room: int) -> list[Any]:
    """Return the first items of a list, a tuple or a set, at most `room`.

    Args:
        value: The container.
        kind: Its type, whose own iteration is used.
        room: The most items.
    """
    return _first(lambda: [*islice(kind.__iter__(value), max(room, 0))])


def _first(read: Callable[[], list[Any]]) -> list[Any]:
    for _ in range(MAX_TRIES):
        try:
            return read()
        except RuntimeError as error:  # noqa: PERF203 - as a rule there is one round
            if not _is_changed(error):
                raise
    # It changes all the time.
    return []
