"""Traceloop's SDK (OpenLLMetry): `@task` in a `@workflow`."""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

from benchmarks.tracers.tracer import BenchmarkTracer, StockExporter, Transport

os.environ.update(
    TRACELOOP_METRICS_ENABLED="false",
    TRACELOOP_LOGGING_ENABLED="false",
    TRACELOOP_TELEMETRY="false",
    TRACELOOP_SUPPRESS_WARNINGS="true",
)


class TraceloopTracer(BenchmarkTracer):
    """Spans only: its metrics, logs and usage reports are off."""

    def start(self, transport: Transport) -> None:
        from traceloop.sdk import Traceloop

        Traceloop.init(
            "benchmark", exporter=StockExporter(transport), api_key="none", telemetry_enabled=False, instruments=set()
        )

    def start_off(self) -> None:
        from traceloop.sdk import Traceloop

        Traceloop.init("benchmark", enabled=False, telemetry_enabled=False)

    def trace(self, function: Callable[..., Any]) -> Callable[..., Any]:
        from traceloop.sdk.decorators import task

        return task(name=function.__qualname__)(function)

    def trajectory(self) -> AbstractContextManager[Any]:
        from opentelemetry import trace

        return trace.get_tracer("benchmark").start_as_current_span("trajectory")

    def flush(self) -> None:
        from opentelemetry import trace

        trace.get_tracer_provider().force_flush()  # type: ignore[attr-defined]  # the SDK's


TRACER = TraceloopTracer
