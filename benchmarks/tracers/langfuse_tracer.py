"""Langfuse: `@observe()`."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

from benchmarks.tracers.tracer import BenchmarkTracer, StockExporter, Transport

NOWHERE = "http://127.0.0.1:9"
"""Nothing listens there; spans go to the exporter that is given."""


class LangfuseTracer(BenchmarkTracer):
    """Its client with an exporter of ours."""

    def start(self, transport: Transport) -> None:
        from langfuse import Langfuse

        self._client = Langfuse(
            public_key="pk", secret_key="sk", base_url=NOWHERE, span_exporter=StockExporter(transport)
        )

    def start_off(self) -> None:
        from langfuse import Langfuse

        self._client = Langfuse(public_key="pk", secret_key="sk", base_url=NOWHERE, tracing_enabled=False)

    def trace(self, function: Callable[..., Any]) -> Callable[..., Any]:
        from langfuse import observe

        return observe()(function)

    def trajectory(self) -> AbstractContextManager[Any]:
        return self._client.start_as_current_observation(name="trajectory")

    def flush(self) -> None:
        self._client.flush()


TRACER = LangfuseTracer
