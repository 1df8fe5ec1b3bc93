"""Logfire: `@logfire.instrument(record_return=True)`."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

from opentelemetry.sdk.trace.export import BatchSpanProcessor

from benchmarks.tracers.tracer import BenchmarkTracer, StockExporter, Transport


class LogfireTracer(BenchmarkTracer):
    """Without its cloud, console and metrics."""

    def start(self, transport: Transport) -> None:
        self._configure([BatchSpanProcessor(StockExporter(transport))])

    def start_off(self) -> None:
        from logfire import suppress_instrumentation

        self._configure([])
        self._suppression = suppress_instrumentation()
        self._suppression.__enter__()

    def _configure(self, processors: list[BatchSpanProcessor]) -> None:
        import logfire

        logfire.configure(
            send_to_logfire=False,
            console=False,
            metrics=False,
            inspect_arguments=False,
            additional_span_processors=processors,
        )

    def trace(self, function: Callable[..., Any]) -> Callable[..., Any]:
        import logfire

        return logfire.instrument(record_return=True)(function)

    def trajectory(self) -> AbstractContextManager[Any]:
        import logfire

        return logfire.span("trajectory")

    def flush(self) -> None:
        import logfire

        logfire.force_flush()


TRACER = LogfireTracer
