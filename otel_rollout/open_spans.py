"""How many spans have started and not ended."""

from __future__ import annotations

import itertools

__all__ = ["OpenSpans"]


class OpenSpans:
    """Counts starts and ends from any thread; without a lock, which every span would wait for."""

    __slots__ = ("ended", "started")

    def __init__(self) -> None:
        self.reset()

    def reset(self) -> None:
        """Count from nothing: in a forked child, whose parent ends what it has started."""
        # An addition to an int is not atomic; this is.
        self.started = itertools.count().__next__
        self.ended = itertools.count().__next__

    def count(self) -> int:
        """Return how many are open."""
        # Asking counts one more on both sides. Ends first: a span may start and end in between.
        ended = self.ended()
        return max(0, self.started() - ended)
