"""The base of our exporters: a standard `SpanExporter` that can also say why a batch failed."""

from __future__ import annotations

import abc
import logging
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export import SpanExporter, SpanExportResult

from otel_rollout.export.batch_sender import send_batch, wait_until
from otel_rollout.export.outcome import DELIVERED, Outcome, Verdict
from otel_rollout.export.side_work import SideWork

__all__ = ["OutcomeSpanExporter", "ReadBack", "one_attempt_of", "refused_here"]

_logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class ReadBack:
    """What a backend says it has of some spans.

    Args:
        found: How many of them; None where it can't be asked.
        place: Where they are for a person to look, or why the backend can't be asked.
    """

    found: int | None
    place: str


class OutcomeSpanExporter(SpanExporter, abc.ABC):
    """A `SpanExporter` whose `send` makes one attempt and says what became of it.

    otel-rollout's delivery calls `send` and does the waiting, halving and counting itself. Under any other span
    processor `export` does the same within `export_timeout` seconds and returns the standard result.
    """

    export_timeout: float = 30.0
    max_batch_bytes: int = 2**62
    """Bytes of a batch that the backend takes at most."""
    variables: ClassVar[Mapping[str, str]] = {}
    """The environment variables that it reads beside those of otel-rollout and OpenTelemetry, each with its meaning."""
    side_work: SideWork | None = None
    """Requests about spans that are stored already, if the exporter makes any."""

    @property
    def destination(self) -> str | None:
        """Where the spans go, without secrets: where this is the same, so is the place that the spans end up in.

        None where that can't be said; what was delivered by a replay is not remembered then.
        """
        return None

    def check(self) -> None:
        """Raise a ConfigurationError where the exporter can't work; called by `init`, not by other processors.

        Imports what `send` needs, too: a child that is forked while a thread imports a module waits for it for ever.
        """
        return

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

    def expect_repeats(self) -> None:
        """Be told that spans to come may be in the backend already: a replay. Only where that needs other requests."""
        return

    def after_fork(self) -> None:
        """Be told that this is a forked child: connections, and spans that are kept, are the parent's."""
        return

    def read_back(self, spans: Sequence[ReadableSpan]) -> ReadBack:
        """Ask the backend once which of `spans`, all of one trace, it has; raises what goes wrong on the way."""
        return ReadBack(None, "this exporter has no way to ask its backend")

    def force_flush(self, timeout_millis: int = 30_000) -> bool:
        """Wait for side work; spans are never buffered here."""
        return self.side_work is None or self.side_work.flush(timeout_millis / 1000)


def refused_here(error: Exception) -> Outcome:
    """Return the outcome of a batch that can't be made into a request: halving it finds the span at fault.

    Args:
        error: What was raised before anything was sent.
    """
    return Outcome(Verdict.REFUSED, f"a span can't be encoded: {type(error).__name__}: {error}")


def one_attempt_of(exporter: SpanExporter) -> Callable[[Sequence[ReadableSpan]], Outcome]:
    """Return what makes one attempt to hand spans to an exporter, ours or anyone's, and says what became of it."""
    if isinstance(exporter, OutcomeSpanExporter):
        return exporter.send

    def attempt(spans: Sequence[ReadableSpan]) -> Outcome:
        result: Any = exporter.export(spans)
        if result is SpanExportResult.SUCCESS:
            return DELIVERED
        return Outcome(Verdict.UNEXPLAINED, f"export() returned {result}")

    return attempt
