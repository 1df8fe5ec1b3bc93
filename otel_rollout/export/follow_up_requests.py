"""Requests about stored spans (links, rewards, feedback), which never change the verdict on the spans."""

from __future__ import annotations

import os
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from otel_rollout.counts import FollowUpStats
from otel_rollout.export import lane as lanes
from otel_rollout.export.lane import Entry, Lane, NotYet, RetryPolicy
from otel_rollout.export.outbox import Account, Outbox
from otel_rollout.export.outcome import Outcome, Verdict
from otel_rollout.guard.clock import monotonic

__all__ = ["FollowUpRequests", "Kind", "NotYet"]

MAX_BYTES: Final = 64 * 1024 * 1024
"""Some 120,000 entries: the rewards of a step of 8,192 rollouts, with their parts, come together."""
ITEM_BYTES: Final = 550
"""The size of an entry without its key and payload: 480 to 580 with a key of 35 characters, by tracemalloc."""

_CONSEQUENCES: Final = {
    Verdict.RETRY: "are not stored yet, trying again",
    Verdict.UNEXPLAINED: "are not stored yet, trying again",
    Verdict.CONFIGURATION_ERROR: "fail by an auth or configuration error: they wait within the bound until it is fixed",
    Verdict.REFUSED: "are refused, looking for the one at fault",
    Verdict.TOO_LARGE: "are refused, looking for the one at fault",
    Verdict.DELIVERED: "are not all kept",
}


@dataclass(frozen=True)
class Kind:
    """A kind of follow-up requests.

    Args:
        do: Makes one attempt at some entries of one group and returns the outcome of all, or that some must wait; never
            waits to retry.
        limit: The maximum number of entries in one attempt.
    """

    do: Callable[[Any, list[Any]], Outcome | NotYet]
    limit: int = 1


