"""The source of a replay: units that are delivered whole and remembered by a token."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from opentelemetry.sdk.trace import ReadableSpan


class UnreadableError(Exception):
    """A unit can't be read: its file is damaged, or gone."""


class Total(NamedTuple):
    """The number of units to replay, and their bytes."""

    units: int
    bytes: int


class Unit(NamedTuple):
    """Spans that stay together.

    Args:
        token: A line of text that stands for exactly these spans.
        bytes: Their size, in the bytes that the source counts.
        read: Reads them in the order of sending; raises `UnreadableError`.
    """

    token: str
    bytes: int
    read: Callable[[], Sequence[ReadableSpan]]

    @classmethod
    def unreadable(cls, where: str, size: int, reason: str) -> Unit:
        """Return a unit whose spans can't be read: it is counted, and nothing of it is sent."""

        def read() -> Sequence[ReadableSpan]:
            raise UnreadableError(reason)

        return cls(f"unreadable {where}", size, read)
