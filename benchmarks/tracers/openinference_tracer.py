"""OpenInference's tracer, as Phoenix sets it up: `@tracer.chain`."""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

from opentelemetry.sdk.trace.export import BatchSpanProcessor

from benchmarks.tracers.tracer import BenchmarkTracer, StockExporter, Transport


class OpenInferenceTracer(BenchmarkTracer):
    """Its own provider and tracer over the SDK's batch processor."""

    def start(self, transport: Transport) -> None:
        from openinference.instrumentation import TracerProvider

        self._provider = TracerProvider()
        self._provider.add_span_processor(BatchSpanProcessor(StockExporter(transport)))
        self._tracer = self._provider.get_tracer("benchmark")

    def start_off(self) -> None:
        from openinference.instrumentation import TracerProvider

        os.environ["OTEL_SDK_DISABLED"] = "true"
        self._provider = TracerProvider()
        self._tracer = self._provider.get_tracer("benchmark")

    def trace(self, function: Callable[..., Any]) -> Callable[..., Any]:
        return self._tracer.chain(function)

    def trajectory(self) -> AbstractContextManager[Any]:
        return self._tracer.start_as_current_span("trajectory", openinference_span_kind="agent")

    def flush(self) -> None:
        self._provider.force_flush()


TRACER = OpenInferenceTracer
