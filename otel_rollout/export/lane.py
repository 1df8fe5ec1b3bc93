"""A lane of an outbox: entries that share attempts and delays, and the meaning of an outcome for each of them.

It has no thread, no lock and no clock: outboxes and `send_batch` use it alike.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Collection, Hashable, Iterable, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Any, Final, NamedTuple

from otel_rollout.export.outcome import Outcome, Verdict

UNEXPLAINED_ATTEMPTS: Final = 5
"""The failures in a row, for an unknown or a passing reason, after which fewer entries go together."""
FAILURES_IN_A_ROW: Final = 24
"""The failures in a row after which the search for a bad entry pauses: the backend takes nothing at all.

One bad span among 512 makes 12 at most: its halvings, itself, and itself shrunk."""
ATTEMPTS_ALONE: Final = 3
"""An entry that fails so often by itself and without a reason, while others are done, is given up."""
SECONDS_BEHIND: Final = 120.0
"""A span that isn't stored this long, though a later one is, is not waited for any longer."""
FIRST_WAIT: Final = 0.25
LONGEST_WAIT: Final = 4.0
"""Seconds to the next attempt for spans that aren't stored yet; doubles while no entry is done."""

MAX_RETRY_AFTER: Final = 300.0
"""Seconds that a backend's own wish to wait longer is heeded for at most."""

# A generator of its own: the trainer's seeded one must not notice.
_jitter: Final = random.Random()  # noqa: S311 - jitter needs no cryptographic randomness
_REFUSALS: Final = (Verdict.REFUSED, Verdict.TOO_LARGE)


@dataclass(frozen=True)
class RetryPolicy:
    """Exponential backoff with jitter.

    Args:
        initial_delay: Seconds before the first retry; doubles each time.
        max_delay: Seconds that the delay never exceeds.
        configuration_delay: Seconds between attempts after an auth or configuration error.
    """

    initial_delay: float = 0.5
    max_delay: float = 30.0
    configuration_delay: float = 60.0

    def delay(self, attempt: int, outcome: Outcome) -> float:
        """Return the seconds to wait after the attempt numbered `attempt`, counted from 1."""
        if outcome.verdict in (Verdict.CONFIGURATION_ERROR, Verdict.REFUSED):
            delay = self.configuration_delay
        else:
            delay = self.initial_delay * 2.0 ** min(attempt - 1, 16) * _jitter.uniform(0.75, 1.25)
            delay = min(self.max_delay, delay)
        # Backends ask for 0 seconds, or for a date in our clock's past: without a minimum that would be a busy loop.
        return max(delay, min(outcome.retry_after or 0.0, MAX_RETRY_AFTER))


@dataclass(frozen=True)
class NotYet:
    """The result of an attempt whose spans are stored only in part: backends may store them after their answer.

    Args:
        positions: The positions in the attempt of the entries that wait; the others are done.
        reason: The backend's answer, in one line for the log.
    """

    positions: Collection[int]
    reason: str


@dataclass(eq=False, slots=True)
class Entry:
    """A span or a request that waits.

    Args:
        key: Its key in the lane.
        value: The argument for an attempt.
        size: Its bytes in the queue.
        number: Its number in the order of all entries.
        order: If two entries have one key, the greater order counts.
        source: The span as it was queued, if that is another object.
        place: The batch on disk that it was read from.
        original: The value before it was shrunk.
        failures: The number of its failures by itself and without a reason.
        done_before: The number of entries that were done before the first attempt of it that failed.
        is_in_flight: True during an attempt.
        is_unanswered: True if the last attempt got no answer.
        waits_since: The time of the first attempt that did not find its span.
    """

    key: Hashable
    value: Any
    size: int = 0
    number: int = 0
    order: int = 0
    source: Any = None
    place: Any = None
    original: Any = None
    failures: int = 0
    done_before: int | None = None
    is_in_flight: bool = False
    is_unanswered: bool = False
    waits_since: float | None = None

    @property
    def whole(self) -> Any:
        """The value as it was before it was shrunk."""
        return self.value if self.original is None else self.original


