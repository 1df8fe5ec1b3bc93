"""Requests about stored spans (links, rewards, feedback), which never change the verdict on the spans."""

from __future__ import annotations

import os
import threading
from collections import Counter
from collections.abc import Callable, Collection, Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from opentelemetry import context as context_api

from otel_rollout.counts import FollowUpStats
from otel_rollout.export.backoff import RetryPolicy
from otel_rollout.export.outcome import Outcome, Verdict
from otel_rollout.export.request_lane import Entry, Lane
from otel_rollout.export.trouble_log import TroubleLog
from otel_rollout.guard.background_thread import BackgroundThread
from otel_rollout.guard.clock import monotonic
from otel_rollout.guard.log_once import internal_error
from otel_rollout.guard.signal_safe_lock import SignalSafeCondition, SignalSafeLock, wait_for
from otel_rollout.record.context import UNTRACED

__all__ = ["FollowUpRequests", "Kind", "NotYet"]

MAX_BYTES: Final = 64 * 1024 * 1024
"""Some 120,000 entries: the rewards of a step of 8,192 rollouts, with their parts, come together."""
ITEM_BYTES: Final = 550
"""The size of an entry without its key and payload: 480 to 580 with a key of 35 characters, by tracemalloc."""
MIN_SECONDS_LEFT: Final = 0.05
"""No attempt begins with less time than this to the deadline of a shutdown."""
SECONDS_BEHIND: Final = 120.0
"""A span that isn't stored this long, though a later one is, is not waited for any longer."""
ATTEMPTS_ALONE: Final = 5
"""An entry that fails so often by itself and without a reason, while others of its kind are done, is dropped."""

_CONSEQUENCES: Final = {
    Verdict.RETRY: "are not stored yet, trying again",
    Verdict.UNEXPLAINED: "are not stored yet, trying again",
    Verdict.CONFIGURATION_ERROR: "fail by an auth or configuration error: they wait within the bound until it is fixed",
    Verdict.REFUSED: "are refused, looking for the one at fault",
    Verdict.TOO_LARGE: "are refused, looking for the one at fault",
}


@dataclass(frozen=True)
class NotYet:
    """The result of an attempt whose spans are stored only in part: backends may store them after their answer.

    Args:
        positions: The positions in the attempt of the entries that wait; the others are done.
        reason: The backend's answer, in one line for the log.
    """

    positions: Collection[int]
    reason: str


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


