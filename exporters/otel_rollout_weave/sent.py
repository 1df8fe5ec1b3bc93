"""What may be on the server already, so that nothing is stored twice."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable

from otel_rollout_weave.translate import NONE_BELOW, StatusCounts

__all__ = ["SentIds", "StatusesByTrace"]


class SentIds:
    """Ids that were in a request which may have been stored, bounded in number.

    The server keeps two rows of the same id until ClickHouse happens to merge them, and shows both.

    Args:
        limit: How many ids are remembered; the oldest are forgotten.
    """

    def __init__(self, limit: int = 65_536) -> None:
        self._limit = limit
        self._is_stored: OrderedDict[str, bool] = OrderedDict()

    def doubt(self, ids: Iterable[str]) -> None:
        """Note that a request with these ids had no answer that says whether they were stored."""
        self._note(ids, is_stored=False)

    def confirm(self, ids: Iterable[str]) -> None:
        """Note that the server has these ids."""
        self._note(ids, is_stored=True)

    def forget(self, ids: Iterable[str]) -> None:
        """Drop ids that will not be sent again."""
        for one in ids:
            self._is_stored.pop(one, None)

    def is_stored(self, one: str) -> bool:
        """Return whether the server is known to have this id."""
        return self._is_stored.get(one, False)

    def is_doubtful(self, one: str) -> bool:
        """Return whether the server may have this id."""
        return self._is_stored.get(one) is False

    def __len__(self) -> int:
        return len(self._is_stored)

    def _note(self, ids: Iterable[str], *, is_stored: bool) -> None:
        for one in ids:
            self._is_stored[one] = is_stored
            self._is_stored.move_to_end(one)
        while len(self._is_stored) > self._limit:
            self._is_stored.popitem(last=False)


class StatusesByTrace:
    """How the calls of unfinished trajectories ended, for the counts that Weave shows on the root.

    Args:
        limit: How many trajectories are remembered; the oldest are forgotten.
    """

    def __init__(self, limit: int = 10_000) -> None:
        self._limit = limit
        self._counts: OrderedDict[int, StatusCounts] = OrderedDict()

    def add(self, trace_id: int, *, failed: bool) -> None:
        """Count one finished call of a trajectory."""
        before = self._counts.get(trace_id, NONE_BELOW)
        self._counts[trace_id] = StatusCounts(before.success + (not failed), before.error + failed)
        if len(self._counts) > self._limit:
            self._counts.popitem(last=False)

    def get(self, trace_id: int) -> StatusCounts:
        """Return the counts of a trajectory so far."""
        return self._counts.get(trace_id, NONE_BELOW)

    def forget(self, trace_id: int) -> None:
        """Drop a trajectory whose root was delivered."""
        self._counts.pop(trace_id, None)
