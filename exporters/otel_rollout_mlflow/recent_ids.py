"""The ids of what was done lately, so that it isn't done again."""

from __future__ import annotations

from typing import Final

__all__ = ["RecentIds"]

CAPACITY: Final = 10_000


class RecentIds:
    """A set of ids that forgets the oldest.

    Args:
        capacity: How many it remembers.
    """

    def __init__(self, capacity: int = CAPACITY) -> None:
        self._capacity = capacity
        self._ids: dict[str, None] = {}

    def __contains__(self, key: str) -> bool:
        return key in self._ids

    def add(self, key: str) -> bool:
        """Remember an id, and return whether it is new."""
        is_new = key not in self._ids
        self._ids[key] = None
        if len(self._ids) > self._capacity:
            del self._ids[next(iter(self._ids))]
        return is_new

    def clear(self) -> None:
        """Forget all of them."""
        self._ids.clear()
