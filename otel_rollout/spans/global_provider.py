"""Our provider as the process's global one (`set_global`)."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import Any
from weakref import WeakSet

from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import SpanLimits, SpanProcessor
from opentelemetry.sdk.trace import TracerProvider as SdkTracerProvider
from opentelemetry.sdk.trace.sampling import Sampler
from opentelemetry.trace import Tracer

from otel_rollout.spans.ids import SystemIdGenerator

__all__ = ["GlobalProvider"]


class GlobalProvider(SdkTracerProvider):
    """A provider that a later `init` renews: OpenTelemetry lets nobody put another in its place.

    Args:
        processor: Brings its spans to our queues.
        resource: What spans are made by.
        sampler: Decides at the root of each trace.
        limits: The limits of spans.
        on_other_processor: Called when the application has added a processor.
    """

    def __init__(
        self,
        processor: SpanProcessor,
        resource: Resource,
        sampler: Sampler,
        limits: SpanLimits,
        on_other_processor: Callable[[], None],
    ) -> None:
        super().__init__(
            resource=resource,
            sampler=sampler,
            id_generator=SystemIdGenerator(),
            span_limits=limits,
            shutdown_on_exit=False,
        )
        super().add_span_processor(processor)
        self.processor = processor
        self.has_other_processors = False
        self._on_other_processor = on_other_processor
        self._made: WeakSet[Any] = WeakSet()
        self._renewed = resource

    @property
    def resource(self) -> Resource:
        """What spans are made by, as the last `init` said."""
        return self._renewed

    def renew(self, resource: Resource, sampler: Sampler | None = None) -> None:
        """Have all tracers go by another resource, and sampler if one is given."""
        self._renewed, self.sampler = resource, sampler or self.sampler
        for tracer in self._tracers_made():
            self._equip(tracer)

    def get_tracer(self, *args: Any, **kwargs: Any) -> Tracer:
        """Return a tracer, which later calls of `renew` reach too."""
        tracer = super().get_tracer(*args, **kwargs)
        self._equip(tracer)
        self._made.add(tracer)
        return tracer

    def add_span_processor(self, span_processor: SpanProcessor) -> None:
        """Add a processor of the application's, which gets our spans as well: they are the SDK's from now on."""
        super().add_span_processor(span_processor)
        self.has_other_processors = True
        self._on_other_processor()

    def _equip(self, tracer: Any) -> None:
        tracer.resource, tracer.sampler = self._renewed, self.sampler

    def _tracers_made(self) -> list[Any]:
        tracers: list[Any] | None = None
        while tracers is None:
            # Another thread may ask for a tracer meanwhile.
            with suppress(RuntimeError):
                tracers = list(self._made)
        return tracers
