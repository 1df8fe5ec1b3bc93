"""The standard span that exporters get: what is set on it is what is sent."""

from __future__ import annotations

from opentelemetry.sdk.trace import ReadableSpan

__all__ = ["CountedSpan"]


class CountedSpan(ReadableSpan):
    """A ReadableSpan with explicit dropped counts; the SDK derives them from its bounded containers.

    Everything else is where the SDK keeps it. Exporters that mask assign to `_attributes`, `_name` or `_events`, and
    what they assign is what any exporter behind them reads.
    """

    dropped: tuple[int, int, int] = (0, 0, 0)
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
