"""What came of a replay."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

__all__ = ["ReplayReport"]


@dataclass
class ReplayReport:
    """Counts; a unit is a trajectory, or a batch of a spool.

    Args:
        delivered: Units that the backend has, whole.
        skipped: Units that were delivered by an earlier replay.
        undelivered: Units that the backend does not have, or not whole.
        untried: Units that were not sent any more.
        spans: Spans that the backend has taken.
        shrunk: Spans of these whose payload was cut, because the backend refused them whole.
        lost: Spans that it has not taken, by reason.
        unreadable: Units that could not be read.
        reason: What the backend, or the reader, said last of what did not work.
        seconds: How long it took.
    """

    delivered: int = 0
    skipped: int = 0
    undelivered: int = 0
    untried: int = 0
    spans: int = 0
    shrunk: int = 0
    lost: Counter[str] = field(default_factory=Counter)
    unreadable: int = 0
    reason: str = ""
    seconds: float = 0.0

    @property
    def is_whole(self) -> bool:
        """Whether the backend has everything that was to be replayed."""
        return not (self.undelivered or self.untried or self.unreadable)

    @property
    def settled(self) -> int:
        """How many units something has come of."""
        return self.delivered + self.skipped + self.undelivered + self.unreadable
