"""Requests about spans that are stored already: links, rewards, feedback. They never change the verdict on a span."""

from __future__ import annotations

import os
import threading
import time
from collections import Counter
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from opentelemetry import context as context_api

from otel_rollout.delivery.batch_sender import RetryPolicy
from otel_rollout.delivery.outcome import Outcome, Verdict
from otel_rollout.delivery.trouble_log import TroubleLog
from otel_rollout.log_once import internal_error
from otel_rollout.stats import SideWorkStats

__all__ = ["Kind", "SideWork"]

MAX_BYTES: Final = 4 * 1024 * 1024
ITEM_BYTES: Final = 550
"""What an entry takes beside its key and its payload: 480 to 580 with a key of 35 characters, by tracemalloc."""
MIN_SECONDS_LEFT: Final = 0.05
"""With less than this left to the deadline of a shutdown, no further attempt begins."""
ATTEMPTS_ALONE: Final = 5
"""How often an entry may fail on its own without a reason, while others of its kind are done, before it is dropped."""


@dataclass(frozen=True)
class Kind:
    """One kind of side work.

    Args:
        do: One attempt to do some entries of one group; returns what became of all of them. Never waits to try again.
        limit: How many entries go into one attempt at most.
    """

    do: Callable[[Any, list[Any]], Outcome]
    limit: int = 1


@dataclass(eq=False)
class _Entry:
    value: Any
    order: int
    number: int
    size: int
    failures: int = 0
    done_before: int = 0
    is_denied: bool = False
    is_in_flight: bool = False


@dataclass(eq=False)
class _Lane:
    """The entries of one kind and group, which are tried together and wait together."""

    kind: str
    group: Hashable
    limit: int
    entries: dict[str, _Entry] = field(default_factory=dict)
    failures: int = 0
    due: float = 0.0
    not_before: float = 0.0


