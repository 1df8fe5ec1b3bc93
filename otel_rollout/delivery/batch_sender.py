"""One batch brought to its end: delivered, retried, halved around a bad span, or counted as lost."""

from __future__ import annotations

import random
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from opentelemetry.sdk.trace import ReadableSpan

from otel_rollout.delivery.outcome import Outcome, Verdict
from otel_rollout.delivery.shrink import shrink_span

__all__ = ["BatchReport", "RetryPolicy", "send_batch"]


@dataclass(frozen=True)
class RetryPolicy:
    """How failed attempts are repeated.

    Args:
        initial_delay: Seconds before the first repetition; doubles each time, with jitter.
        max_delay: Seconds that the delay never exceeds.
        denied_delay: Seconds between attempts while the backend turns us away.
        unexplained_attempts: How often a batch that fails without a reason is sent before it is halved.
        give_up_after: How many parts in a row may then fail before the rest of the batch is given up: with one
            bad span in a batch, halving fails at most once per halving in a row, so more means that the backend
            takes nothing at all.
    """

    initial_delay: float = 0.5
    max_delay: float = 30.0
    denied_delay: float = 60.0
    unexplained_attempts: int = 5
    give_up_after: int = 14

    def delay(self, attempt: int, outcome: Outcome) -> float:
        """Return the seconds to wait after the attempt numbered `attempt`, counted from 1."""
        if outcome.retry_after is not None:
            return outcome.retry_after
        if outcome.verdict is Verdict.DENIED:
            return self.denied_delay
        return min(self.max_delay, self.initial_delay * 2.0 ** min(attempt - 1, 16)) * _jitter.uniform(0.75, 1.25)


# A generator of its own: the trainer's seeded one must not notice.
_jitter = random.Random()  # noqa: S311 - jitter needs no cryptographic randomness


@dataclass
class BatchReport:
    """What became of the spans of one batch.

    Args:
        delivered: How many the backend has.
        lost: How many are gone, by reason.
        lost_spans: Which ones, where that is known.
        shrunk: How many arrived with their payload cut, because the backend refused them whole.
    """

    delivered: int = 0
    lost: Counter[str] = field(default_factory=Counter)
    lost_spans: list[ReadableSpan] = field(default_factory=list)
    shrunk: int = 0

    def lose(self, spans: Sequence[ReadableSpan], reason: str) -> None:
        """Count `spans` as lost for `reason`."""
        self.lost[reason] += len(spans)
        self.lost_spans.extend(spans)


def send_batch(
    send: Callable[[Sequence[ReadableSpan]], Outcome],
    spans: Sequence[ReadableSpan],
    *,
    wait: Callable[[float], bool],
    on_trouble: Callable[[Outcome], None] = lambda outcome: None,
    policy: RetryPolicy | None = None,
) -> BatchReport:
    """Bring one batch to its end and report what became of each span.

    Args:
        send: One attempt to hand spans to the backend; an exception counts as a failure without a reason.
        spans: The batch, in order.
        wait: Waits that many seconds; returns False when there is no time left to try again.
        on_trouble: Told of each attempt that did not deliver.
        policy: How failed attempts are repeated.

    Returns:
        The counts; delivered and lost add up to the batch.
    """
    policy = policy or RetryPolicy()
    report = BatchReport()
    pending: list[tuple[Sequence[ReadableSpan], bool]] = [(spans, False)]
    attempt = 0
    failures_in_a_row = 0
    halving_unexplained = False
    while pending:
        part, is_shrunk = pending.pop()
        outcome = _attempt(send, part)
        attempt += 1
        if outcome.verdict is Verdict.DELIVERED:
            attempt = failures_in_a_row = 0
            report.delivered += len(part) - outcome.rejected
            report.shrunk += is_shrunk
            if outcome.rejected:
                on_trouble(outcome)
                report.lost["rejected"] += outcome.rejected
            continue

        on_trouble(outcome)
        if outcome.verdict is Verdict.UNEXPLAINED and (halving_unexplained or attempt >= policy.unexplained_attempts):
            halving_unexplained = True
            failures_in_a_row += 1
            if failures_in_a_row >= policy.give_up_after:
                report.lose(part, "export_failed")
                for rest, _ in pending:
                    report.lose(rest, "export_failed")
                return report
        elif outcome.verdict in (Verdict.RETRY, Verdict.DENIED, Verdict.UNEXPLAINED):
            pending.append((part, is_shrunk))
            if not wait(policy.delay(attempt, outcome)):
                reason = "denied" if outcome.verdict is Verdict.DENIED else "shutdown"
                for rest, _ in pending:
                    report.lose(rest, reason)
                return report
            continue

        attempt = 0
        if len(part) > 1:
            middle = len(part) // 2
            pending.append((part[middle:], is_shrunk))
            pending.append((part[:middle], is_shrunk))
        elif not is_shrunk:
            pending.append(([shrink_span(part[0])], True))
        else:
            report.lose(part, outcome.verdict.value)
    return report


def _attempt(send: Callable[[Sequence[ReadableSpan]], Outcome], spans: Sequence[ReadableSpan]) -> Outcome:
    try:
        return send(spans)
    except Exception as error:
        return Outcome(Verdict.UNEXPLAINED, f"{type(error).__name__}: {error}")


def wait_until(deadline: float) -> Callable[[float], bool]:
    """Return a `wait` for `send_batch` that gives up at `deadline` (seconds of `time.monotonic`)."""

    def wait(seconds: float) -> bool:
        if time.monotonic() + seconds >= deadline:
            return False
        time.sleep(seconds)
        return True

    return wait
