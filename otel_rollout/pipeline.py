"""The pipeline of a configured process: a tracer, and the queues of its finished spans."""

from __future__ import annotations

import copy
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from opentelemetry.sdk.trace import ReadableSpan, SpanProcessor
from opentelemetry.sdk.trace.export import SpanExporter
from opentelemetry.trace import TracerProvider

from otel_rollout.counts import Stats
from otel_rollout.deliver.span_outbox import SpanOutbox
from otel_rollout.finish.span_conversion import SpanReader
from otel_rollout.guard.background_thread import call_within
from otel_rollout.guard.clock import monotonic
from otel_rollout.guard.log_once import internal_errors, pass_on
from otel_rollout.guard.safe_logger import SafeLogger
from otel_rollout.record import runtime
from otel_rollout.record.bounded_copy import DEFAULT_BUDGET
from otel_rollout.record.fields import fields_of
from otel_rollout.record.open_trajectories import OpenTrajectories
from otel_rollout.record.provider import SCOPE, GlobalProvider, resource_of_child
from otel_rollout.record.tracer import OpenSpans, RolloutTracer
from otel_rollout.settings import Settings
from otel_rollout.text.plain_text import counted

_logger = SafeLogger()

SECONDS_AT_END: Final = 30.0
MAX_SECONDS_AT_END: Final = 300.0
"""With a new database that is being made."""
SECONDS_UNTIL_A_LINE: Final = 3.0
SECONDS_BETWEEN_LINES: Final = 10.0
SECONDS_BETWEEN_LOOKS: Final = 0.1


@dataclass(eq=False)
class Pipeline:
    """Everything between a decorated function and the exporters.

    Args:
        run: The run's part of a group id.
        project_name: The project.
        experiment_name: The experiment, a tag of every trajectory.
        settings: The settings.
        tracer: Makes spans.
        queues: One per exporter.
        provider: The provider of the spans.
        outlets: The queues, and one more if a provider is joined; each takes every ended span.
        reader: Converts recording spans to `ReadableSpan`s.
        open_spans: Counts recording spans.
        open_trajectories: Tracks the running trajectories.
    """

    run: str
    project_name: str
    experiment_name: str
    settings: Settings
    tracer: RolloutTracer
    queues: list[SpanOutbox]
    provider: TracerProvider
    outlets: list[SpanOutbox]
    reader: SpanReader
    open_spans: OpenSpans
    open_trajectories: OpenTrajectories

    def __post_init__(self) -> None:
        self.snapshot_budget = max(DEFAULT_BUDGET, self.settings.max_payload_bytes)
        # By `id`, with the original: another tokenizer may get the `id` of a freed one.
        self._tokenizer_copies: dict[int, tuple[Any, Any]] = {}
        self.token2text = self.settings.token2text

    @property
    def exporters(self) -> dict[str, SpanExporter]:
        """The exporters by their names in logs and statistics."""
        return {queue.name: queue.exporter for queue in self.queues}

    def copy_tokenizer(self, tokenizer: Any) -> Any:
        """Return the delivery thread's copy of a tokenizer that other threads use.

        Args:
            tokenizer: The tokenizer.

        Raises:
            Exception: It can't be copied; it isn't used then.
        """
        _, own = self._tokenizer_copies.get(id(tokenizer), (tokenizer, None))
        if own is None:
            self._tokenizer_copies[id(tokenizer)] = tokenizer, None
            own = copy.deepcopy(tokenizer)
            self._tokenizer_copies[id(tokenizer)] = tokenizer, own
        return own

    def tokenizer_of(self, receiver: Any) -> Any:
        """Return the tokenizer of an op's `self` for the delivery thread; None if it has none."""
        tokenizer = fields_of(receiver).get("tokenizer")
        _, tokenizer = self._tokenizer_copies.get(id(tokenizer), (tokenizer, tokenizer))
        return tokenizer

    def request_flush(self) -> None:
        """Ask every queue to send its spans soon, without waiting for it."""
        for queue in self.outlets:
            queue.retry_now()

    def flush(self, timeout: float) -> bool:
        """Wait until every queue is settled; return True if every backend has every span.

        Args:
            timeout: The longest wait for all queues together, in seconds.
        """
        deadline = monotonic() + timeout
        is_whole = flush_queues(self.outlets, timeout)
        return self._flush_provider(deadline - monotonic()) and is_whole

    def _flush_provider(self, timeout: float) -> bool:
        force_flush = getattr(self.provider, "force_flush", None)
        if self.queues or force_flush is None:
            return True
        # The exporters are the application's.
        return bool(call_within(timeout, lambda: force_flush(int(timeout * 1000))))

    @property
    def seconds(self) -> float:
        """The longest wait if none is given."""
        given = self.settings.shutdown_timeout_ms
        return SECONDS_AT_END if given is None else given / 1000

    def shutdown(self, timeout: float | None = None) -> bool:
        """Deliver the queued spans and end the threads; return True if every backend has every span.

        Args:
            timeout: The longest wait for all queues together, in seconds; if None, the setting's, which begins when
                backends are ready for the first span.
        """
        if timeout is None and self.settings.shutdown_timeout_ms is None:
            await_ready(self.queues, MAX_SECONDS_AT_END - SECONDS_AT_END)
        seconds = self.seconds if timeout is None else timeout
        deadline = monotonic() + seconds
        is_whole = shutdown_queues(self.outlets, seconds)
        return self._flush_provider(deadline - monotonic()) and is_whole

    def after_fork(self) -> None:
        """Start empty in a forked child."""
        self.open_spans.after_fork()
        self.open_trajectories.after_fork()
        self.reader.resource = resource_of_child(self.reader.resource, self.settings.run_id)
        if runtime.pipeline is self:
            runtime.resource = self.reader.resource
        if isinstance(self.provider, GlobalProvider):
            self.provider.renew(self.reader.resource)
        self.reader.after_fork()
        for queue in self.outlets:
            queue.after_fork()

    def stats(self) -> Stats:
        """Return the counts so far."""
        return Stats(
            exporters={queue.name: queue.stats() for queue in self.queues},
            truncated_bytes=self.reader.truncated_bytes,
            redacted=self.reader.redacted,
            internal_errors=dict(internal_errors),
            open_spans=self.open_spans.count,
            has_external_exporters=not self.queues,
        )


