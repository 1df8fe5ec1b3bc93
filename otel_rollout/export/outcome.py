"""The outcome of one attempt to send a batch to a backend."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

__all__ = ["Outcome", "Verdict"]


class Verdict(Enum):
    """The outcome of one attempt, and so the next step of delivery."""

    DELIVERED = "delivered"
    """The backend has it."""
    RETRY = "retry"
    """A passing fault (network, overload): the same batch again, later; in halves if that goes on."""
    TOO_LARGE = "too_large"
    """The batch is over a size limit of the backend: send its halves."""
    REFUSED = "refused"
    """The backend found something invalid in the batch: send its halves, to find what."""
    CONFIGURATION_ERROR = "configuration_error"
    """Credentials, address or project are wrong: nothing is delivered until that is fixed."""
    UNEXPLAINED = "unexplained"
    """It failed, without a sign whether a retry would help."""


@dataclass(frozen=True)
class Outcome:
    """The result of one attempt.

    Args:
        verdict: The next step.
        reason: The backend's answer, in one line for the log.
        retry_after: Seconds that the backend asked to wait, if it did.
        rejected: The number of spans of a delivered batch that the backend reports as not kept.
        is_unanswered: True if the batch was sent and no answer came: the backend may have it.
    """

    verdict: Verdict
    reason: str = ""
    retry_after: float | None = None
    rejected: int = 0
    is_unanswered: bool = False


DELIVERED = Outcome(Verdict.DELIVERED)
