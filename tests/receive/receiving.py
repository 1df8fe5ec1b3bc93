"""A receiver in a process of its own, and requests as OpenTelemetry's exporters make them."""

from __future__ import annotations

import gzip
import http.client
import os
import signal
import ssl
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import urlsplit

import zstandard
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.trace.v1.trace_pb2 import Span

import otel_rollout
from otel_rollout.otlp import json_of_request
from tests.trace_folder.writing import requests_in, spans_in

PROTOBUF, JSON = "application/x-protobuf", "application/json"
START = 1_700_000_000_000_000_000
_ENCODERS = {
    "": lambda body: body,
    "gzip": gzip.compress,
    # One for each call: a compressor that two threads use at once ends the process.
    "zstd": lambda body: zstandard.ZstdCompressor().compress(body),
}


class Answer(NamedTuple):
    """An HTTP answer."""

    status: int
    body: bytes
    headers: Mapping[str, str]


def trace_id(number: int) -> bytes:
    """Return the id of a trace."""
    return b"\x0a" + number.to_bytes(15, "big")


def span_id(trace: int, number: int) -> bytes:
    """Return the id of a trace's span."""
    return trace.to_bytes(4, "big") + (number + 1).to_bytes(4, "big")


def make_span(trace: int, number: int, *, parent: int | None = 0, name: str = "op", **attributes: Any) -> Span:
    """Return a span; number 0 is its trace's root."""
    span = Span(
        trace_id=trace_id(trace),
        span_id=span_id(trace, number),
        parent_span_id=b"" if number == 0 or parent is None else span_id(trace, parent),
        name="root" if number == 0 else name,
        kind=Span.SPAN_KIND_INTERNAL,
        start_time_unix_nano=START + number,
        end_time_unix_nano=START + 1000 + number,
        flags=0x101,
    )
    for key, value in attributes.items():
        pair = span.attributes.add(key=key.replace("__", "."))
        setattr(pair.value, {str: "string_value", bool: "bool_value", int: "int_value"}[type(value)], value)
    return span


def make_trace(trace: int, spans: int = 4, **attributes: Any) -> list[Span]:
    """Return the spans of a trace, the root last."""
    return [make_span(trace, number, **attributes) for number in [*range(1, spans), 0]]


def make_request(spans: Iterable[Span], service: str = "a-service") -> ExportTraceServiceRequest:
    """Return a request with spans of one process."""
    request = ExportTraceServiceRequest()
    resource_spans = request.resource_spans.add()
    resource_spans.resource.attributes.add(key="service.name").value.string_value = service
    scope_spans = resource_spans.scope_spans.add()
    scope_spans.scope.name = "a-library"
    scope_spans.spans.extend(spans)
    return request


def as_json(request: ExportTraceServiceRequest) -> bytes:
    """Return a request as OTLP JSON."""
    return json_of_request(request.SerializeToString())


class ReceiverProcess:
    """`otel-rollout receive` on a free port.

    Args:
        folder: Its trace folder.
        *options: More of its command line.
        environment: Variables beside those of this process.
        context: How a TLS client checks its certificate.
    """

    def __init__(
        self,
        folder: Path,
        *options: str,
        environment: Mapping[str, str] | None = None,
        context: ssl.SSLContext | None = None,
    ) -> None:
        self.folder = folder
        self._context = context
        self.process = subprocess.Popen(
            [sys.executable, "-m", "otel_rollout.cli", "receive", str(folder), "--port", "0", *options],
            env={**os.environ, **(environment or {})},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        first = self.process.stdout.readline()
        assert first.startswith("receiving at "), self.process.stderr.read()
        self.url = first.split()[2]

    def send(
        self,
        spans: Iterable[Span] | ExportTraceServiceRequest | bytes,
        *,
        form: str = PROTOBUF,
        encoding: str = "",
        **headers: str,
    ) -> Answer:
        """Send spans, a request or a body as it is, and return the answer."""
        if isinstance(spans, bytes):
            body = spans
        else:
            request = spans if isinstance(spans, ExportTraceServiceRequest) else make_request(spans)
            body = _ENCODERS[encoding](request.SerializeToString() if form == PROTOBUF else as_json(request))
        return self.ask(
            "POST",
            body=body,
            **{"Content-Type": form, **({"Content-Encoding": encoding} if encoding else {}), **headers},
        )

    def ask(self, method: str, path: str = "/v1/traces", body: bytes | None = None, **headers: str) -> Answer:
        """Make a request and return the answer."""
        url = urlsplit(self.url)
        if url.scheme == "https":
            connection = http.client.HTTPSConnection(url.hostname, url.port, timeout=300, context=self._context)
        else:
            connection = http.client.HTTPConnection(url.hostname, url.port, timeout=300)
        try:
            connection.request(method, path, body, {key.replace("_", "-"): value for key, value in headers.items()})
            answer = connection.getresponse()
            return Answer(answer.status, answer.read(), dict(answer.headers))
        finally:
            connection.close()

    def stop(self, number: int = signal.SIGTERM) -> tuple[int, str]:
        """End it with a signal, and return its exit code and what it printed."""
        self.process.send_signal(number)
        out, error = self.process.communicate(timeout=300)
        return self.process.returncode, out + error

    def close(self) -> None:
        """Kill it if it runs."""
        if self.process.poll() is None:
            self.process.kill()
        self.process.communicate()


def stored(folder: Path) -> dict[str, Counter[str]]:
    """Return how often each span is read from a folder, by trace."""
    return {
        each.trace_id: Counter(f"{span.context.span_id:016x}" for span in each.spans)
        for each in otel_rollout.read_trajectories(folder)
    }


def ids_of(spans: Iterable[Span]) -> dict[str, dict[str, int]]:
    """Return the same of spans that were sent, each once."""
    ids: dict[str, dict[str, int]] = {}
    for span in spans:
        ids.setdefault(span.trace_id.hex(), {})[span.span_id.hex()] = 1
    return ids


def requests_in_frames(folder: Path) -> list[bytes]:
    """Return all requests in the folder's files of trajectories."""
    paths = sorted(path for path in folder.rglob("*.otlp.zst") if path.parent.name != "open")
    return [request for path in paths for request in requests_in(path)]


def spans_in_frames(folder: Path) -> Counter[str]:
    """Return how often each span is in the folder's files of trajectories."""
    return Counter(span.span_id.hex() for request in requests_in_frames(folder) for span in spans_in(request))


def wait_until(condition: Any, seconds: float = 30.0) -> None:
    """Wait until a condition holds."""
    until = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < until, "it did not come to that"
        time.sleep(0.05)
