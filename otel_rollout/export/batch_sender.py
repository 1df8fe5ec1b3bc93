"""One batch brought to its end on the calling thread, without a queue."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from opentelemetry.sdk.trace import ReadableSpan

from otel_rollout.export.lane import Entry, Lane, RetryPolicy
from otel_rollout.export.outcome import Outcome, Verdict
from otel_rollout.finish.span_copies import shrunk_copy
from otel_rollout.guard.clock import monotonic

Wait = Callable[[float, Outcome], bool]
"""Waits that many seconds after that outcome; False when there is no time left to try again."""


@dataclass
class BatchReport:
    """The outcome of a batch, span by span.

    Args:
        delivered: The number of spans that the backend has.
        lost: The number of lost spans, by reason.
        shrunk: The number of spans that arrived with their payload cut, because the backend refused them whole.
        unsent: The spans that there was no time left for, in order.
    """

    delivered: int = 0
    lost: Counter[str] = field(default_factory=Counter)
    shrunk: int = 0
    unsent: list[ReadableSpan] = field(default_factory=list)


def send_batch(
    send: Callable[[Sequence[ReadableSpan]], Outcome],
    spans: Sequence[ReadableSpan],
    *,
    wait: Wait,
    on_trouble: Callable[[Outcome], None] = lambda outcome: None,
) -> BatchReport:
    """Bring one batch to its end and report what became of each span.

    Args:
        send: One attempt to hand spans to the backend; an exception counts as a failure without a reason.
        spans: The batch, in order.
        wait: Waits between attempts.
        on_trouble: Called with the outcome of each attempt that did not deliver everything.

    Returns:
        The counts; delivered, lost and unsent add up to the batch.
    """
    report = BatchReport()
    lane = Lane(max(1, len(spans)), RetryPolicy(), shrink=shrunk_copy)
    lane.entries.update((number, Entry(number, span, number=number)) for number, span in enumerate(spans))
    while lane.entries:
        attempted = lane.begin_attempt()
        try:
            outcome = send([entry.value for entry in attempted])
        except Exception as error:
            outcome = Outcome(Verdict.UNEXPLAINED, f"{type(error).__name__}: {error}")
        if outcome.verdict is not Verdict.DELIVERED or outcome.rejected:
            on_trouble(outcome)
        # At time 0, so that `due` is the delay.
        done, lost = lane.end_attempt(attempted, outcome, 0.0)
        rejected = min(outcome.rejected, len(done))
        report.delivered += len(done) - rejected
        report.shrunk += sum(entry.original is not None for entry in done) if not rejected else 0
        report.lost += Counter(reason for _, reason in lost) + Counter(rejected=rejected)
        if lane.entries and outcome.verdict is not Verdict.DELIVERED and not wait(lane.due, outcome):
            rest = sorted(lane.entries.values(), key=lambda entry: entry.number)
            report.unsent = [entry.whole for entry in rest]
            break
    return report


def wait_until(deadline: float) -> Wait:
    """Return a `wait` for `send_batch` that gives up at `deadline` (seconds of `time.monotonic`)."""

    def wait(seconds: float, outcome: Outcome) -> bool:
        if monotonic() + seconds >= deadline:
            return False
        time.sleep(seconds)
        return True

    return wait