class FollowUpRequests(Outbox):
    """An outbox of requests, bounded in bytes, one lane for each kind and group.

    The exporter owns it and adds an entry once the spans are stored. Delivery flushes it, shuts it down and reads its
    counts. The thread starts with the first entry. A request that hangs delays only other follow-up requests.

    Args:
        name: The exporter's name, for logs.
        kinds: The kinds of work by the names that they are counted under.
        max_bytes: The maximum size; beyond it the oldest entries are dropped.
        policy: The delays between attempts.
    """

    def __init__(
        self,
        name: str,
        kinds: Mapping[str, Kind],
        *,
        max_bytes: int = MAX_BYTES,
        policy: RetryPolicy | None = None,
    ) -> None:
        super().__init__(name, f"otel-rollout-{name}-side", policy)
        self._kinds = dict(kinds)
        self._max_bytes = max_bytes
        self._reset()

    def _reset(self) -> None:
        super()._reset()
        self._pid = os.getpid()
        self._lanes: dict[tuple[str, Hashable], Lane] = {}
        self._bytes = 0
        self._accounts = {kind: Account() for kind in self._kinds}

    # --- from any thread

    def add(self, kind: str, group: Hashable, key: str, value: Any, *, order: int = 0, payload_bytes: int = 0) -> None:
        """Add one entry; never waits, never raises.

        Args:
            kind: The kind of work.
            group: Entries of one group may share an attempt.
            key: The entry's key in its group; it replaces a waiting entry with this key.
            value: The argument for `Kind.do`.
            order: If two entries have one key, the greater `order` counts; if equal, the later one.
            payload_bytes: The size of the value beyond a few numbers and short texts.
        """
        self._reset_if_forked()
        with self._lock:
            account = self._accounts[kind]
            if self._is_closed:
                account.recorded += 1
                account.lose("after_shutdown")
                return
            lane = self._lanes.get((kind, group)) or Lane(self._kinds[kind].limit, self._policy, (kind, group))
            replaced = lane.entries.get(key)
            if replaced is not None:
                if replaced.order > order:
                    return
                del lane.entries[key]
                self._settled(lane, [replaced])
            else:
                account.recorded += 1
            self._number += 1
            # New, or removed with the entry that is replaced.
            self._lanes[kind, group] = lane
            lane.add(Entry(key, value, len(key) + payload_bytes + ITEM_BYTES, self._number, order))
            self._bytes += len(key) + payload_bytes + ITEM_BYTES
            is_full = self._bytes > self._max_bytes
            while self._bytes > self._max_bytes and self._drop_oldest():
                pass
            self._wake()
        if is_full:
            self.warn("queue_full", f"{kind} are being lost (queue_full); otel_rollout.stats() counts them")
        self._start()

    def flush(self, timeout: float) -> bool:
        """Retry now, and wait until every entry added before is done or has an auth or configuration error.

        Returns:
            True if all are done and nothing was lost since the last flush.
        """
        self._reset_if_forked()
        return self._flush_entries(monotonic() + timeout)

    def shutdown(self, deadline: float) -> bool:
        """Retry until `deadline` (of `time.monotonic`) and count the rest as lost; return True if nothing was lost."""
        self._reset_if_forked()
        with self._lock:
            if not self._is_closed:
                self._close(deadline)
            # A second call waits no longer than the first.
            deadline = min(deadline, self._attempts_end or deadline)
            must_work_here = not self._thread.is_started and bool(self._lanes)
        if must_work_here:
            # No thread could be started: the interpreter is exiting.
            self._thread.run_here()
        self._await_end(deadline)
        with self._lock:
            self._abandon()
            return not any(account.total_lost for account in self._accounts.values())

    def stats(self) -> dict[str, FollowUpStats]:
        """Return the counts by kind."""
        self._reset_if_forked()
        with self._lock:
            return {
                kind: FollowUpStats(done=account.delivered, waiting=account.waiting, lost=dict(account.lost))
                for kind, account in self._accounts.items()
            }

    @property
    def is_running(self) -> bool:
        """True if an attempt may be running, also after a shutdown that it outlasted."""
        return self._thread.is_started and not self._has_ended

    def _reset_if_forked(self) -> None:
        """Start empty in a forked child: the entries are the parent's, and its threads may hold the lock."""
        if self._pid != os.getpid():
            self._reset()

    # --- with the lock held

    def _lanes_in_use(self) -> Iterable[Lane]:
        return self._lanes.values()

    def _note_settled(self, lane: Lane, entries: Sequence[Entry]) -> None:
        self._bytes -= sum(entry.size for entry in entries)
        if not lane.entries:
            self._lanes.pop(lane.name, None)

    def _drop_oldest(self) -> bool:
        """Drop the oldest entry that no attempt is running for; return False if there is none."""
        firsts = (
            (entry.number, lane, entry)
            for lane in self._lanes.values()
            if (entry := next((one for one in lane.entries.values() if not one.is_in_flight), None)) is not None
        )
        oldest = min(firsts, key=lambda first: first[0], default=None)
        if oldest is None:
            return False
        _, lane, entry = oldest
        del lane.entries[entry.key]
        self._accounts[lane.name[0]].lose("queue_full")
        self._settled(lane, [entry])
        return True

    # --- the thread

    def _attempt(self, lane: Lane, entries: Sequence[Entry]) -> Outcome | NotYet:
        kind, group = lane.name
        return self._kinds[kind].do(group, [entry.value for entry in entries])

    def _settle(self, lane: Lane, entries: Sequence[Entry], outcome: Outcome | NotYet) -> None:
        super()._settle(lane, entries, outcome)
        if isinstance(outcome, NotYet):
            latest = monotonic() - lanes.SECONDS_BEHIND
            if any(entry.waits_since is not None and entry.waits_since <= latest for entry in entries):
                self._note_trouble(lane, Outcome(Verdict.RETRY, outcome.reason))

    def _kind_of(self, lane: Lane) -> str:
        return str(lane.name[0])

    def _trouble(self, lane: Lane, outcome: Outcome) -> str:
        return f"{lane.name[0]} {_CONSEQUENCES[outcome.verdict]}; spans are not affected ({outcome.reason})"
