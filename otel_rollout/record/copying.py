"""Copies any value as plain data that nothing of the program refers to, by the table of readers."""

from __future__ import annotations

from typing import Any, Final

from otel_rollout.guard.guard import is_of_program
from otel_rollout.guard.log_once import internal_error
from otel_rollout.record.bounded_pickle import FullError
from otel_rollout.record.fields import Part, class_name
from otel_rollout.record.readers import SCALARS, reader_of, with_plain_keys

MAX_DEPTH: Final = 40
MAX_OBJECT_DEPTH: Final = 6
"""At this depth, objects of unknown classes become their class's name."""
_MIN_MAPPED: Final = 8
"""A list of so many values of one class is read in one go."""


class Copier:
    """Copies a value within a budget of units, of about 25 ns each.

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
        if len(kinds) == 1 and len(items) >= _MIN_MAPPED and (reader := reader_of(kinds.pop())).is_leaf:
            self.take(reader.cost * len(items))
            try:
                plain = [*map(reader.read, items)]
            except Exception as error:  # one of them can't be read
                if is_of_program(error):
                    raise
            else:
                if {*map(type, plain)} <= SCALARS:
                    return plain
        return [item if type(item) in SCALARS else self.copy(item, depth + 1) for item in items]

    def read(self, value: Any, kind: type, depth: int = 0) -> Any:
        """Return what the reader of a value's class returns, or a note.

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
            if type(error) is FullError or is_of_program(error):
                raise
            self.left_out += 1
            internal_error(f"reading {class_name(kind)}")
            return f"<unreadable {class_name(kind)}>"
        if type(plain) is not Part:
            return plain
        self.left_out += plain.cut
        return plain.plain
