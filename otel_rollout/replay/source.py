"""What is replayed: units that are delivered as a whole and remembered by a token."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from opentelemetry.sdk.trace import ReadableSpan

__all__ = ["Source", "Total", "Unit", "UnreadableError"]


class UnreadableError(Exception):
    """A unit can't be read: its file is damaged, or gone."""


class Total(NamedTuple):
    """How much there is to replay.

    Args:
        units: How many units.
        bytes: Their bytes.
    """

    units: int
    bytes: int


@dataclass(frozen=True, slots=True)
class Unit:
    """Spans that stay together.

    Args:
        token: One line of text that stands for exactly these spans.
        bytes: Their size, in what the source counts in.
        read: Reads them, in the order in which they are sent; raises `UnreadableError`.
    """

    token: str
    bytes: int
    read: Callable[[], Sequence[ReadableSpan]]

    @classmethod
    def unreadable(cls, where: str, size: int, reason: str) -> Unit:
        """Return what stands for spans that can't be read: it counts, and nothing of it is sent.

        Args:
            where: The file, and where in it.
            size: Its size, in what the source counts in.
            reason: Why.
        """

        def read() -> Sequence[ReadableSpan]:
            raise UnreadableError(reason)

        return cls(f"unreadable {where}", size, read)


class Source(Protocol):
    """A folder to replay.

    Attributes:
        unit_name: What one of its units is called.
        goes_alone: Whether a unit is a batch already: it is settled before the next is asked for.
    """

    unit_name: str
    goes_alone: bool

    def total(self) -> Total:
        """Return how much there is."""

    def units(self) -> Iterator[Unit]:
        """Yield the units, one after the other."""

    def settled(self, unit: Unit, *, is_delivered: bool) -> None:
        """Be told what became of a unit."""

    def notes(self) -> list[str]:
        """Return what was left alone and what was missing, in words."""
