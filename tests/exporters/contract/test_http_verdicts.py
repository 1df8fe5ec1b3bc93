"""The verdict of every exporter over HTTP on an answer to spans: delivered is what the protocol says, nothing else."""

from __future__ import annotations

import gzip
import http.server
import importlib
import json
import os
import threading
from contextlib import contextmanager, suppress

import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTracePartialSuccess,
    ExportTraceServiceResponse,
)
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.trace import SpanContext, TraceFlags

PAGE = b"<!DOCTYPE html>\n<html><body>Please log in</body></html>"
REJECTED = ExportTraceServiceResponse(
    partial_success=ExportTracePartialSuccess(rejected_spans=1, error_message="too old")
).SerializeToString()
BOMB = gzip.compress(bytes(40_000_000), 1)

EXPORTERS = {
    "otlp": "otel_rollout_otlp.http_exporter:OtlpHttpSpanExporter",
    "phoenix": "otel_rollout_phoenix:PhoenixSpanExporter",
    "mlflow": "otel_rollout_mlflow:MlflowSpanExporter",
    "weave": "otel_rollout_weave:WeaveSpanExporter",
}
OTLP, WEAVE = ("otlp", "phoenix", "mlflow"), ("weave",)
ALL = OTLP + WEAVE
TOKEN = {"mlflow": "MLFLOW_TRACKING_TOKEN", "phoenix": "PHOENIX_API_KEY", "weave": "WANDB_API_KEY"}

# (fault, status, headers, body) and the verdict, by the exporters that have it.
VERDICTS = [
    ("nothing", 200, {}, b"", {"delivered": OTLP, "configuration_error": WEAVE}),
    ("JSON", 200, {"content-type": "application/json"}, b"{}", {"delivered": ALL}),
    (
        "partial success in protobuf",
        200,
        {"content-type": "application/x-protobuf"},
        REJECTED,
        {"1 rejected": ("otlp", "phoenix"), "refused": ("mlflow",), "configuration_error": WEAVE},
    ),
    (
        "partial success in JSON",
        200,
        {"content-type": "application/json"},
        b'{"partialSuccess": {"rejectedSpans": "1", "errorMessage": "too old"}}',
        {"1 rejected": ("otlp", "phoenix"), "refused": ("mlflow",), "delivered": WEAVE},
    ),
    ("a login page", 200, {"content-type": "text/html"}, PAGE, {"configuration_error": ALL}),
    ("a page without its type", 200, {}, PAGE, {"configuration_error": ALL}),
    ("a text", 200, {"content-type": "text/plain"}, b"OK", {"configuration_error": ALL}),
    ("half of a JSON", 200, {"content-type": "application/json"}, b'{"partialSu', {"configuration_error": ALL}),
    ("a list", 200, {"content-type": "application/json"}, b"[]", {"configuration_error": ALL}),
    ("40 MB in gzip", 200, {"content-encoding": "gzip"}, BOMB, {"retry": ALL}),
    ("an unknown compression", 200, {"content-encoding": "zstd"}, b"x", {"retry": ALL}),
    ("a redirect", 302, {"location": "/login"}, b"", {"configuration_error": ALL}),
    ("401", 401, {}, b"who are you?", {"configuration_error": ALL}),
    ("403", 403, {}, b"not you", {"configuration_error": ALL}),
    ("404", 404, {}, b"nothing here", {"configuration_error": ALL}),
    ("400", 400, {}, b"bad", {"refused": ALL}),
    ("413", 413, {}, b"large", {"too_large": ALL}),
    ("429", 429, {"retry-after": "1"}, b"busy", {"retry": ALL}),
    ("500", 500, {}, b"failed", {"unexplained": ALL}),
    ("503", 503, {}, b"busy", {"retry": ALL}),
    ("a reset in the answer", 0, {}, b"reset", {"retry": ALL}),
    ("an answer without end", 0, {}, b"body", {"retry": ALL}),
    ("headers without end", 0, {}, b"headers", {"retry": ALL}),
]


