"""A lane of follow-up requests: the waiting requests of one kind and group, which share attempts and delays."""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from dataclasses import dataclass, field
from typing import Any, Final

FIRST_WAIT: Final = 0.25
LONGEST_WAIT: Final = 4.0
"""Seconds to the next attempt for spans that aren't stored yet; doubles while no entry is done."""


@dataclass(eq=False)
class Entry:
    """A request that waits.

    Args:
        value: The argument for `Kind.do`.
        order: If two entries have one key, the greater order counts.
        number: Its number in the order of all entries.
        size: Its bytes.
        failures: The number of its failures by itself and without a reason.
        done_before: The number of entries of its kind that were done before the first such failure.
        is_configuration_error: True if the last attempt failed by an auth or configuration error.
        is_in_flight: True during an attempt.
        waits_since: The time of the first attempt that did not find its span.
    """

    value: Any
    order: int
    number: int
    size: int
    failures: int = 0
    done_before: int = 0
    is_configuration_error: bool = False
    is_in_flight: bool = False
    waits_since: float | None = None


@dataclass(eq=False)
class Lane:
    """The entries of one kind and group, by key, the next one first.

    Args:
        kind: The kind of work.
        group: The group.
        limit: The number of entries in the next attempt.
        entries: The entries.
        failures: The number of attempts that failed since the last that was done.
        waits: The number of attempts since then whose spans were not stored yet.
        newest_done: The greatest number of an entry that was done.
        due: The time of the next attempt, of `time.monotonic`.
        not_before: The earliest time that the backend allows.
        is_flush_requested: True if a flush began during an attempt: another one follows immediately.
    """

    kind: str
    group: Hashable
    limit: int
    entries: dict[str, Entry] = field(default_factory=dict)
    failures: int = 0
    waits: int = 0
    newest_done: int = 0
    due: float = 0.0
    not_before: float = 0.0
    is_flush_requested: bool = False

    @property
    def has_configuration_error(self) -> bool:
        """True if no entry can be done until someone changes a setting."""
        return all(entry.is_configuration_error for entry in self.entries.values())

    def retry_now(self) -> None:
        """Make the next attempt due, unless the backend asked to wait."""
        self.due = self.not_before
        self.is_flush_requested = True
        for entry in self.entries.values():
            entry.is_configuration_error = False

    def begin_attempt(self) -> dict[str, Entry]:
        """Return the entries of the next attempt; one that has failed alone comes alone, after all others."""
        trusted = [key for key, entry in self.entries.items() if not entry.failures]
        keys = trusted[: self.limit] or [min(self.entries, key=lambda key: self.entries[key].failures)]
        entries = {key: self.entries[key] for key in keys}
        for entry in entries.values():
            entry.is_in_flight = True
        self.is_flush_requested = False
        return entries

    def end_attempt(self, attempted: dict[str, Entry]) -> dict[str, Entry]:
        """Return the attempted entries that still wait; one that was replaced meanwhile waits for its own attempt."""
        for entry in attempted.values():
            entry.is_in_flight = False
        return {key: entry for key, entry in attempted.items() if self.entries.get(key) is entry}

    def note_done(self, done: Iterable[Entry], most: int) -> None:
        """Make the next attempt due, with twice as many entries.

        Args:
            done: The entries that are done.
            most: The maximum number of entries in one attempt.
        """
        self.newest_done = max(self.newest_done, *(entry.number for entry in done), 0)
        self.failures = self.waits = 0
        self.due = self.not_before = 0.0
        self.limit = min(self.limit * 2, most)

    def put_off(self, delay: float, asked_for: float, now: float, deadline: float | None) -> None:
        """Set the time of the attempt that follows a failed one.

        Args:
            delay: The seconds to wait.
            asked_for: The seconds that the backend asked to wait.
            now: The time.
            deadline: The end of all attempts, if it is known.
        """
        delay = _shorten(delay, now, deadline)
        self.not_before = now + min(delay, asked_for)
        self.due = self.not_before if self.is_flush_requested else now + delay

    def wait_for_spans(self, now: float, deadline: float | None) -> None:
        """Set the time of the attempt that follows one whose spans were not all stored.

        Args:
            now: The time.
            deadline: The end of all attempts, if it is known.
        """
        self.due = now + _shorten(min(FIRST_WAIT * 2.0 ** min(self.waits, 16), LONGEST_WAIT), now, deadline)
        self.waits += 1


def _shorten(delay: float, now: float, deadline: float | None) -> float:
    """Leave time for several attempts until the deadline, however long the delay has grown."""
    return delay if deadline is None else min(delay, (deadline - now) / 4)
