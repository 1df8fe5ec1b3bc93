"""The base of our exporters: a standard `SpanExporter` that can also say why a batch failed."""

from __future__ import annotations

import abc
import logging
import time
from collections.abc import Sequence

from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export import SpanExporter, SpanExportResult

from otel_rollout.delivery.batch_sender import send_batch, wait_until
from otel_rollout.delivery.outcome import Outcome

__all__ = ["OutcomeSpanExporter"]

_logger = logging.getLogger(__name__)


class OutcomeSpanExporter(SpanExporter, abc.ABC):
    """A `SpanExporter` whose `send` makes one attempt and says what became of it.

    otel-rollout's delivery calls `send` and does the waiting, halving and counting itself. Under any other span
    processor `export` does the same within `export_timeout` seconds and returns the standard result.
    """

    export_timeout: float = 30.0

    @abc.abstractmethod
    def send(self, spans: Sequence[ReadableSpan]) -> Outcome:
        """Make one attempt to hand `spans` to the backend; never raises, never waits to try again."""

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        """Export a batch within `export_timeout` seconds, repeating attempts where that can help."""
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

    def force_flush(self, timeout_millis: int = 30_000) -> bool:
        """Return True: nothing is buffered here."""
        return True
