"""The base of our exporters: a standard `SpanExporter` that also returns why a batch failed."""

from __future__ import annotations

import abc
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export import SpanExporter, SpanExportResult

from otel_rollout.counts import ExporterStats, Loss
from otel_rollout.export.batch_sender import send_batch, wait_until
from otel_rollout.export.follow_up_requests import FollowUpRequests
from otel_rollout.export.outcome import DELIVERED, Outcome, Verdict
from otel_rollout.finish.span_conversion import RunResource, is_unnamed
from otel_rollout.guard.clock import monotonic
from otel_rollout.guard.log_once import warn_once
from otel_rollout.guard.safe_logger import SafeLogger
from otel_rollout.record import runtime
from otel_rollout.settings import Setting

__all__ = ["OutcomeSpanExporter", "ReadBack", "destination_of", "one_attempt_of", "refused_here", "settings_of"]

_logger = SafeLogger(__name__)


@dataclass(frozen=True)
class ReadBack:
    """A backend's answer to the question which of some spans it has.

    Args:
        found: The number of spans that it has; None if it can't be asked.
        place: The place where a person finds them, or the reason why the backend can't be asked.
    """

    found: int | None
    place: str


class OutcomeSpanExporter(SpanExporter, abc.ABC):
    """A `SpanExporter` whose `send` makes one attempt and returns its outcome.

    otel-rollout's delivery calls `send`, and retries, halves and counts itself. Under any other span processor
    `export` does the same within `export_timeout` seconds and returns the standard result.
    """

    export_timeout: float = 30.0
    max_batch_bytes: int = 2**62
    """The most bytes of a batch that the backend takes."""
    follow_up_requests: FollowUpRequests | None = None
    """Requests about stored spans, if the exporter makes any."""
    _run: RunResource | None = None
    takes_records: ClassVar[bool] = False
    """True if its spans are to have a `record`. A subclass sets it anew: one that masks spans would give away texts."""
    address_setting: ClassVar[str] = ""
    """The variable with the address, for a message to someone who gave `init` an `endpoint` instead."""
    variables: ClassVar[Sequence[Setting]] = ()
    """The environment variables that it reads: `init` refuses wrong values of ours before it makes the exporter."""

    def check(self) -> None:
        """Raise a ConfigurationError if the exporter can't work; called by `init`, not by other processors.

        Imports what `send` needs, too: a child that is forked while a thread imports a module waits for it forever.
        """
        return

    def check_project(self, name: str) -> None:
        """Raise a ConfigurationError if the backend can't take a project of this name, which `init` got."""
        return

    def prepare(self) -> None:
        """Begin what the first batch needs and takes seconds; `init` calls it after `check`. It never waits."""
        return

    @property
    def preparing(self) -> str:
        """The work that the first batch waits for, such as tables that are being made; empty if none."""
        return ""

    @abc.abstractmethod
    def send(self, spans: Sequence[ReadableSpan]) -> Outcome:
        """Make one attempt to send `spans` to the backend; never raises, never waits to retry."""

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        """Export a batch within `export_timeout` seconds, with retries if they can help."""
        last: list[Outcome] = []
        spans = self._in_project(spans)
        wait = wait_until(monotonic() + self.export_timeout)
        report = send_batch(self.send, spans, wait=wait, on_trouble=last.append)
        if lost := report.lost.total() + len(report.unsent):
            _logger.error("%s lost %d of %d spans: %s", type(self).__name__, lost, len(spans), last[-1].reason)
            return SpanExportResult.FAILURE
        return SpanExportResult.SUCCESS

    def note_lost(self, losses: Mapping[Loss, int]) -> None:
        """Write down what delivery has lost, for an exporter whose readers look for it; any thread calls this.

        Args:
            losses: The numbers of spans since the last call; a negative number takes back an earlier one.
        """
        return

    def store_held(self) -> Outcome:
        """Store the held spans now, in one attempt, though more of their trajectories may come."""
        return DELIVERED

    def _in_project(self, spans: Sequence[ReadableSpan]) -> Sequence[ReadableSpan]:
        """Return the spans with the project of `init` if their resource names no service.

        Under `opentelemetry-instrument` that is the rule, and they would go to a project `unknown_service`.
        """
        resource = runtime.resource
        if resource is None or not any(is_unnamed(span.resource) for span in spans):
            return spans
        if self._run is None or self._run.resource is not resource:
            self._run = RunResource(resource)
        return [self._run.named(span) if is_unnamed(span.resource) else span for span in spans]

    def after_fork(self) -> None:
        """Forget connections and spans in a forked child: they are the parent's."""
        return

    def trajectory_url(self, trace_id: str, root_id: str, project_name: str) -> str | None:
        """Return the URL of a trajectory's page; None if there is none, or if finding it takes a request.

        It is called on the caller's thread: never make a request here.

        Args:
            trace_id: The trace's id, 32 hexadecimal digits.
            root_id: The root span's id, 16 hexadecimal digits.
            project_name: The project of the trajectory.
        """
        return None

    def expect_repeats(self) -> None:
        """Ask the backend before each batch which of its spans it has: a replay may send some once more."""
        return

    def add_counts(self, stats: ExporterStats) -> ExporterStats:
        """Return the counts of its queue, with those that only the exporter has."""
        return replace(stats, preparing=self.preparing) if stats.recorded > stats.delivered else stats

    def force_flush(self, timeout_millis: int = 30_000) -> bool:
        """Wait for follow-up requests; True if they are done."""
        return self.follow_up_requests is None or self.follow_up_requests.flush(timeout_millis / 1000)


def refused_here(error: Exception) -> Outcome:
    """Return the outcome of a batch that can't be encoded, so that nothing was sent: halving it finds the span."""
    return Outcome(Verdict.REFUSED, f"a span can't be encoded: {type(error).__name__}: {error}")


def one_attempt_of(exporter: SpanExporter) -> Callable[[Sequence[ReadableSpan]], Outcome]:
    """Return a function that makes one attempt to deliver spans by any exporter and returns the outcome."""
    if isinstance(exporter, OutcomeSpanExporter):
        return exporter.send

    def attempt(spans: Sequence[ReadableSpan]) -> Outcome:
        result: Any = exporter.export(spans)
        if result is None:
            # The SDK ignores results: exporters without one work there, and a retry would store spans twice.
            name = type(exporter).__name__
            warn_once(
                f"result of {name}", "%s.export() returned None, which is taken for SpanExportResult.SUCCESS", name
            )
            return DELIVERED
        if result is SpanExportResult.SUCCESS:
            return DELIVERED
        return Outcome(Verdict.UNEXPLAINED, f"export() returned {result}")

    return attempt


def settings_of(exporter: object) -> Sequence[Setting]:
    """Return the settings that an exporter, or its class, reads from the environment; none if it isn't one of ours."""
    kind = exporter if isinstance(exporter, type) else type(exporter)
    return kind.variables if issubclass(kind, OutcomeSpanExporter) else ()


def destination_of(exporter: SpanExporter) -> str | None:
    """Return the secret-free id of an exporter's destination, if it has one; equal ids mean the same destination."""
    return getattr(exporter, "destination", None) if isinstance(exporter, OutcomeSpanExporter) else None
