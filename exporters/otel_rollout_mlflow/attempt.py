"""Why an attempt to write to MLflow ended early."""

from __future__ import annotations

from otel_rollout.export.outcome import Outcome, Verdict

__all__ = ["AttemptError", "denied"]


class AttemptError(Exception):
    """An attempt failed; `outcome` says what delivery does next.

    Args:
        outcome: What became of the attempt.
        is_missing: Whether MLflow doesn't know something that the request named: an experiment, a run, a trace.
        is_taken: Whether MLflow has something of that name already.
    """

    def __init__(self, outcome: Outcome, *, is_missing: bool = False, is_taken: bool = False) -> None:
        super().__init__(outcome.reason)
        self.outcome = outcome
        self.is_missing = is_missing
        self.is_taken = is_taken


def denied(reason: str) -> AttemptError:
    """Return the error for a setting that someone has to mend."""
    return AttemptError(Outcome(Verdict.DENIED, reason))