class Handler(http.server.BaseHTTPRequestHandler):
    """Takes everything but spans as each backend does; spans get `server.reply`."""

    protocol_version = "HTTP/1.1"

    def answer(self) -> None:
        """Answer one request."""
        self.rfile.read(int(self.headers.get("content-length") or 0))
        if self.path.endswith(("/v1/traces", "/calls/complete")):
            self.server.tokens.append(self.headers.get("authorization"))
            self.reply(*self.server.reply)
        elif self.path == "/version":
            self.reply(200, {}, b"3.17.2")
        else:
            body = {
                "experiment": {"experiment_id": "1", "lifecycle_stage": "active"},
                "data": {"project": {"name": "p"}},
                "digest": "d",
            }
            self.reply(200, {"content-type": "application/json"}, json.dumps(body).encode())

    do_GET = do_POST = answer

    def reply(self, status: int, headers: dict[str, str], body: bytes) -> None:
        """Send an answer; one of status 0 never comes to its end."""
        if not status:
            self.close_connection = True
            self.wfile.write(
                b"HTTP/1.1 200 OK\r\n" + (b"x-a: " if body == b"headers" else b"content-length: 9999\r\n\r\n")
            )
            with suppress(OSError):
                while body != b"reset" and not self.server.is_over.wait(0.05):
                    self.wfile.write(b"x")
            return
        self.send_response(status)
        for name, value in {**headers, "content-length": str(len(body))}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *unused: object) -> None:
        """Log nothing."""


@contextmanager
def serving(reply):
    """A backend that answers spans so."""
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads, server.handle_error = True, lambda *unused: None
    server.reply, server.tokens, server.is_over = reply, [], threading.Event()
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    try:
        yield server
    finally:
        server.is_over.set()
        server.shutdown()
        thread.join()
        server.server_close()


@pytest.fixture
def opened(monkeypatch):
    """Makes an exporter for a server."""
    made = []

    def make(name, server, timeout=5.0):
        url = f"http://127.0.0.1:{server.server_port}"
        monkeypatch.setenv("WF_TRACE_SERVER_URL", url)
        monkeypatch.setenv("WANDB_BASE_URL", url)
        monkeypatch.setenv("WANDB_ENTITY", "e")
        if name == "weave" and "WANDB_API_KEY" not in os.environ:
            monkeypatch.setenv("WANDB_API_KEY", "0" * 40)
        module, _, kind = EXPORTERS[name].partition(":")
        address = {} if name == "weave" else {"tracking_uri" if name == "mlflow" else "endpoint": url}
        exporter = getattr(importlib.import_module(module), kind)(timeout=timeout, **address)
        exporter.export_timeout = 0.1
        made.append(exporter)
        return exporter

    yield make
    for exporter in made:
        exporter.shutdown()


def spans():
    """A batch of one span."""
    context = SpanContext(1, 2, False, TraceFlags(1))
    return [ReadableSpan("op", context, resource=Resource({"service.name": "p"}), start_time=1, end_time=2)]


@pytest.mark.parametrize(
    ("name", "reply", "expected"),
    [
        pytest.param(name, (status, headers, body), verdict, id=f"{fault}-{name}")
        for fault, status, headers, body, verdicts in VERDICTS
        for verdict, names in verdicts.items()
        for name in names
    ],
)
def test_an_answer_has_one_verdict(opened, name, reply, expected) -> None:
    """Only an answer of the protocol delivers; a page, a text, a bomb and an answer without end are failures."""
    with serving(reply) as server:
        outcome = opened(name, server, 0.5 if not reply[0] else 5.0).send(spans())
    assert (f"{outcome.rejected} rejected" if outcome.rejected else outcome.verdict.value) == expected, outcome.reason
    # Of the other failures the backend itself said that it has nothing.
    assert outcome.is_unanswered == (not reply[0] or "content-encoding" in reply[1])
    if reply[2] == PAGE:
        assert "an HTML page: a login or a proxy? '<!DOCTYPE html>'; " in outcome.reason


@pytest.mark.parametrize("name", ALL)
def test_a_renewed_token_is_used_by_the_next_attempt(opened, monkeypatch, name) -> None:
    """After an auth error the credentials are read from the environment again, without a restart."""
    variable = TOKEN.get(name, "OTEL_EXPORTER_OTLP_HEADERS")
    value = "authorization=Bearer {}" if name == "otlp" else "{}"
    monkeypatch.setenv(variable, value.format("old"))
    with serving((401, {}, b"expired")) as server:
        exporter = opened(name, server)
        exporter.send(spans())
        monkeypatch.setenv(variable, value.format("new"))
        server.reply = 200, {"content-type": "application/json"}, b"{}"
        assert exporter.send(spans()).verdict.value == "delivered"
        assert len(set(server.tokens)) == 2


@pytest.mark.parametrize("name", ALL)
def test_a_proxy_that_is_down_is_named(opened, monkeypatch, name) -> None:
    """A proxy of the environment in the way is the one that is blamed."""
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:9")
    monkeypatch.delenv("no_proxy", raising=False)
    monkeypatch.delenv("NO_PROXY", raising=False)
    with serving((200, {}, b"")) as server:
        outcome = opened(name, server).send(spans())
    assert not outcome.is_unanswered
    assert "nothing listens on the proxy 127.0.0.1:9 of http_proxy, on the way to 127.0.0.1:" in outcome.reason
