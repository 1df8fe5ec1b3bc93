"""The base of our exporters: a standard `SpanExporter` that also returns why a batch failed."""

from __future__ import annotations

import abc
import logging
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export import SpanExporter, SpanExportResult

from otel_rollout.export.batch_sender import send_batch, wait_until
from otel_rollout.export.outcome import DELIVERED, Outcome, Verdict
from otel_rollout.export.side_work import SideWork

__all__ = ["OutcomeSpanExporter", "ReadBack", "destination_of", "one_attempt_of", "refused_here"]

_logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class ReadBack:
<<<<<<< 0e2729fed3cdee9f5874035927368e75b0080060
    """A backend's answer to the question which of some spans it has.

    Args:
        found: The number of spans that it has; None if it can't be asked.
        place: The place where a person finds them, or the reason why the backend can't be asked.
=======
    """A backend's answer to which of some spans are stored.

    Args:
        found: How many of them are; None if the backend can't be asked.
        place: The place of the spans for a person, or why the backend can't be asked.
>>>>>>> 3143db6247693f6e3419a005b91290336c2061b9
    """

    found: int | None
    place: str


class OutcomeSpanExporter(SpanExporter, abc.ABC):
    """A `SpanExporter` whose `send` makes one attempt and returns its outcome.

<<<<<<< 0e2729fed3cdee9f5874035927368e75b0080060
    otel-rollout's delivery calls `send`, and retries, halves and counts itself. Under any other span processor
=======
    otel-rollout's delivery calls `send`; retries, halving and counting are delivery's. Under any other span processor
>>>>>>> 3143db6247693f6e3419a005b91290336c2061b9
    `export` does the same within `export_timeout` seconds and returns the standard result.
    """

    export_timeout: float = 30.0
    max_batch_bytes: int = 2**62
<<<<<<< 0e2729fed3cdee9f5874035927368e75b0080060
    """The most bytes of a batch that the backend takes."""
=======
    """The maximum size of a batch."""
    variables: ClassVar[Mapping[str, str]] = {}
    """The exporter's environment variables, beside those of otel-rollout and OpenTelemetry, with their meanings."""
>>>>>>> 3143db6247693f6e3419a005b91290336c2061b9
    side_work: SideWork | None = None
    """Requests about stored spans, if the exporter makes any."""

<<<<<<< 0e2729fed3cdee9f5874035927368e75b0080060
    def check(self) -> None:
        """Raise a ConfigurationError if the exporter can't work; called by `init`, not by other processors.

        Imports what `send` needs, too: a child that is forked while a thread imports a module waits for it forever.
=======
    @property
    def destination(self) -> str | None:
        """A secret-free id of the destination; equal ids mean the same destination.

        None if there is none; a replay then doesn't remember what it delivered.
        """
        return None

    def check(self) -> None:
        """Raise a ConfigurationError for invalid settings; called by `init`, not by other processors.

        Also imports what `send` needs: a child that is forked while a thread imports a module waits for it for ever.
>>>>>>> 3143db6247693f6e3419a005b91290336c2061b9
        """
        return

    @abc.abstractmethod
    def send(self, spans: Sequence[ReadableSpan]) -> Outcome:
<<<<<<< 0e2729fed3cdee9f5874035927368e75b0080060
        """Make one attempt to send `spans` to the backend; never raises, never waits to retry."""

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        """Export a batch within `export_timeout` seconds, with retries if they can help."""
=======
        """Make one attempt to deliver `spans`; never raises, never waits to retry."""

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        """Export a batch within `export_timeout` seconds, with retries."""
>>>>>>> 3143db6247693f6e3419a005b91290336c2061b9
        last: list[Outcome] = []
        report = send_batch(
            self.send,
            spans,
            wait=wait_until(time.monotonic() + self.export_timeout),
            on_trouble=last.append,
        )
        if report.lost:
            _logger.error(
                "%s lost %d of %d spans: %s",
                type(self).__name__,
                report.lost.total(),
                len(spans),
                last[-1].reason,
            )
            return SpanExportResult.FAILURE
        return SpanExportResult.SUCCESS

<<<<<<< 0e2729fed3cdee9f5874035927368e75b0080060
    def after_fork(self) -> None:
        """Forget connections and spans in a forked child: they are the parent's."""
        return

=======
    def expect_repeats(self) -> None:
        """Expect spans that may be stored already, from a replay; for backends that need other requests then."""
        return

    def after_fork(self) -> None:
        """Drop connections and kept spans, which are the parent's, in a forked child."""
        return

    def read_back(self, spans: Sequence[ReadableSpan]) -> ReadBack:
        """Count the stored ones of `spans`, all of one trace, by one request; may raise."""
        return ReadBack(None, "this exporter has no way to ask its backend")

>>>>>>> 3143db6247693f6e3419a005b91290336c2061b9
    def force_flush(self, timeout_millis: int = 30_000) -> bool:
        """Wait for side work; spans are never buffered here."""
        return self.side_work is None or self.side_work.flush(timeout_millis / 1000)


def refused_here(error: Exception) -> Outcome:
<<<<<<< 0e2729fed3cdee9f5874035927368e75b0080060
    """Return the outcome of a batch that can't be encoded: halving it finds the span at fault.

    Args:
        error: The error, which was raised before anything was sent.
    """
=======
    """Return the outcome of a batch that can't be encoded: halving it finds the span at fault."""
>>>>>>> 3143db6247693f6e3419a005b91290336c2061b9
    return Outcome(Verdict.REFUSED, f"a span can't be encoded: {type(error).__name__}: {error}")


def one_attempt_of(exporter: SpanExporter) -> Callable[[Sequence[ReadableSpan]], Outcome]:
<<<<<<< 0e2729fed3cdee9f5874035927368e75b0080060
    """Return a function that makes one attempt to send spans with an exporter, ours or anyone's."""
=======
    """Return a function that makes one attempt to deliver spans by any exporter and returns the outcome."""
>>>>>>> 3143db6247693f6e3419a005b91290336c2061b9
    if isinstance(exporter, OutcomeSpanExporter):
        return exporter.send

    def attempt(spans: Sequence[ReadableSpan]) -> Outcome:
        result: Any = exporter.export(spans)
        if result is SpanExportResult.SUCCESS:
            return DELIVERED
        return Outcome(Verdict.UNEXPLAINED, f"export() returned {result}")

    return attempt


def destination_of(exporter: SpanExporter) -> str | None:
    """Return the secret-free id of an exporter's destination, if it has one; equal ids mean the same destination."""
    return getattr(exporter, "destination", None) if isinstance(exporter, OutcomeSpanExporter) else None