class SideWork:
    """A list of requests, bounded in bytes, that an exporter owns; a thread of its own does them, with backoff.

    An exporter adds to it once the spans are stored. Delivery flushes it, shuts it down and reads its counts. The
    thread starts with the first entry. A request that hangs holds up other side work alone.

    Args:
        name: The exporter's name, for logs.
        kinds: What is done, by the name that it is counted under.
        max_bytes: Bytes held; beyond that the oldest entries are dropped.
        policy: How failed attempts are repeated.
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
        self._lock = threading.RLock()
        self._work = threading.Condition(self._lock)
        self._progress = threading.Condition(self._lock)
        self._lanes: dict[tuple[str, Hashable], _Lane] = {}
        self._thread: threading.Thread | None = None
        self._has_ended = False
        self._deadline: float | None = None
        self._is_abandoned = False
        self._bytes = 0
        self._added = 0
        self._done: Counter[str] = Counter()
        self._lost: dict[str, Counter[str]] = {kind: Counter() for kind in self._kinds}
        self._lost_at_flush = 0
        self.last_trouble = ""
        """What was answered last when an attempt failed."""
        self._last_denials: dict[str, str] = {}
        self._log = TroubleLog(self._name)

    # --- from any thread

    def add(self, kind: str, group: Hashable, key: str, value: Any, *, order: int = 0, payload_bytes: int = 0) -> None:
        """Take one entry; never waits, never raises.

        Args:
            kind: Which kind of work.
            group: Entries of the same group may be done in one attempt.
            key: Names the entry in its group: it replaces one that waits under this key.
            value: What `Kind.do` is given.
            order: Which of two entries with the same key counts: the greater, and of equals the later.
            payload_bytes: What the value takes beyond a few numbers and short texts.
        """
        self._start_anew_if_forked()
        with self._lock:
            if self._deadline is not None:
                self._lost[kind]["after_shutdown"] += 1
                return
            lane = self._lanes.get((kind, group))
            if lane is None:
                lane = self._lanes[kind, group] = _Lane(kind, group, self._kinds[kind].limit)
            replaced = lane.entries.get(key)
            if replaced is not None:
                if replaced.order > order:
                    return
                self._remove(lane, key)
            self._added += 1
            entry = _Entry(value, order, self._added, len(key) + payload_bytes + ITEM_BYTES)
            lane.entries[key] = entry
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
        """Try what waits now, unless the backend asked to wait."""
        self._start_anew_if_forked()
        with self._lock:
            self._make_all_due()

    def flush(self, timeout: float) -> bool:
        """Try again now, and wait until all that was added before is done or turned away.

        Args:
            timeout: Seconds to wait at most.

        Returns:
            Whether all of it is done, and nothing was lost since the last flush.
        """
        self._start_anew_if_forked()
        with self._lock:
            number, lost_before = self._added, self._lost_at_flush
            self._make_all_due()
            self._progress.wait_for(
                lambda: all(entry.is_denied for entry in self._waiting(number)), min(timeout, threading.TIMEOUT_MAX)
            )
            if any(True for _ in self._waiting(number)):
                return False
            self._lost_at_flush = self._total_lost()
            return self._lost_at_flush == lost_before

    def shutdown(self, deadline: float) -> bool:
        """Do what waits, as far as there is time, and count the rest as lost; whether all was ever done.

        Args:
            deadline: When that must have ended, in seconds of `time.monotonic`.
        """
        self._start_anew_if_forked()
        with self._lock:
            if self._deadline is None:
                self._deadline = deadline
                self._make_all_due()
            # A second call waits no longer than the first.
            deadline = min(deadline, self._deadline)
            must_work_here = self._thread is None and bool(self._lanes)
        if must_work_here:
            # No thread could be started: the interpreter is exiting.
            self._run()
        with self._lock:
            # Not by `Thread.join`, which takes a thread for ended once a signal handler has raised in it.
            self._progress.wait_for(
                lambda: not self.is_running, min(max(0.0, deadline - time.monotonic()), threading.TIMEOUT_MAX)
            )
            self._is_abandoned = True
            for lane in list(self._lanes.values()):
                for key, entry in list(lane.entries.items()):
                    self._lose(lane, key, "denied" if entry.is_denied else "shutdown")
            self._progress.notify_all()
            return not self._total_lost()

    def stats(self) -> dict[str, SideWorkStats]:
        """Return the counts of each kind so far."""
        self._start_anew_if_forked()
        with self._lock:
            waiting = Counter(dict.fromkeys(self._kinds, 0))
            for lane in self._lanes.values():
                waiting[lane.kind] += len(lane.entries)
            return {
                kind: SideWorkStats(done=self._done[kind], waiting=waiting[kind], lost=dict(self._lost[kind]))
                for kind in self._kinds
            }

    @property
    def is_running(self) -> bool:
        """Whether an attempt may be under way, also after a shutdown that it did not end in time for."""
        return self._thread is not None and not self._has_ended

    # --- with the lock held

    def _waiting(self, number: int) -> Iterator[_Entry]:
        for lane in self._lanes.values():
            for entry in lane.entries.values():
                if entry.number <= number:
                    yield entry

    def _total_lost(self) -> int:
        return sum(lost.total() for lost in self._lost.values())

    def _make_all_due(self) -> None:
        for lane in self._lanes.values():
            lane.due = lane.not_before
            for entry in lane.entries.values():
                entry.is_denied = False
        self._work.notify()

    def _remove(self, lane: _Lane, key: str) -> None:
        self._bytes -= lane.entries.pop(key).size
        if not lane.entries:
            self._lanes.pop((lane.kind, lane.group), None)

    def _lose(self, lane: _Lane, key: str, reason: str) -> None:
        self._remove(lane, key)
        self._lost[lane.kind][reason] += 1

    def _drop_oldest(self) -> bool:
        """Drop the oldest entry that isn't being tried; False if there is none."""
        oldest: tuple[int, _Lane, str] | None = None
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

    def _start_anew_if_forked(self) -> None:
        """Start empty in a forked child: what the parent holds is the parent's, and so may be the lock."""
        if self._pid != os.getpid():
            self._reset()

    def _start(self) -> None:
        if self._thread is not None:
            return
        with self._lock:
            if self._thread is None and self._deadline is None:
                thread = threading.Thread(target=self._run, name=f"otel-rollout-{self._name}-side", daemon=True)
                try:
                    thread.start()
                except RuntimeError:
                    # The interpreter is exiting: `shutdown` does the work.
                    return
                self._thread = thread

    def _run(self) -> None:
        # What is done over the network is not to be traced itself.
        context = context_api.set_value(context_api._SUPPRESS_INSTRUMENTATION_KEY, True, context_api.Context())  # noqa: SLF001 - opentelemetry-instrumentation imports it too
        token = context_api.attach(context)
        try:
            while (taken := self._take()) is not None:
                lane, entries = taken
                outcome = self._attempt(lane, list(entries.values()))
                if outcome.verdict is not Verdict.DELIVERED:
                    self._note_trouble(lane.kind, outcome)
                self._settle(lane, entries, outcome)
        except Exception:  # noqa: BLE001, RUF100 - nobody would be told
            internal_error("doing side work")
        finally:
            context_api.detach(token)
            with self._lock:
                self._has_ended = True
                self._progress.notify_all()

    def _take(self) -> tuple[_Lane, dict[str, _Entry]] | None:
        """Wait for what is due; None if nothing is to be tried any more."""
        with self._lock:
            while True:
                now = time.monotonic()
                lanes = [lane for lane in self._lanes.values() if not self._is_given_up(lane)]
                if self._is_abandoned or (
                    self._deadline is not None and (not lanes or self._deadline - now < MIN_SECONDS_LEFT)
                ):
                    return None
                lane = min(lanes, key=lambda each: each.due, default=None)
                if lane is not None and lane.due <= now:
                    break
                self._work.wait(None if lane is None else min(lane.due - now, threading.TIMEOUT_MAX))
            trusted = [key for key, entry in lane.entries.items() if not entry.failures]
            keys = trusted[: lane.limit] or [min(lane.entries, key=lambda key: lane.entries[key].failures)]
            entries = {key: lane.entries[key] for key in keys}
            for entry in entries.values():
                entry.is_in_flight = True
            return lane, entries

    def _is_given_up(self, lane: _Lane) -> bool:
        # Turned away since the shutdown began: there is no time to wait until someone mends that.
        return self._deadline is not None and all(entry.is_denied for entry in lane.entries.values())

    def _attempt(self, lane: _Lane, entries: Sequence[_Entry]) -> Outcome:
        try:
            return self._kinds[lane.kind].do(lane.group, [entry.value for entry in entries])
        except BaseException as error:  # noqa: BLE001, RUF100 - this thread has nobody to tell
            return Outcome(Verdict.UNEXPLAINED, f"{type(error).__name__}: {error}")

    def _settle(self, lane: _Lane, entries: Mapping[str, _Entry], outcome: Outcome) -> None:
        with self._lock:
            for entry in entries.values():
                entry.is_in_flight = False
            if self._is_abandoned:
                return
            # One that was replaced meanwhile is tried again as it is now.
            settled = {key: entry for key, entry in entries.items() if lane.entries.get(key) is entry}
            if outcome.verdict is Verdict.DELIVERED:
                self._note_done(lane, settled)
            else:
                self._note_failed(lane, settled, outcome, attempted=len(entries))
            self._progress.notify_all()

    def _note_done(self, lane: _Lane, entries: Mapping[str, _Entry]) -> None:
        for key in entries:
            self._remove(lane, key)
        self._done[lane.kind] += len(entries)
        lane.failures = 0
        lane.due = lane.not_before = 0.0
        lane.limit = min(lane.limit * 2, self._kinds[lane.kind].limit)

    def _note_failed(self, lane: _Lane, entries: Mapping[str, _Entry], outcome: Outcome, *, attempted: int) -> None:
        verdict = outcome.verdict
        is_alone = attempted == 1
        lane.limit = max(1, attempted // 2)
        if verdict in (Verdict.REFUSED, Verdict.TOO_LARGE):
            # Halved until the entry at fault is alone: there is nothing to wait for.
            if is_alone:
                for key in entries:
                    self._lose(lane, key, verdict.value)
            return
        for entry in lane.entries.values():
            entry.is_denied = verdict is Verdict.DENIED
        if verdict is not Verdict.RETRY and is_alone:
            for key, entry in entries.items():
                entry.done_before = entry.done_before if entry.failures else self._done[lane.kind]
                entry.failures += 1
                if entry.failures >= ATTEMPTS_ALONE and self._done[lane.kind] > entry.done_before:
                    self._lose(lane, key, "export_failed" if verdict is Verdict.UNEXPLAINED else verdict.value)
        lane.failures += 1
        now = time.monotonic()
        delay = self._policy.delay(lane.failures, outcome)
        if self._deadline is not None:
            # Several attempts still fit in, however long the delay has grown.
            delay = min(delay, (self._deadline - now) / 4)
        lane.due = now + delay
        lane.not_before = now + min(delay, outcome.retry_after or 0.0)

    def _note_trouble(self, kind: str, outcome: Outcome) -> None:
        self.last_trouble = f"{kind}: {outcome.verdict.value}: {outcome.reason}"
        what = "are refused, looking for the one at fault"
        if outcome.verdict in (Verdict.RETRY, Verdict.UNEXPLAINED):
            what = "are not stored yet, trying again"
        elif outcome.verdict is Verdict.DENIED:
            what = "are turned away: they wait within the bound until this is mended"
        if outcome.verdict is Verdict.DENIED and self._last_denials.get(kind) == outcome.reason:
            # It stays so until someone mends a setting: saying it again helps nobody.
            return
        if outcome.verdict is Verdict.DENIED:
            self._last_denials[kind] = outcome.reason
        self._log.warn(f"{kind} {outcome.verdict.value}", f"{kind} {what}; spans are not affected ({outcome.reason})")
