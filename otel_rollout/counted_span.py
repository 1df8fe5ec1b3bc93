"""A span of which is known how much was dropped of it."""

from __future__ import annotations

from opentelemetry.sdk.trace import ReadableSpan

__all__ = ["CountedSpan"]


class CountedSpan(ReadableSpan):
    """A standard span with counts of its own, for the SDK counts in containers that this one has not."""

    dropped: tuple[int, int, int]
    """How many attributes, events and links were dropped."""

    @property
    def dropped_attributes(self) -> int:
        """How many attributes were dropped."""
        return self.dropped[0]

    @property
    def dropped_events(self) -> int:
        """How many events were dropped."""
        return self.dropped[1]

    @property
    def dropped_links(self) -> int:
        """How many links were dropped."""
        return self.dropped[2]
