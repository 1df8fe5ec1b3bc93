"""What the measurements ask of a tracer, and an exporter that encodes for nobody."""

from __future__ import annotations

import abc
import threading
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any

from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export import SpanExporter, SpanExportResult


class Transport:
    """Where requests would leave the process: counts spans, and holds exporters back while it is closed."""

    def __init__(self) -> None:
        self.open = threading.Event()
        self.open.set()
        self.spans = 0
        self.bytes = 0

    def wait(self) -> None:
        """Block the exporter until the transport is open."""
        self.open.wait()

    def take(self, spans: int, body: bytes) -> None:
        """Count a request."""
        self.spans += spans
        self.bytes += len(body)


class StockExporter(SpanExporter):
    """Encodes with the SDK's encoder, as its OTLP exporters do, and sends nothing."""

    def __init__(self, transport: Transport) -> None:
        from opentelemetry.exporter.otlp.proto.common.trace_encoder import encode_spans

        self._encode = encode_spans
        self._transport = transport

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        self._transport.wait()
        self._transport.take(len(spans), self._encode(spans).SerializeToString())
        return SpanExportResult.SUCCESS

    def shutdown(self) -> None:
        """Nothing to close."""


class BenchmarkTracer(abc.ABC):
    """One tracer, set up as its documentation says, in a process of its own."""

    @abc.abstractmethod
    def start(self, transport: Transport) -> None:
        """Set up tracing into an exporter that leads to `transport`."""

    @abc.abstractmethod
    def start_off(self) -> None:
        """Set up what a program has in which tracing is switched off."""

    @abc.abstractmethod
    def trace(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """Return `function` traced, arguments and result captured."""

    def trajectory(self) -> AbstractContextManager[Any]:
        """Return what stands around a group of calls."""
        return nullcontext()

    @abc.abstractmethod
    def flush(self) -> None:
        """Bring all spans to the exporter."""
