"""Follow-up requests of one kind, rewards, and the backend that gets them."""

from __future__ import annotations

import threading

from opentelemetry import context as context_api

from otel_rollout.export.follow_up_requests import NotYet
from otel_rollout.export.outcome import DELIVERED, Outcome, Verdict

RETRY = Outcome(Verdict.RETRY, "down")
REFUSED = Outcome(Verdict.REFUSED, "HTTP 400")
CONFIGURATION_ERROR = Outcome(Verdict.CONFIGURATION_ERROR, "HTTP 403")
UNEXPLAINED = Outcome(Verdict.UNEXPLAINED, "HTTP 500")


class Backend:
    """Does what it is asked, unless `rule` says otherwise; each attempt waits for `gate`."""

    def __init__(self):
        self.rule = lambda values: DELIVERED
        self.gate = threading.Event()
        self.gate.set()
        self.entered = threading.Event()
        self.attempts = []
        self.done = []
        self.suppressed = []

    def __call__(self, group, values):
        """Answer by the rule."""
        self.attempts.append(values)
        self.suppressed.append(context_api.get_value(context_api._SUPPRESS_INSTRUMENTATION_KEY))
        self.entered.set()
        self.gate.wait(600)
        outcome = self.rule(values)
        if isinstance(outcome, NotYet):
            self.done += [value for position, value in enumerate(values) if position not in outcome.positions]
        elif outcome.verdict is Verdict.DELIVERED:
            self.done += values
        return outcome


def add(work, *values, **options):
    """Add entries whose keys are their values."""
    for value in values:
        work.add("rewards", None, str(value), value, **options)


def counts(work):
    """Return the counts of the rewards."""
    return work.stats()["rewards"]
