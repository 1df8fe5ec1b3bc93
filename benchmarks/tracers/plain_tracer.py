"""The measure of all: an SDK span and `json.dumps`, as one writes it by hand, with the attributes that ours sets."""

from __future__ import annotations

import functools
import inspect
import json
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from opentelemetry.trace import NoOpTracerProvider, Span

from benchmarks.tracers.tracer import BenchmarkTracer, StockExporter, Transport
from benchmarks.workloads import ROLLOUT_N, SAMPLE_INDEX, STEP

TAGS = {
    "openinference.span.kind": "CHAIN",
    "rollout.step": STEP,
    "rollout.sample_index": SAMPLE_INDEX,
    "rollout.rollout_n": ROLLOUT_N,
    "rollout.validate": False,
    "rollout.experiment_name": "benchmark",
}


class PlainTracer(BenchmarkTracer):
    """OpenTelemetry's SDK with its batch processor.

    Args:
        to_json: Encodes arguments and result.
    """

    def __init__(self, to_json: Callable[[Any], str] = json.dumps) -> None:
        self._to_json = to_json

    def start(self, transport: Transport) -> None:
        self._provider = TracerProvider(resource=Resource.create({"service.name": "benchmark"}))
        self._provider.add_span_processor(BatchSpanProcessor(StockExporter(transport)))
        self._tracer = self._provider.get_tracer("benchmark")

    def start_off(self) -> None:
        self._tracer = NoOpTracerProvider().get_tracer("benchmark")

    def trace(self, function: Callable[..., Any]) -> Callable[..., Any]:
        tracer, name, to_json = self._tracer, function.__qualname__, self._to_json
        if inspect.iscoroutinefunction(function):

            @functools.wraps(function)
            async def traced_async(messages: Any, temperature: float = 1.0) -> Any:
                with tracer.start_as_current_span(name, attributes=TAGS) as span:
                    _set(span, to_json, "input", {"messages": messages, "temperature": temperature})
                    result = await function(messages, temperature)
                    _set(span, to_json, "output", result)
                    return result

            return traced_async

        @functools.wraps(function)
        def traced(messages: Any, temperature: float = 1.0) -> Any:
            with tracer.start_as_current_span(name, attributes=TAGS) as span:
                _set(span, to_json, "input", {"messages": messages, "temperature": temperature})
                result = function(messages, temperature)
                _set(span, to_json, "output", result)
                return result

        return traced

    def trajectory(self) -> AbstractContextManager[Any]:
        return self._tracer.start_as_current_span("trajectory", attributes=TAGS)

    def flush(self) -> None:
        self._provider.force_flush()


def _set(span: Span, to_json: Callable[[Any], str], side: str, value: Any) -> None:
    if span.is_recording():
        span.set_attribute(f"{side}.value", to_json(value))
        span.set_attribute(f"{side}.mime_type", "application/json")


TRACER = PlainTracer