class FollowUpRequests:
    """A queue of requests, bounded in bytes, with a thread and retries of its own.

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
        self._name = name
        self._kinds = dict(kinds)
        self._max_bytes = max_bytes
        self._policy = policy or RetryPolicy()
        self._reset()

    def _reset(self) -> None:
        self._pid = os.getpid()
        self._lock = SignalSafeLock()
        self._work = SignalSafeCondition(self._lock)
        self._progress = SignalSafeCondition(self._lock)
        self._lanes: dict[tuple[str, Hashable], Lane] = {}
        self._thread = BackgroundThread(f"otel-rollout-{self._name}-side", self._run)
        self._has_ended = False
        self._deadline: float | None = None
        self._is_abandoned = False
        self._bytes = 0
        self._added = 0
        self._done: Counter[str] = Counter()
        self._lost: dict[str, Counter[str]] = {kind: Counter() for kind in self._kinds}
        self._lost_at_flush = 0
        self.last_error = ""
        """The reason of the last failed attempt."""
        self._last_configuration_errors: dict[str, str] = {}
        self._log = TroubleLog(self._name)

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
            if self._deadline is not None:
                self._lost[kind]["after_shutdown"] += 1
                return
            lane = self._lanes.get((kind, group)) or Lane(kind, group, self._kinds[kind].limit)
            replaced = lane.entries.get(key)
            if replaced is not None:
                if replaced.order > order:
                    return
                self._remove(lane, key)
            self._added += 1
            entry = Entry(value, order, self._added, len(key) + payload_bytes + ITEM_BYTES)
            lane.entries[key] = entry
            # New, or removed with the entry that is replaced.
            self._lanes[kind, group] = lane
            self._bytes += entry.size
            is_full = self._bytes > self._max_bytes
            while self._bytes > self._max_bytes and self._drop_oldest():
                pass
            self._work.notify()
        if is_full:
            self._log.warn("queue_full", f"{kind} are being lost (queue_full); otel_rollout.stats() counts them")
        self._start()

    def retry_now(self) -> None:
        """Retry waiting entries now, unless the backend asked to wait."""
        self._reset_if_forked()
        with self._lock:
            for lane in self._lanes.values():
                lane.retry_now()
            self._work.notify()

    def flush(self, timeout: float) -> bool:
        """Retry now, and wait until every entry added before is done or has an auth or configuration error.

        Returns:
            True if all are done and nothing was lost since the last flush.
        """
        self._reset_if_forked()
        with self._lock:
            number, lost_before = self._added, self._lost_at_flush
            self.retry_now()
            wait_for(
                self._progress, lambda: all(entry.is_configuration_error for entry in self._waiting(number)), timeout
            )
            if self._waiting(number):
                return False
            self._lost_at_flush = self._total_lost()
            return self._lost_at_flush == lost_before

    def shutdown(self, deadline: float) -> bool:
        """Retry until `deadline` (of `time.monotonic`) and count the rest as lost; return True if nothing was lost."""
        self._reset_if_forked()
        with self._lock:
            if self._deadline is None:
                self._deadline = deadline
                self.retry_now()
            # A second call waits no longer than the first.
            deadline = min(deadline, self._deadline)
            must_work_here = not self._thread.is_started and bool(self._lanes)
        if must_work_here:
            # No thread could be started: the interpreter is exiting.
            self._thread.run_here()
        with self._lock:
            # Not by `Thread.join`, which counts a thread as ended once a signal handler has raised in it.
            wait_for(self._progress, lambda: not self.is_running, deadline - monotonic())
            self._is_abandoned = True
            for lane in list(self._lanes.values()):
                for key, entry in list(lane.entries.items()):
                    self._lose(lane, key, "configuration_error" if entry.is_configuration_error else "shutdown")
            self._progress.notify_all()
            return not self._total_lost()

    def stats(self) -> dict[str, FollowUpStats]:
        """Return the counts by kind."""
        self._reset_if_forked()
        with self._lock:
            waiting = Counter(dict.fromkeys(self._kinds, 0))
            for lane in self._lanes.values():
                waiting[lane.kind] += len(lane.entries)
            return {
                kind: FollowUpStats(done=self._done[kind], waiting=waiting[kind], lost=dict(self._lost[kind]))
                for kind in self._kinds
            }

    @property
    def is_running(self) -> bool:
        """True if an attempt may be running, also after a shutdown that it outlasted."""
        return self._thread.is_started and not self._has_ended

    # --- with the lock held

    def _waiting(self, number: int) -> list[Entry]:
        return [entry for lane in self._lanes.values() for entry in lane.entries.values() if entry.number <= number]

    def _total_lost(self) -> int:
        return sum(lost.total() for lost in self._lost.values())

    def _remove(self, lane: Lane, key: str) -> None:
        self._bytes -= lane.entries.pop(key).size
        if not lane.entries:
            self._lanes.pop((lane.kind, lane.group), None)

    def _lose(self, lane: Lane, key: str, reason: str) -> None:
        self._remove(lane, key)
        self._lost[lane.kind][reason] += 1

    def _drop_oldest(self) -> bool:
        """Drop the oldest entry that no attempt is running for; return False if there is none."""
        oldest: tuple[int, Lane, str] | None = None
        for lane in self._lanes.values():
            key = next((key for key, entry in lane.entries.items() if not entry.is_in_flight), None)
            if key is not None and (oldest is None or lane.entries[key].number < oldest[0]):
                oldest = lane.entries[key].number, lane, key
        if oldest is None:
            return False
        _, lane, key = oldest
        self._lose(lane, key, "queue_full")
        return True

    # --- the thread

    def _reset_if_forked(self) -> None:
        """Start empty in a forked child: the entries are the parent's, and its threads may hold the lock."""
        if self._pid != os.getpid():
            self._reset()

    def _start(self) -> None:
        if self._thread.is_started:
            return
        with self._lock:
            if self._deadline is None:
                self._thread.start()

    def _run(self) -> None:
        token = context_api.attach(UNTRACED)
        try:
            while (taken := self._take()) is not None:
                lane, entries = taken
                outcome = self._attempt(lane, list(entries.values()))
                if isinstance(outcome, NotYet):
                    self._settle_partly(lane, entries, outcome)
                    continue
                if outcome.verdict is not Verdict.DELIVERED:
                    self._note_trouble(lane.kind, outcome)
                self._settle(lane, entries, outcome)
        except Exception:
            internal_error("making follow-up requests")
        finally:
            context_api.detach(token)
            with self._lock:
                self._has_ended = True
                self._progress.notify_all()

    def _take(self) -> tuple[Lane, dict[str, Entry]] | None:
        """Wait for due entries; return None if no further attempt is to be made."""
        with self._lock:
            while True:
                now = monotonic()
                lanes = [lane for lane in self._lanes.values() if not self._is_given_up(lane)]
                if self._is_abandoned or (
                    self._deadline is not None and (not lanes or self._deadline - now < MIN_SECONDS_LEFT)
                ):
                    return None
                lane = min(lanes, key=lambda each: each.due, default=None)
                if lane is not None and lane.due <= now:
                    break
                self._work.wait(None if lane is None else min(lane.due - now, threading.TIMEOUT_MAX))
            return lane, lane.begin_attempt()

    def _is_given_up(self, lane: Lane) -> bool:
        # An auth or configuration error since the shutdown began: nobody fixes it in time.
        return self._deadline is not None and lane.has_configuration_error

    def _attempt(self, lane: Lane, entries: Sequence[Entry]) -> Outcome | NotYet:
        try:
            return self._kinds[lane.kind].do(lane.group, [entry.value for entry in entries])
        except BaseException as error:
            return Outcome(Verdict.UNEXPLAINED, f"{type(error).__name__}: {error}")

    def _settle(self, lane: Lane, entries: dict[str, Entry], outcome: Outcome) -> None:
        with self._lock:
            settled = lane.end_attempt(entries)
            if self._is_abandoned:
                return
            if outcome.verdict is Verdict.DELIVERED:
                self._note_done(lane, settled)
            else:
                self._note_failed(lane, settled, outcome, attempted=len(entries))
            self._progress.notify_all()

    def _settle_partly(self, lane: Lane, entries: dict[str, Entry], result: NotYet) -> None:
        """Keep the entries that wait after the others; one whose span was dropped is lost once later ones are done."""
        now = monotonic()
        with self._lock:
            settled = lane.end_attempt(entries)
            if self._is_abandoned:
                return
            waiting = {key for position, key in enumerate(entries) if position in result.positions}
            done = {key: entry for key, entry in settled.items() if key not in waiting}
            if done:
                self._note_done(lane, done)
            is_slow = False
            for key, entry in settled.items():
                if key in done:
                    continue
                entry.waits_since = entry.waits_since or now
                is_late = now - entry.waits_since >= SECONDS_BEHIND
                is_slow = is_slow or is_late
                if is_late and lane.newest_done > entry.number:
                    self._lose(lane, key, "span_missing")
                else:
                    # Move it after later ones: a full attempt of spans that never come would block them.
                    lane.entries[key] = lane.entries.pop(key)
            lane.wait_for_spans(now, self._deadline)
            self._progress.notify_all()
        if is_slow:
            self._note_trouble(lane.kind, Outcome(Verdict.RETRY, result.reason))

    def _note_done(self, lane: Lane, entries: Mapping[str, Entry]) -> None:
        for key in entries:
            self._remove(lane, key)
        self._done[lane.kind] += len(entries)
        lane.note_done(entries.values(), self._kinds[lane.kind].limit)

    def _note_failed(self, lane: Lane, entries: Mapping[str, Entry], outcome: Outcome, *, attempted: int) -> None:
        verdict = outcome.verdict
        is_alone = attempted == 1
        lane.limit = max(1, attempted // 2)
        if verdict in (Verdict.REFUSED, Verdict.TOO_LARGE):
            # Halve it immediately, until the entry at fault is alone.
            if is_alone:
                for key in entries:
                    self._lose(lane, key, verdict.value)
            return
        for entry in lane.entries.values():
            # A flush that began meanwhile waits for the attempt that follows.
            entry.is_configuration_error = verdict is Verdict.CONFIGURATION_ERROR and not lane.is_flush_requested
        if verdict is not Verdict.RETRY and is_alone:
            for key, entry in entries.items():
                entry.done_before = entry.done_before if entry.failures else self._done[lane.kind]
                entry.failures += 1
                if entry.failures >= ATTEMPTS_ALONE and self._done[lane.kind] > entry.done_before:
                    self._lose(lane, key, "export_failed" if verdict is Verdict.UNEXPLAINED else verdict.value)
        lane.failures += 1
        delay = self._policy.delay(lane.failures, outcome)
        lane.put_off(delay, outcome.retry_after or 0.0, monotonic(), self._deadline)

    def _note_trouble(self, kind: str, outcome: Outcome) -> None:
        verdict = outcome.verdict
        self.last_error = f"{kind}: {verdict.value}: {outcome.reason}"
        if verdict is Verdict.CONFIGURATION_ERROR:
            # It lasts until someone changes a setting: one warning is enough.
            if self._last_configuration_errors.get(kind) == outcome.reason:
                return
            self._last_configuration_errors[kind] = outcome.reason
        consequence = _CONSEQUENCES[verdict]
        self._log.warn(f"{kind} {verdict.value}", f"{kind} {consequence}; spans are not affected ({outcome.reason})")
