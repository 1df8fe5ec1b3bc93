"""otel-rollout with its defaults and its OTLP exporter."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from typing import Any

from opentelemetry.sdk.trace import ReadableSpan

import otel_rollout
from benchmarks.tracers.tracer import BenchmarkTracer, Transport
from benchmarks.workloads import ROLLOUT_N, SAMPLE_INDEX, STEP
from otel_rollout.export.http import HttpAnswer
from otel_rollout.export.outcome import Outcome
from otel_rollout_otlp import OtlpHttpSpanExporter


class NoConnection:
    """Stands where the exporter's HTTP client is, and answers that all went well."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport

    def request(self, method: str, url: str, body: bytes, headers: dict[str, str]) -> HttpAnswer:
        self._transport.take(0, body)
        return HttpAnswer(200)

    def close(self) -> None:
        """Nothing to close."""


class EncodingExporter(OtlpHttpSpanExporter):
    """Encodes as it always does, and sends nothing."""

    def __init__(self, transport: Transport) -> None:
        super().__init__()
        self._transport = transport
        client: Any = NoConnection(transport)
        self._sender = replace(self._sender, client=client)

    def send(self, spans: Sequence[ReadableSpan]) -> Outcome:
        self._transport.wait()
        outcome = super().send(spans)
        self._transport.take(len(spans), b"")
        return outcome


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


TRACER = OurTracer
