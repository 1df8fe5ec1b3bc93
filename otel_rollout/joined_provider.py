"""Joins an application's tracer provider: its sampler decides, and its processors get our ended spans.

Our spans are recorded and finished as on our own provider; then they are made again as spans of the SDK, by the SDK.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from opentelemetry.context import Context
from opentelemetry.sdk.trace import ReadableSpan, SpanLimits, SpanProcessor
from opentelemetry.sdk.trace.export import SpanExporter, SpanExportResult
from opentelemetry.sdk.trace.id_generator import IdGenerator
from opentelemetry.sdk.trace.sampling import ALWAYS_ON, DEFAULT_ON, Sampler
from opentelemetry.trace import INVALID_SPAN_CONTEXT, NonRecordingSpan, SpanContext, set_span_in_context

from otel_rollout import semconv
from otel_rollout.deliver.span_outbox import SpanOutbox
from otel_rollout.export.genai_additions import tool_call_attributes
from otel_rollout.guard.log_once import internal_error
from otel_rollout.record.finished_span import CountedSpan
from otel_rollout.record.provider import SCOPE

QUEUE_NAME: Final = "the application's tracer provider"
_OURS: Final = frozenset(attribute.key for attribute in semconv.ATTRIBUTES)


class JoinedProvider:
    """An application's provider, as far as tracing needs it.

    Args:
        provider: The provider.
    """

    def __init__(self, provider: Any) -> None:
        self.provider = provider
        self.tracer: Any = provider.get_tracer(SCOPE.name, SCOPE.version, schema_url=SCOPE.schema_url)
        inner: Any = self.tracer
        while inner is not None and not hasattr(inner, "id_generator"):
            # A tracer in front of the SDK's, such as logfire's.
            inner = getattr(inner, "tracer", None)
        self._inner = inner
        sampler = getattr(inner, "sampler", None)
        self.sampler: Sampler = sampler if isinstance(sampler, Sampler) else DEFAULT_ON
        limits = getattr(inner, "_span_limits", None)
        self.limits: SpanLimits | None = limits if isinstance(limits, SpanLimits) else None

    def is_sdks(self) -> bool:
        """Return True if it makes spans of the SDK, whose ids can be given."""
        return self._inner is not None

    def make(self, span: ReadableSpan) -> None:
        """Make a span of the provider that is equal to an ended one; its processors get it."""
        if self._inner is not None:
            # Set each time: our own global provider renews the sampler of its tracers.
            self._inner.sampler, self._inner.id_generator = ALWAYS_ON, _GivenIds(span.get_span_context())
        given = {**(span.attributes or {})}
        if given.get(semconv.SPAN_KIND) == "TOOL":
            given.update(tool_call_attributes(given))
        # At its limit the SDK drops the oldest: what the program set, before the tags and the payload.
        attributes = {key: value for key, value in given.items() if key not in _OURS} | given
        # For processors that read baggage, or values of their own, in the context of the start.
        context = (span.start_context if isinstance(span, CountedSpan) else None) or Context()
        context = set_span_in_context(NonRecordingSpan(span.parent or INVALID_SPAN_CONTEXT), context)
        made = self.tracer.start_span(
            span.name,
            context=context,
            kind=span.kind,
            attributes=attributes,
            links=span.links,
            start_time=span.start_time,
            set_status_on_exception=False,
        )
        for event in span.events:
            made.add_event(event.name, event.attributes, event.timestamp)
        if not span.status.is_unset:
            made.set_status(span.status)
        made.end(span.end_time)

    def flush_before_it(self, queue: SpanOutbox) -> None:
        """Let the provider's `force_flush` and `shutdown` wait for a queue before its own processors end."""
        processors: Any = None
        provider = self.provider
        while provider is not None and processors is None:
            processors = getattr(provider, "_active_span_processor", None)
            # A provider in front of the SDK's, such as logfire's.
            provider = getattr(provider, "provider", None)
        known = getattr(processors, "_span_processors", None)
        if not isinstance(known, tuple):
            return
        for processor in known:
            if isinstance(processor, _FlushFirst):
                processor.queue = queue
                return
        # The SDK's door adds to the end, where all others are shut down already.
        processors._span_processors = (_FlushFirst(queue), *known)  # noqa: SLF001 - it has no other door


class HandOver(SpanExporter):
    """Hands ended spans over to a provider, on the thread of its own queue.

    Args:
        joined: The provider.
    """

    def __init__(self, joined: JoinedProvider) -> None:
        self._joined = joined

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        """Make each span again; one that a processor of the application refuses is counted."""
        for span in spans:
            try:
                self._joined.make(span)
            except Exception:  # noqa: PERF203 - of a processor of the application, of any class
                internal_error("handing a span to the application's tracer provider")
        return SpanExportResult.SUCCESS

    def shutdown(self) -> None:
        """Do nothing: the provider is the application's."""

    def force_flush(self, timeout_millis: int = 30_000) -> bool:
        """Return True: nothing waits here."""
        return True


class _GivenIds(IdGenerator):
    """Gives a span the ids that it has.

    Args:
        context: The ids.
    """

    def __init__(self, context: SpanContext | None) -> None:
        self._context = context

    def generate_trace_id(self) -> int:
        """Return the trace's id."""
        return 0 if self._context is None else self._context.trace_id

    def generate_span_id(self) -> int:
        """Return the span's id."""
        return 0 if self._context is None else self._context.span_id

    def is_trace_id_random(self) -> bool:
        """Return True: all bits are random."""
        return True


class _FlushFirst(SpanProcessor):
    """Delivers what waits in a queue before the provider's other processors flush or end.

    Args:
        queue: The queue.
    """

    def __init__(self, queue: SpanOutbox) -> None:
        self.queue = queue

    def shutdown(self) -> None:
        """Deliver what waits."""
        self.force_flush()

    def force_flush(self, timeout_millis: int = 30_000) -> bool:
        """Deliver what waits; return False if it takes longer."""
        self.queue.retry_now()
        return self.queue.flush(timeout_millis / 1000)
