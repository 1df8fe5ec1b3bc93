"""The deadlines of a queue's attempts and its thread, once its shutdown has begun."""

from __future__ import annotations

from typing import Final

from otel_rollout.guard.clock import monotonic
from otel_rollout.text.plain_text import counted

SECONDS_WITH_A_SPOOL: Final = 2.0
"""The seconds that attempts go on after the first that fails during a shutdown, if the spool can keep the rest."""
SECONDS_OF_A_WAIT: Final = 1.0
"""A wait at the end that may be longer than this is logged."""


class Deadlines:
    """Times of `time.monotonic`; the queue changes them with its lock held."""

    def __init__(self) -> None:
        self.attempts: float | None = None
        """The end of attempts; None before the shutdown."""
        self.last_attempts = 0.0
        """The same, if the disk can't keep the rest."""
        self.thread = 0.0
        """The end of the thread, which may put spans on disk after the last attempt."""
        self._has_full_disk = self._has_said_wait = False

    @property
    def is_late(self) -> bool:
        """True if no further attempt may begin."""
        return self.attempts is not None and monotonic() >= self.attempts

    def begin(self, attempts: float, thread: float) -> None:
        """Begin the shutdown.

        Args:
            attempts: The end of attempts.
            thread: The end of the thread.
        """
        self.thread = thread
        self.attempts = self.last_attempts = attempts

    def end_attempts(self, thread: float) -> None:
        """End attempts now, and the thread at another time."""
        self.thread = thread
        self.attempts = self.last_attempts = min(self.last_attempts, monotonic())

    def shorten(self, queued: int, *, keeps_unsent: bool) -> str:
        """Leave the rest to the disk soon, or return a line on the spans that the end waits for.

        Args:
            queued: The number of spans in memory.
            keeps_unsent: True if a disk can keep them.
        """
        now = monotonic()
        if keeps_unsent and not self._has_full_disk:
            self.attempts = min(self.last_attempts, now + SECONDS_WITH_A_SPOOL)
        elif self.last_attempts - now > SECONDS_OF_A_WAIT and not self._has_said_wait:
            self._has_said_wait = True
            return (
                f"the end of the process waits up to {self.last_attempts - now:.0f} s for the backend to take "
                f"{counted(queued, 'span')}; Ctrl-C ends the wait"
            )
        return ""

    def lengthen(self) -> None:
        """Use all the time for attempts, as one has succeeded."""
        if self.attempts is not None:
            self.attempts = self.last_attempts

    def give_up_the_disk(self) -> None:
        """Use all the time for attempts, as the disk takes no more."""
        self._has_full_disk = True
        self.attempts = self.last_attempts