class Settled(NamedTuple):
    """The entries that an attempt has settled: those that are done, and those that are lost, with the reason."""

    done: Sequence[Entry]
    lost: Sequence[tuple[Entry, str]]


@dataclass(eq=False)
class Lane:
    """Entries by key, the next one first.

    An entry that fails without a reason is only given up where the backend has taken others since: as long as it takes
    nothing at all, this is an outage, and the entry is not at fault. Nothing is given up for a passing fault; entries
    that meet one again and again go in parts, because it may be their size that the backend can't manage. Only an entry
    that the backend refused by itself is sent again shrunk: one that failed otherwise may be stored.

    Args:
        most: The maximum number of entries in one attempt.
        policy: The delays between attempts.
        name: The kind of work and its group.
        shrink: Returns a smaller copy of a refused value, if there is one.
    """

    most: int
    policy: RetryPolicy
    name: Any = None
    shrink: Callable[[Any], Any] | None = None
    entries: dict[Hashable, Entry] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.done = 0
        """The number of entries that were done."""
        self.due = 0.0
        """The time of the next attempt."""
        self.not_before = 0.0
        """The earliest time that the backend allows."""
        self.is_flush_requested = False
        """True if a flush began during an attempt: another one follows immediately."""
        self.is_stuck = False
        """True if nothing can be done until someone changes a setting."""
        self._limit = self._ceiling = self.most
        self._failures = self._passing = self._in_a_row = self._waits = self._newest_done = 0
        self._is_halving = self._is_size_suspect = False

    @property
    def wants_more(self) -> bool:
        """True if more entries may come in: each that is here has failed alone, and nothing was done since."""
        return all(entry.failures and entry.done_before == self.done for entry in self.entries.values())

    @property
    def has_failed(self) -> bool:
        """True if the last attempt failed."""
        return bool(self._failures or self._in_a_row or self._waits)

    def retry_now(self) -> None:
        """Make the next attempt due, unless the backend asked to wait."""
        self.due = self.not_before
        self.is_flush_requested = True
        self.is_stuck = False

    def begin_attempt(self) -> list[Entry]:
        """Return the entries of the next attempt; one that has failed alone comes alone, after all others."""
        trusted = islice((entry for entry in self.entries.values() if not entry.failures), self._limit)
        entries = list(trusted) or [min(self.entries.values(), key=lambda entry: entry.failures)]
        for entry in entries:
            entry.is_in_flight = True
        self.is_flush_requested = False
        return entries

    def end_attempt(self, attempted: Sequence[Entry], outcome: Outcome | NotYet, now: float) -> Settled:
        """Remove what an outcome settles, and set the next attempt; an entry that was replaced meanwhile stays."""
        for entry in attempted:
            entry.is_in_flight = False
        entries = [entry for entry in attempted if self.entries.get(entry.key) is entry]
        if isinstance(outcome, NotYet):
            waiting = {id(entry) for position, entry in enumerate(attempted) if position in outcome.positions}
            return self._note_partly_done(entries, waiting, now)
        if outcome.verdict is Verdict.DELIVERED:
            self._note_done(entries)
            return Settled(entries, ())
        for entry in entries:
            entry.is_unanswered = outcome.is_unanswered
            entry.done_before = self.done if entry.done_before is None else entry.done_before
        lost, delay = self._note_failed(entries, outcome, len(attempted))
        for entry, _ in lost:
            del self.entries[entry.key]
        self.not_before = now + min(delay, max(0.0, outcome.retry_after or 0.0))
        self.due = self.not_before if self.is_flush_requested else now + delay
        return Settled((), lost)

    def shorten(self, now: float, deadline: float) -> None:
        """Leave time for several attempts until the deadline, however long the delay has grown."""
        latest = now + (deadline - now) / 4
        self.due, self.not_before = min(self.due, latest), min(self.not_before, latest)

    def _note_done(self, done: Iterable[Entry]) -> None:
        for entry in done:
            del self.entries[entry.key]
            self.done += 1
            self._newest_done = max(self._newest_done, entry.number)
        self._failures = self._passing = self._in_a_row = self._waits = 0
        self.due = self.not_before = 0.0
        self.is_stuck = False
        if not self.entries:
            self._ceiling, self._is_size_suspect = self.most, False
            self._limit = self.most
        self._limit = min(self._limit * 2, self._ceiling)
        self._is_halving = self._is_halving and self._limit < self.most

    def _note_partly_done(self, entries: Sequence[Entry], waiting: Collection[int], now: float) -> Settled:
        """Keep the entries that wait after the others; one whose span was dropped is lost once later ones are done."""
        done = [entry for entry in entries if id(entry) not in waiting]
        if done:
            self._note_done(done)
        lost = []
        for entry in entries:
            if id(entry) not in waiting:
                continue
            entry.waits_since = entry.waits_since or now
            # Move it after later ones: a full attempt of spans that never come would block them.
            self.entries.pop(entry.key)
            if now - entry.waits_since >= SECONDS_BEHIND and self._newest_done > entry.number:
                lost.append((entry, "span_missing"))
            else:
                self.entries[entry.key] = entry
        self.due = now + min(FIRST_WAIT * 2.0 ** min(self._waits, 16), LONGEST_WAIT)
        self._waits += 1
        return Settled(done, lost)

    def _note_failed(
        self, entries: Sequence[Entry], outcome: Outcome, attempted: int
    ) -> tuple[list[tuple[Entry, str]], float]:
        """Decide what is sent next; return what is lost, and the seconds to wait."""
        verdict = outcome.verdict
        self.is_stuck = verdict is Verdict.CONFIGURATION_ERROR and not self.is_flush_requested
        if verdict is Verdict.RETRY:
            return [], self._note_passing(attempted, outcome)
        self._passing = 0
        if verdict not in _REFUSALS and not self._is_halving and not any(entry.failures for entry in entries):
            self._failures += 1
            if verdict is Verdict.UNEXPLAINED and self._failures < UNEXPLAINED_ATTEMPTS:
                return [], self.policy.delay(self._failures, outcome)
            self._is_halving = verdict is Verdict.UNEXPLAINED
        self._in_a_row += 1
        lost = self._narrow(entries, verdict, attempted)
        if verdict is Verdict.CONFIGURATION_ERROR:
            return lost, self.policy.delay(self._in_a_row, outcome)
        rounds = {entry.failures for entry in self.entries.values()}
        if self._in_a_row % FAILURES_IN_A_ROW == 0 or (len(rounds) == 1 and rounds != {0}):
            return lost, self.policy.delay(UNEXPLAINED_ATTEMPTS + self._in_a_row // FAILURES_IN_A_ROW, outcome)
        return lost, 0.0

    def _note_passing(self, attempted: int, outcome: Outcome) -> float:
        # A backend that names a time is busy, whatever the size.
        self._passing = 0 if outcome.retry_after else self._passing + 1
        self._failures += 1
        self._is_size_suspect = self._is_size_suspect or self._passing >= UNEXPLAINED_ATTEMPTS
        if self._is_size_suspect and self._passing:
            self._limit = max(1, attempted // 2)
            if self._passing == 1:
                # Fewer were done just before: these are too many.
                self._ceiling = self._limit
        return self.policy.delay(self._failures, outcome)

    def _narrow(self, entries: Sequence[Entry], verdict: Verdict, attempted: int) -> list[tuple[Entry, str]]:
        """Send fewer entries together; return the entry that failed alone, if it is lost."""
        if attempted > 1:
            self._limit = attempted // 2
            if verdict is Verdict.TOO_LARGE:
                self._ceiling = self._limit
            return []
        self._limit = 1
        for entry in entries:
            if verdict in _REFUSALS:
                if self.shrink is None or entry.original is not None:
                    return [(entry, verdict.value)]
                entry.original, entry.value = entry.value, self.shrink(entry.value)
                return []
            # Never cut: the backend may have stored it and failed afterwards, and the cut one would overwrite it.
            entry.value, entry.original = entry.whole, None
            entry.failures += 1
            if entry.failures >= ATTEMPTS_ALONE and self.done != entry.done_before:
                return [(entry, "export_failed" if verdict is Verdict.UNEXPLAINED else verdict.value)]
        return []
