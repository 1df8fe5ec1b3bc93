"""One batch brought to its end: delivered, retried, halved around a bad span, or counted as lost."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from opentelemetry.sdk.trace import ReadableSpan

from otel_rollout.export.backoff import RetryPolicy
from otel_rollout.export.outcome import Outcome, Verdict
from otel_rollout.finish.span_copies import shrunk_copy
from otel_rollout.guard.clock import monotonic

Wait = Callable[[float, Outcome], bool]
"""Waits that many seconds after that outcome; False when there is no time left to try again."""


UNEXPLAINED_ATTEMPTS: Final = 5
"""The failures in a row of a whole batch, for an unknown or a passing reason, after which it is halved."""
FAILURES_IN_A_ROW: Final = 24
"""The parts that fail in a row before the search for a bad span pauses: the backend takes nothing at all.

One bad span among 512 makes 11 at most: its halvings and itself, shrunk."""
MAX_PAUSES: Final = 10
"""The pauses without a delivery between them after which the rest of the batch is given up. It is
kept instead if the backend took nothing of it at all and gives no reason."""
FEW_SPANS: Final = 4
"""Drop batches this small too: if every span is bad, keeping them would block the queue, while an outage costs no more
than these few every few minutes."""


@dataclass
class BatchReport:
    """The outcome of a batch, span by span.

    Args:
        delivered: The number of spans that the backend has.
        lost: The number of lost spans, by reason.
        shrunk: The number of spans that arrived with their payload cut, because the backend refused them whole.
        unsent: The spans that there was no time left for, in order, if the caller keeps them.
        unsent_reason: The reason to count them as lost for.
    """

    delivered: int = 0
    lost: Counter[str] = field(default_factory=Counter)
    shrunk: int = 0
    unsent: list[ReadableSpan] = field(default_factory=list)
    unsent_reason: str = ""


class _Part(NamedTuple):
    """A part of the batch.

    Args:
        spans: Its spans.
        original: The span as it was, if the part is a shrunk span.
        is_last_chance: True if the span failed before, and another of its batch was delivered.
    """

    spans: Sequence[ReadableSpan]
    original: Sequence[ReadableSpan] | None = None
    is_last_chance: bool = False


def send_batch(
    send: Callable[[Sequence[ReadableSpan]], Outcome],
    spans: Sequence[ReadableSpan],
    *,
    wait: Wait,
    on_trouble: Callable[[Outcome], None] = lambda outcome: None,
    on_lost: Callable[[Sequence[ReadableSpan]], None] = lambda spans: None,
    policy: RetryPolicy | None = None,
    keeps_unsent: bool = False,
) -> BatchReport:
    """Bring one batch to its end and report what became of each span.

    A span that fails without a reason is only given up where the backend has taken others of its batch: as long as
    it takes nothing at all, this is an outage, and the span is not at fault. Nothing is given up for a passing fault;
    a batch that meets one again and again goes in parts, because it may be its size that the backend can't manage.
    Only a span that the backend refused by itself is sent again shrunk: one that failed otherwise may be stored.

    Args:
        send: One attempt to hand spans to the backend; an exception counts as a failure without a reason.
        spans: The batch, in order.
        wait: Waits between attempts.
        on_trouble: Called with the outcome of each attempt that did not deliver everything.
        on_lost: Called with the spans that are lost, before the next attempt.
        policy: The retry policy.
        keeps_unsent: True if the caller keeps the spans that there was no time left for, instead of losing them.

    Returns:
        The counts; delivered, lost and unsent add up to the batch.
    """
    sending = _Sending(spans, on_lost, policy or RetryPolicy())
    while sending.pending:
        part = sending.pending.pop()
        outcome = _attempt(send, part.spans)
        if outcome.verdict is not Verdict.DELIVERED or outcome.rejected:
            on_trouble(outcome)
        if outcome.verdict is Verdict.DELIVERED:
            sending.note_delivered(part, outcome)
            continue
        delay = sending.note_failed(part, outcome)
        if sending.pending and not wait(delay, outcome):
            reason = "configuration_error" if outcome.verdict is Verdict.CONFIGURATION_ERROR else "shutdown"
            if keeps_unsent:
                sending.keep_rest(reason)
            else:
                sending.lose_rest(reason)
    return sending.report


class _Sending:
    """The parts of a batch that are still to be sent, and the outcome of the others.

    Args:
        spans: The batch.
        on_lost: Called with the spans that are lost.
        policy: The retry policy.
    """

    def __init__(
        self, spans: Sequence[ReadableSpan], on_lost: Callable[[Sequence[ReadableSpan]], None], policy: RetryPolicy
    ) -> None:
        self.report = BatchReport()
        self._size = len(spans)
        # A stack: the part that is next in order is on top.
        self.pending = [_Part(spans)] if spans else []
        self._on_lost = on_lost
        self._policy = policy
        # Single spans that failed without a reason, in order.
        self._suspects: list[_Part] = []
        self._attempt = 0
        self._passing_in_a_row = 0
        self._failures_in_a_row = 0
        self._pauses = 0
        self._is_halving = False
        self._is_size_suspect = False

    def note_delivered(self, part: _Part, outcome: Outcome) -> None:
        """Count a part that the backend has; what failed without a reason before it gets a last chance."""
        self._attempt = self._passing_in_a_row = self._failures_in_a_row = self._pauses = 0
        rejected = min(outcome.rejected, len(part.spans))
        self.report.delivered += len(part.spans) - rejected
        if part.original is not None:
            self.report.shrunk += len(part.spans) - rejected
        if rejected:
            self.report.lost["rejected"] += rejected
        self._give_last_chance()

    def _give_last_chance(self) -> None:
        self.pending += [suspect._replace(is_last_chance=True) for suspect in reversed(self._suspects)]
        self._suspects = []

    def note_failed(self, part: _Part, outcome: Outcome) -> float:
        """Decide what is sent next after a failure, and return the seconds to wait before that."""
        self._attempt += 1
        if outcome.verdict is Verdict.RETRY:
            return self._note_passing(part, outcome)
        self._passing_in_a_row = 0
        is_unexplained = outcome.verdict is Verdict.UNEXPLAINED
        if outcome.verdict is Verdict.CONFIGURATION_ERROR or (
            is_unexplained and not self._is_halving and self._attempt < UNEXPLAINED_ATTEMPTS
        ):
            self.pending.append(part)
            return self._policy.delay(self._attempt, outcome)
        self._is_halving = self._is_halving or is_unexplained
        self._failures_in_a_row += 1
        self._attempt = 0
        if len(part.spans) > 1:
            self._halve(part)
        elif is_unexplained and part.is_last_chance:
            self._lose([part], "export_failed")
        elif is_unexplained:
            # Never cut: the backend may have stored it and failed afterwards, and the cut one would overwrite it.
            self._suspects.append(_Part(part.spans if part.original is None else part.original))
        elif part.original is None:
            self.pending.append(part._replace(spans=[shrunk_copy(part.spans[0])], original=part.spans))
        else:
            self._lose([part], outcome.verdict.value)
        if self._failures_in_a_row >= FAILURES_IN_A_ROW:
            return self._pause(outcome)
        if not self.pending and self._suspects:
            if not self.report.delivered:
                return self._pause(outcome)
            self._give_last_chance()
            return self._policy.delay(1, outcome)
        return 0.0

    def lose_rest(self, reason: str) -> None:
        """Give up all that is not settled."""
        self._lose([*self._suspects, *reversed(self.pending)], reason)
        self._suspects, self.pending = [], []

    def keep_rest(self, reason: str) -> None:
        """Hand all that is not settled back, whole."""
        for part in [*self._suspects, *reversed(self.pending)]:
            self.report.unsent += part.spans if part.original is None else part.original
        self.report.unsent_reason = reason
        self._suspects, self.pending = [], []

    def _note_passing(self, part: _Part, outcome: Outcome) -> float:
        # A backend that names a time is busy, whatever the size.
        self._passing_in_a_row = 0 if outcome.retry_after else self._passing_in_a_row + 1
        if self._passing_in_a_row >= UNEXPLAINED_ATTEMPTS:
            self._is_size_suspect = True
        if len(part.spans) > 1 and self._is_size_suspect and self._passing_in_a_row:
            self._halve(part)
        else:
            self.pending.append(part)
        return self._policy.delay(self._attempt, outcome)

    def _halve(self, part: _Part) -> None:
        middle = len(part.spans) // 2
        self.pending += [_Part(part.spans[middle:]), _Part(part.spans[:middle])]

    def _pause(self, outcome: Outcome) -> float:
        self._pauses += 1
        self._failures_in_a_row = 0
        # Send whole spans again after the pause: a payload is not cut for an outage.
        self.pending = [
            part if part.original is None else part._replace(spans=part.original, original=None)
            for part in self.pending
        ]
        suspects, self._suspects = self._suspects, []
        is_unexplained = outcome.verdict is Verdict.UNEXPLAINED
        if self._pauses <= MAX_PAUSES:
            self.pending += reversed(suspects)
        elif is_unexplained and not self.report.delivered and self._size > FEW_SPANS:
            # An outage; or these are all at fault, and only what comes after them would be taken.
            if suspects:
                self.pending.insert(0, _Part([span for suspect in suspects for span in suspect.spans]))
        else:
            self._suspects = suspects
            self.lose_rest("export_failed" if is_unexplained else outcome.verdict.value)
        return self._policy.delay(UNEXPLAINED_ATTEMPTS + self._pauses, outcome)

    def _lose(self, parts: Sequence[_Part], reason: str) -> None:
        for part in parts:
            self.report.lost[reason] += len(part.spans)
            self._on_lost(part.spans)


def _attempt(send: Callable[[Sequence[ReadableSpan]], Outcome], spans: Sequence[ReadableSpan]) -> Outcome:
    try:
        return send(spans)
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # noqa: BLE001, RUF100 - SystemExit or CancelledError must not end delivery
        return Outcome(Verdict.UNEXPLAINED, f"{type(error).__name__}: {error}")


def wait_until(deadline: float) -> Wait:
    """Return a `wait` for `send_batch` that gives up at `deadline` (seconds of `time.monotonic`)."""

    def wait(seconds: float, outcome: Outcome) -> bool:
        if monotonic() + seconds >= deadline:
            return False
        time.sleep(seconds)
        return True

    return wait
