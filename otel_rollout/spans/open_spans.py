"""How many spans have started and not ended."""

from __future__ import annotations

import itertools

__all__ = ["OpenSpans"]


class OpenSpans:
    """Counts starts and ends from any thread; without a lock, which every span would wait for."""

    __slots__ = ("_inherited", "ended", "started")

    def __init__(self) -> None:
        # An addition to an int is not atomic; this is.
        self.started = itertools.count().__next__
        self.ended = itertools.count().__next__
        self._inherited = 0

    def count(self) -> int:
        """Return how many are open."""
        return max(0, self._difference() - self._inherited)

    def after_fork(self) -> None:
        """Leave what the parent has started to the parent's count."""
        self._inherited = self._difference()

    def _difference(self) -> int:
        # Asking counts one more on both sides. Ends first: a span may start and end in between.
        ended = self.ended()
        return self.started() - ended
