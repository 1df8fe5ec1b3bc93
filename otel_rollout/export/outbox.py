"""An outbox: entries that wait in lanes, one thread that makes the attempts, and one account.

`SpanOutbox` in `deliver` holds the spans of an exporter; `FollowUpRequests` the requests about stored spans. Whatever a
signal handler raises or calls leaves an outbox usable: its lock is reentrant, and no thread waits while it holds it.
"""

from __future__ import annotations

import abc
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from opentelemetry import context as context_api

from otel_rollout.export.lane import Entry, Lane, NotYet, RetryPolicy, Settled
from otel_rollout.export.outcome import Outcome, Verdict
from otel_rollout.guard.background_thread import BackgroundThread
from otel_rollout.guard.clock import monotonic
from otel_rollout.guard.safe_logger import SafeLogger
from otel_rollout.guard.signal_safe_lock import SignalSafeLock
from otel_rollout.guard.wake import Wake
from otel_rollout.record.context import UNTRACED

_logger = SafeLogger()

MIN_SECONDS_LEFT: Final = 0.05
"""With less than this left to the deadline of a shutdown, nothing that has failed is tried again."""
SECONDS_OF_A_WAIT: Final = 1.0
"""A wait on a thread of the program is in parts: a signal that comes just before one begins doesn't interrupt it."""
SECONDS_BETWEEN_WARNINGS: Final = 60.0
SECONDS_AFTER_AN_ERROR: Final = 1.0
"""The pause after an internal error, which may come again immediately."""


class Account:
    """The counts of the entries of one kind; each counts one thing, and `waiting` is the rest.

    Only the holder of the outbox's lock changes it.
    """

    def __init__(self) -> None:
        self.recorded = 0
        self.delivered = 0
        # A dict: a Counter calls Python for a missing key, which may raise at the end of the stack.
        self.lost: dict[str, int] = {}
        """Entries by reason; `unknown`: their attempt had no answer when the time was up."""

    @property
    def waiting(self) -> int:
        """The number of entries that are neither delivered nor lost."""
        return self.recorded - self.delivered - self.total_lost

    @property
    def total_lost(self) -> int:
        """The number of lost entries."""
        return sum(self.lost.values())

    def lose(self, reason: str, count: int = 1) -> None:
        """Count entries as lost, or fewer if `count` is negative."""
        self.lost[reason] = self.lost.get(reason, 0) + count
        if not self.lost[reason]:
            del self.lost[reason]


@dataclass(eq=False)
class _Flush:
    """A flush that waits: the newest entry that it waits for, and how many are left."""

    number: int = 0
    left: int = 0