class QueueProcessor(SpanProcessor):
    """Puts the spans of an SDK provider into our queues; a provider has one, as it can't remove any."""

    def __init__(self) -> None:
        self.queues: Sequence[SpanOutbox] = ()

    def on_end(self, span: ReadableSpan) -> None:
        """Queue a span of another instrumentation; ours are queued already."""
        pipeline = runtime.pipeline
        is_on = isinstance(pipeline, Pipeline) and pipeline.queues is self.queues
        scope = span.instrumentation_scope
        is_ours = scope is not None and scope.name == SCOPE.name
        if not is_on or is_ours or span.context is None or not span.context.trace_flags.sampled:
            return
        try:
            for queue in self.queues:
                queue.put(span)
        except BaseException:
            pass_on("queueing another instrumentation's span")

    def shutdown(self) -> None:
        """Deliver the queued spans: the provider is shut down before us."""
        pipeline = runtime.pipeline
        if isinstance(pipeline, Pipeline) and pipeline.queues is self.queues:
            pipeline.shutdown()
        else:
            shutdown_queues(self.queues, SECONDS_AT_END)

    def force_flush(self, timeout_millis: int = 30_000) -> bool:
        """Wait until the queues are settled."""
        return flush_queues(self.queues, timeout_millis / 1000)


def flush_queues(queues: Sequence[SpanOutbox], timeout: float) -> bool:
    """Wait until every queue is settled; return True if every backend has every span.

    Args:
        queues: The queues; all send simultaneously, so that a slow one doesn't delay the others.
        timeout: The longest wait for all together, in seconds.
    """
    deadline = monotonic() + timeout
    for queue in queues:
        queue.retry_now()
    results = [queue.flush(max(0.0, deadline - monotonic())) for queue in queues]
    return all(results)


def await_ready(queues: Sequence[SpanOutbox], seconds: float) -> None:
    """Wait while backends that spans wait for are being made ready for them, such as a database without tables.

    A spool keeps the spans that there is no time for, and so nobody waits.

    Args:
        queues: The queues; all send meanwhile.
        seconds: The longest wait.
    """
    for queue in queues:
        queue.retry_now()
    now = began = monotonic()
    line_at = began + SECONDS_UNTIL_A_LINE
    while now - began < seconds and (waiting := {queue.name: queue for queue in queues if queue.preparing}):
        if now >= line_at:
            line_at = now + SECONDS_BETWEEN_LINES
            for name, queue in waiting.items():
                _logger.warning(
                    "%s: %s; the end of the process waits for that, %.0f s more at most, and then for %s; Ctrl-C ends "
                    "the wait",
                    name,
                    queue.preparing,
                    seconds - (now - began),
                    counted(queue.stats().queued, "span"),
                )
        time.sleep(SECONDS_BETWEEN_LOOKS)
        now = monotonic()


def shutdown_queues(queues: Sequence[SpanOutbox], timeout: float) -> bool:
    """Deliver the queued spans and end the threads; return True if every backend has every span.

    Args:
        queues: The queues.
        timeout: The longest wait for all together, in seconds.
    """
    deadline = monotonic() + timeout
    for queue in queues:
        queue.shutdown(deadline)
    results = [queue.join() for queue in queues]
    return all(results)
