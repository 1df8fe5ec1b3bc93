"""A dict that is bounded in number, for values by id."""

from __future__ import annotations

from collections import OrderedDict
from typing import TypeVar

_Key = TypeVar("_Key")
_Value = TypeVar("_Value")


class RecentDict(OrderedDict[_Key, _Value]):
    """A dict that drops the key set longest ago once it holds more than `capacity` keys.

    Args:
        capacity: The most keys that it holds.
    """

    def __init__(self, capacity: int) -> None:
        super().__init__()
        self._capacity = capacity

    def __setitem__(self, key: _Key, value: _Value) -> None:
        super().__setitem__(key, value)
        self.move_to_end(key)
        if len(self) > self._capacity:
            self.popitem(last=False)