class Outbox(abc.ABC):
    """Lanes of entries with a thread; the thread makes one attempt at a time, and any thread asks for a flush."""

    def __init__(self, name: str, thread_name: str, policy: RetryPolicy | None = None) -> None:
        self.name = name
        self._thread_name = thread_name
        self._policy = policy or RetryPolicy()

    def _reset(self) -> None:
        self._lock = SignalSafeLock()
        self._accounts: dict[str, Account]
        """The accounts by kind of work, which are set by each kind of outbox."""
        self._work = Wake()
        self._waiters: list[Wake] = []
        self._flushes: list[_Flush] = []
        self._warned: dict[str, float] = {}
        """The times of the last warnings, by kind."""
        self._configuration_errors: dict[str, str] = {}
        self._thread = BackgroundThread(self._thread_name, self._run)
        self._is_idle = self._is_closed = self._has_ended = False
        self._is_abandoned = False
        """If True, time was up: what an attempt that still runs comes to is no longer waited for."""
        self._attempts_end: float | None = None
        """The time after which no attempt begins; None before the shutdown."""
        self._number = 0
        self._lost_at_flush = 0
        self.last_error = ""
        """The reason of the last failed attempt."""

    # --- what the kinds of outboxes differ in

    @abc.abstractmethod
    def _lanes_in_use(self) -> Iterable[Lane]:
        """Return the lanes that have entries; called with the lock held."""

    @abc.abstractmethod
    def _attempt(self, lane: Lane, entries: Sequence[Entry]) -> Outcome | NotYet:
        """Make one attempt; called without the lock."""

    @abc.abstractmethod
    def _trouble(self, lane: Lane, outcome: Outcome) -> str:
        """Return the warning of an attempt that did not deliver everything; called without the lock."""

    def _kind_of(self, lane: Lane) -> str:
        """Return the name of a lane's kind of work."""
        return ""

    def _left(self) -> int:
        """Return the number of entries that a flush waits for; with the lock held."""
        return sum(account.waiting for account in self._accounts.values())

    def _load(self) -> None:
        """Move entries into lanes, on the thread, without the lock."""
        return

    def _seconds_to_load(self, now: float) -> float | None:
        """Return the seconds until `_load` has something to do, with the lock held; None if that isn't known."""
        return None

    def _note_settled(self, lane: Lane, entries: Sequence[Entry]) -> None:
        """Called with entries that are settled, with the lock held."""
        return

    def _before_waiting(self) -> float | None:
        """Called before the thread waits, without the lock; return the seconds that it may wait at most."""
        return None

    def _finish(self) -> None:
        """Called by the thread at its end."""
        return

    # --- from any thread

    def _wake(self) -> None:
        self._is_idle = False
        self._work.set()

    def _notify(self) -> None:
        for waiter in self._waiters:
            waiter.set()

    def await_progress(self, is_done: Callable[[], bool], deadline: float) -> bool:
        """Wait until `is_done`, or until `deadline`; called without the lock, which `is_done` is called with."""
        waiter = Wake()
        try:
            with self._lock:
                self._waiters.append(waiter)
            while True:
                with self._lock:
                    if is_done():
                        return True
                left = deadline - monotonic()
                if left <= 0:
                    return False
                waiter.wait(min(left, SECONDS_OF_A_WAIT))
        finally:
            with self._lock:
                self._waiters = [other for other in self._waiters if other is not waiter]

    def warn(self, kind: str, text: str) -> None:
        """Warn, unless there was a warning of this kind within the last minute."""
        now = monotonic()
        last = self._warned.get(kind)
        if last is None or now - last > SECONDS_BETWEEN_WARNINGS:
            self._warned[kind] = now
            _logger.warning("%s: %s", self.name, text)

    def retry_now(self) -> None:
        """Retry what waits now, unless the backend asked to wait."""
        with self._lock:
            for lane in self._lanes_in_use():
                lane.retry_now()
            self._wake()

    def _flush_entries(self, deadline: float) -> bool:
        """Retry now, and wait until each entry that was put before is settled, or the backend refuses us.

        Returns:
            True if none is left, and none was lost since the last flush.
        """
        flush = _Flush()
        try:
            with self._lock:
                lost_before = self._lost_at_flush
                flush.number, flush.left = self._number, self._left()
                self._flushes.append(flush)
                self.retry_now()
            self.await_progress(lambda: flush.left <= 0 or self._is_stuck(flush.number), deadline)
            with self._lock:
                if flush.left > 0:
                    return False
                self._lost_at_flush = sum(account.total_lost for account in self._accounts.values())
                # Not what another flush has noted meanwhile: a loss is news to each that waited for it.
                return self._lost_at_flush == lost_before
        finally:
            with self._lock:
                self._flushes = [other for other in self._flushes if other is not flush]

    def drain(self, patience: float) -> bool:
        """Flush as long as something is delivered within `patience` seconds each time; True if nothing is left."""
        delivered = -1
        while self._left() and (now := sum(each.delivered for each in self._accounts.values())) > delivered:
            delivered = now
            self._flush_entries(monotonic() + patience)
        return not self._left()

    def _is_stuck(self, number: int) -> bool:
        """Return True if no entry up to `number` can be done until someone changes a setting; with the lock held."""
        lanes = [
            lane for lane in self._lanes_in_use() if any(entry.number <= number for entry in lane.entries.values())
        ]
        return bool(lanes) and all(lane.is_stuck for lane in lanes)

    def _close(self, attempts_end: float) -> None:
        """Begin the end: what waits is tried until `attempts_end`; with the lock held."""
        # In this order: a signal handler may raise in between.
        self._attempts_end = attempts_end
        self._is_closed = True
        self.retry_now()

    def _await_end(self, deadline: float) -> None:
        """Wait for the thread's end; not by `Thread.join`, which takes it for ended once a signal handler has raised.

        Source: https://github.com/python/cpython/issues/90882
        """
        if self._thread.is_started and not self._thread.is_current:
            self.await_progress(lambda: self._has_ended, deadline)

    def _abandon(self) -> None:
        """Count what is left as lost, or as unknown if it is in an attempt; with the lock held."""
        self._is_abandoned = True
        for lane in list(self._lanes_in_use()):
            reason = "configuration_error" if lane.is_stuck else "shutdown"
            for entry in list(lane.entries.values()):
                del lane.entries[entry.key]
                self._accounts[self._kind_of(lane)].lose(reason)
                self._settled(lane, [entry])
        self._notify()

    def _settled(self, lane: Lane, entries: Sequence[Entry]) -> None:
        """Count entries down for the flushes that wait, once they are counted."""
        for flush in self._flushes:
            flush.left -= sum(entry.number <= flush.number for entry in entries)
        self._note_settled(lane, entries)

    # --- the thread

    def _run(self) -> None:
        token = context_api.attach(UNTRACED)
        try:
            while True:
                try:
                    if not self._deliver():
                        break
                except Exception:
                    _logger.exception("%s: internal error while delivering", self.name)
                    self._work.wait(SECONDS_AFTER_AN_ERROR)
        finally:
            try:
                self._finish()
            finally:
                context_api.detach(token)
                with self._lock:
                    self._has_ended = True
                    self._notify()

    def _deliver(self) -> bool:
        """Make one attempt; False if no further one is to be made."""
        taken = self._take()
        if taken is None:
            return False
        lane, entries = taken
        try:
            outcome = self._attempt(lane, entries)
        except BaseException as error:  # noqa: BLE001, RUF100 - SystemExit or CancelledError must not end delivery
            outcome = Outcome(Verdict.UNEXPLAINED, f"{type(error).__name__}: {error}")
        if isinstance(outcome, Outcome) and (outcome.verdict is not Verdict.DELIVERED or outcome.rejected):
            self._note_trouble(lane, outcome)
        self._settle(lane, entries, outcome)
        return True

    def _note_trouble(self, lane: Lane, outcome: Outcome) -> None:
        kind, verdict = self._kind_of(lane), outcome.verdict
        self.last_error = f"{kind}: " * bool(kind) + f"{verdict.value}: {outcome.reason}"
        if verdict is Verdict.CONFIGURATION_ERROR:
            # It lasts until someone changes a setting: a repeated line helps nobody.
            if self._configuration_errors.get(kind) == outcome.reason:
                return
            self._configuration_errors[kind] = outcome.reason
        self.warn(f"{kind} {verdict.value}", self._trouble(lane, outcome))

    def _take(self) -> tuple[Lane, list[Entry]] | None:
        """Wait for entries that are due; None if no further attempt is to be made."""
        while True:
            most = self._before_waiting()
            with self._lock:
                now = monotonic()
                left = None if self._attempts_end is None else self._attempts_end - now
                if self._is_abandoned or (left is not None and left <= 0):
                    return None
                to_load = self._seconds_to_load(now)
                # An auth or configuration error since the shutdown began: nobody fixes it in time.
                lanes = [lane for lane in self._lanes_in_use() if not (self._is_closed and lane.is_stuck)]
                lane = min(lanes, key=lambda each: each.due, default=None)
                if left is not None and left < MIN_SECONDS_LEFT and lane is not None and lane.has_failed:
                    return None
                if lane is not None and self._attempts_end is not None:
                    lane.shorten(now, self._attempts_end)
                if to_load is None or to_load > 0:
                    if lane is not None and lane.due <= now:
                        return lane, lane.begin_attempt()
                    if self._is_closed and lane is None and to_load is None:
                        return None
                    waits = [
                        each for each in (most, to_load, None if lane is None else lane.due - now) if each is not None
                    ]
                    if self._attempts_end is not None:
                        waits.append(self._attempts_end - now)
                    self._is_idle = True
            if to_load is not None and to_load <= 0:
                self._load()
                continue
            self._work.wait(min(waits, default=None))
            self._is_idle = False

    def _settle(self, lane: Lane, entries: Sequence[Entry], outcome: Outcome | NotYet) -> None:
        with self._lock:
            if self._is_abandoned:
                self._count_late(lane, entries, outcome)
                return
            settled = lane.end_attempt(entries, outcome, monotonic())
            self._count(lane, settled, outcome)
            self._settled(lane, [*settled.done, *(entry for entry, _ in settled.lost)])
            self._notify()

    def _count(self, lane: Lane, settled: Settled, outcome: Outcome | NotYet) -> None:
        account = self._accounts[self._kind_of(lane)]
        rejected = 0 if isinstance(outcome, NotYet) else min(outcome.rejected, len(settled.done))
        account.delivered += len(settled.done) - rejected
        account.lose("rejected", rejected)
        for reason, count in Counter(reason for _, reason in settled.lost).items():
            account.lose(reason, count)

    def _count_late(self, lane: Lane, entries: Sequence[Entry], outcome: Outcome | NotYet) -> None:
        """Called with the outcome of an attempt that outlasted the end; with the lock held."""
        return
