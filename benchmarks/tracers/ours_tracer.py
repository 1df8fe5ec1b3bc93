"""otel-rollout with its defaults."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import Any

import otel_rollout
from benchmarks.tracers.tracer import BenchmarkTracer, Transport
from benchmarks.workloads import ROLLOUT_N, SAMPLE_INDEX, STEP
from opentelemetry.sdk.trace import ReadableSpan
from otel_rollout.delivery.outcome import DELIVERED, Outcome
from otel_rollout.exporter import OutcomeSpanExporter
from otel_rollout.otlp_encoding import encode_spans


class EncodingExporter(OutcomeSpanExporter):
    """Encodes as our OTLP exporters do, and sends nothing."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport

    def send(self, spans: Sequence[ReadableSpan]) -> Outcome:
        self._transport.wait()
        self._transport.take(len(spans), encode_spans(spans).SerializeToString())
        return DELIVERED

    def shutdown(self) -> None:
        """Nothing to close."""


class OurTracer(BenchmarkTracer):
    """The decorator and the trajectory of otel-rollout."""

    def start(self, transport: Transport) -> None:
        otel_rollout.init("benchmark", "benchmark", backend=EncodingExporter(transport))

    def start_off(self) -> None:
        """Off is what a program has that never calls `init`."""

    def trace(self, function: Callable[..., Any]) -> Callable[..., Any]:
        return otel_rollout.rollout_trace_op(function)

    def trajectory(self) -> AbstractContextManager[Any]:
        return otel_rollout.rollout_trace_attr(SAMPLE_INDEX, STEP, ROLLOUT_N)

    def flush(self) -> None:
        otel_rollout.flush(timeout=60)

    def stop(self) -> None:
        otel_rollout.shutdown(timeout=0.5)


TRACER = OurTracer
