"""The delays between attempts to reach a backend."""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import Final

from otel_rollout.export.outcome import Outcome, Verdict

MAX_RETRY_AFTER: Final = 300.0
"""Seconds that a backend's own wish to wait longer is heeded for at most."""

# A generator of its own: the trainer's seeded one must not notice.
_jitter: Final = random.Random()  # noqa: S311 - jitter needs no cryptographic randomness


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
