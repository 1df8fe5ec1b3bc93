"""The promises of every exporter of ours."""

from __future__ import annotations

import http.server
import importlib
import inspect
import subprocess
import sys
import threading
import time
from collections import Counter
from importlib.metadata import entry_points
from typing import ClassVar

import pytest
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter, SpanExportResult
from opentelemetry.sdk.util.instrumentation import InstrumentationScope
from opentelemetry.trace import SpanContext, Status, StatusCode, TraceFlags

from otel_rollout import ConfigurationError, init
from otel_rollout.deliver import SpanOutbox
from otel_rollout.export.exporter import OutcomeSpanExporter
from otel_rollout.export.outcome import Outcome, Verdict
from otel_rollout.finish import PayloadFinisher, SpanReader
from tests.delivery.queues import until

UNREACHABLE = "http://127.0.0.1:9"
"""The discard port: nothing listens there."""

EXPORTERS = {
    "console": "otel_rollout_console:ConsoleSpanExporter",
    "otlp-http": "otel_rollout_otlp.http_exporter:OtlpHttpSpanExporter",
    "otlp-grpc": "otel_rollout_otlp.grpc_exporter:OtlpGrpcSpanExporter",
    "mlflow": "otel_rollout_mlflow:MlflowSpanExporter",
    "phoenix": "otel_rollout_phoenix:PhoenixSpanExporter",
    "trackio": "otel_rollout_trackio:TrackioSpanExporter",
    "weave": "otel_rollout_weave:WeaveSpanExporter",
    "file": "otel_rollout_file:FileSpanExporter",
}
WITH_FOLLOW_UPS = ("mlflow", "phoenix", "weave")
BACKEND_PACKAGES = ("grpc", "requests", "mlflow", "sqlalchemy", "trackio", "wandb", "weave", "zstandard")


class _Closed:
    """A console that is gone."""

    encoding = "utf-8"

    def write(self, text):
        raise BrokenPipeError("nobody reads")

    def flush(self):
        pass


@pytest.fixture(params=EXPORTERS)
def exporter_class(request, monkeypatch):
    """Each exporter's class, with its backend out of reach."""
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", UNREACHABLE)
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_TIMEOUT", "1")
    monkeypatch.setenv("MLFLOW_TRACKING_URI", UNREACHABLE)
    monkeypatch.setenv("MLFLOW_EXPERIMENT_NAME", "test")
    monkeypatch.setenv("PHOENIX_COLLECTOR_ENDPOINT", UNREACHABLE)
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_TIMEOUT", "1")
    monkeypatch.setenv("TRACKIO_SERVER_URL", UNREACHABLE)
    monkeypatch.setenv("TRACKIO_WRITE_TOKEN", "token")
    monkeypatch.setenv("WF_TRACE_SERVER_URL", UNREACHABLE)
    monkeypatch.setenv("WANDB_API_KEY", "0" * 40)
    monkeypatch.setenv("WANDB_ENTITY", "nobody")
    monkeypatch.setenv("WANDB_BASE_URL", UNREACHABLE)
    # A file where a folder should be.
    monkeypatch.setenv("OTEL_ROLLOUT_DIR", f"{__file__}/traces")
    module, _, name = EXPORTERS[request.param].partition(":")
    return getattr(importlib.import_module(module), name)


@pytest.fixture
def exporter(exporter_class):
    """An exporter made as OpenTelemetry makes it: without arguments."""
    exporter = exporter_class()
    exporter.export_timeout = 0.3
    if hasattr(exporter, "_stream"):
        # The console's backend; pytest puts its own in the place of standard output.
        exporter._stream = _Closed()
    yield exporter
    exporter.shutdown()


def make_span(attributes, **options):
    return ReadableSpan(
        "op",
        SpanContext(2**100 + 1, 2**60 + 1, False, TraceFlags(1)),
        resource=Resource({"service.name": "test", "rollout.project_name": "project"}),
        instrumentation_scope=InstrumentationScope("test"),
        attributes=attributes,
        start_time=1_700_000_000_000_000_000,
        end_time=1_700_000_001_000_000_000,
        **options,
    )


EVERY_TYPE = {
    "text": "漢字",
    "empty": "",
    "number": 2**63 - 1,
    "fraction": float("nan"),
    "truth": True,
    "bytes": b"\x00\xff",
    "texts": ("a", "b"),
    "numbers": (1, 2),
    "nothing": (),
    "mapping": {"a": [1, None]},
    "surrogate": "a\ud800",
    "input.value": "not JSON {",
    "output.value": "[1, 2]",
    "rollout.step": 3,
    "rollout.reward": 0.5,
    "metadata": "{}",
}


class _Server(http.server.BaseHTTPRequestHandler):
    """MLflow, Phoenix and Weave for one project: they take spans, and fail for all that is said of them afterwards."""

    protocol_version = "HTTP/1.1"
    requests: ClassVar[Counter[str]] = Counter()

    def do_GET(self):
        if self.path == "/version":
            return self._answer(200, b"3.17.2")
        if "/experiments/" in self.path:
            return self._answer(200, b'{"experiment": {"experiment_id": "1", "lifecycle_stage": "active"}}')
        return self._answer(500, b"{}")

    def do_POST(self):
        self.rfile.read(int(self.headers["Content-Length"]))
        if self.path == "/graphql":
            return self._answer(200, b'{"data": {"project": {"name": "project"}}}')
        is_of_spans = self.path == "/v1/traces" or self.path.endswith(
            ("/calls/complete", "/obj/create", "/file/create")
        )
        return self._answer(200 if is_of_spans else 500, b'{"digest": "digest"}')

    def _answer(self, status, body):
        _Server.requests[self.path.partition("?")[0]] += 1
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *unused):
        pass


@pytest.fixture
def server():
    """Failing requests about stored spans."""
    _Server.requests.clear()
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), _Server) as server:
        threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


class TestConstruction:
    """Making an exporter."""

    def test_no_argument_is_needed_and_none_is_positional(self, exporter_class):
        """The SDK makes exporters without arguments; all that there are have names and defaults."""
        for parameter in inspect.signature(exporter_class).parameters.values():
            assert parameter.kind is inspect.Parameter.KEYWORD_ONLY
            assert parameter.default is not inspect.Parameter.empty

    def test_it_is_an_exporter_that_can_say_why(self, exporter_class):
        """Every exporter is a SpanExporter that makes single attempts."""
        assert issubclass(exporter_class, OutcomeSpanExporter)
        assert issubclass(exporter_class, SpanExporter)
        assert not inspect.isabstract(exporter_class)

    @pytest.mark.parametrize("name", EXPORTERS)
    def test_no_backend_is_imported(self, name):
        """Importing otel_rollout and making an exporter brings in no backend's package."""
        module, _, attribute = EXPORTERS[name].partition(":")
        program = f"""
import sys
import otel_rollout
imported = [package for package in {BACKEND_PACKAGES!r} if package in sys.modules]
assert not imported, f"import otel_rollout: {{imported}}"
others = [module for module in sys.modules if module.startswith("otel_rollout_")]
assert not others, f"import otel_rollout: {{others}}"
from {module} import {attribute}
{attribute}()
imported = [package for package in {BACKEND_PACKAGES!r} if package in sys.modules]
assert not imported, f"{attribute}(): {{imported}}"
"""
        done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=False)
        assert done.returncode == 0, done.stderr

    @pytest.mark.parametrize("name", ["file", "mlflow", "phoenix", "trackio", "weave"])
    def test_the_entry_point_leads_to_the_class(self, name):
        """The names that `OTEL_TRACES_EXPORTER` knows lead to these classes."""
        [point] = entry_points(group="opentelemetry_traces_exporter", name=name)
        assert point.value == EXPORTERS[name]
        assert inspect.isclass(point.load())


class TestAbsentBackend:
    """A backend that can't be reached."""

    def test_export_fails_and_does_not_raise(self, exporter):
        """The standard method returns FAILURE."""
        root = make_span({"openinference.span.kind": "AGENT", "rollout.status": "completed", "rollout.step": 1})
        assert exporter.export([root]) is SpanExportResult.FAILURE

    def test_send_says_why(self, exporter):
        """The single attempt returns an outcome with a reason, in one line."""
        outcome = exporter.send([make_span({"rollout.status": "completed"})])
        assert isinstance(outcome, Outcome)
        assert outcome.verdict in (Verdict.RETRY, Verdict.CONFIGURATION_ERROR) or outcome.rejected == 1
        assert outcome.reason
        assert "\n" not in outcome.reason

    @pytest.mark.parametrize("attributes", [{}, None, EVERY_TYPE], ids=["empty", "none", "every type"])
    def test_any_attributes_are_taken(self, exporter, attributes):
        """Spans without attributes and with every kind of value raise nothing."""
        spans = [make_span(attributes), make_span(attributes, status=Status(StatusCode.ERROR, "why"))]
        assert isinstance(exporter.send(spans), Outcome)

    def test_an_empty_batch_is_a_success(self, exporter):
        """Nothing to export is no failure."""
        assert exporter.export([]) is SpanExportResult.SUCCESS
        assert isinstance(exporter.send([]), Outcome)

    def test_a_second_shutdown_is_harmless(self, exporter):
        """An exporter may be shut down twice, and flushed after that."""
        exporter.export([make_span({})])
        exporter.shutdown()
        exporter.shutdown()
        assert exporter.force_flush(60) is True

    def test_export_after_shutdown_does_not_raise(self, exporter):
        """An export after the shutdown fails; it does not raise."""
        exporter.shutdown()
        assert exporter.export([make_span({})]) is SpanExportResult.FAILURE

    def test_it_works_under_the_stock_processor(self, exporter):
        """Under OpenTelemetry's own processor a backend out of reach harms nothing."""
        provider = TracerProvider(shutdown_on_exit=False)
        provider.add_span_processor(BatchSpanProcessor(exporter))
        with provider.get_tracer("test").start_as_current_span("op") as span:
            span.set_attribute("input.value", "1")
        provider.force_flush()
        provider.shutdown()


class TestFollowUpRequests:
    """Requests about spans that are stored: rewards, links, feedback."""

    def test_who_has_any(self, exporter, request):
        """The exporters that make such requests are those that the next test is about."""
        name = request.node.callspec.params["exporter_class"]
        assert (exporter.follow_up_requests is not None) == (name in WITH_FOLLOW_UPS)

    @pytest.mark.parametrize("name", WITH_FOLLOW_UPS)
    def test_a_failing_reward_endpoint_changes_no_span(self, name, server, monkeypatch):
        """Spans are sent once, whole, and counted as delivered, whatever becomes of their rewards and runs."""
        for variable in (
            "MLFLOW_TRACKING_URI",
            "PHOENIX_COLLECTOR_ENDPOINT",
            "WF_TRACE_SERVER_URL",
            "WANDB_BASE_URL",
        ):
            monkeypatch.setenv(variable, server)
        monkeypatch.setenv("WANDB_API_KEY", "0" * 40)
        monkeypatch.setenv("WANDB_ENTITY", "nobody")
        monkeypatch.setenv("OTEL_ROLLOUT_MLFLOW_CREATE_RUN", "true")
        module, _, attribute = EXPORTERS[name].partition(":")
        exporter = getattr(importlib.import_module(module), attribute)()
        sent = []
        send = exporter.send
        exporter.send = lambda spans: sent.append(list(spans)) or send(spans)
        queue = SpanOutbox(name, exporter, SpanReader(Resource({}), None, PayloadFinisher(2**30, None)))
        spans = [
            ReadableSpan(
                "root",
                SpanContext(number, number, False, TraceFlags(1)),
                resource=Resource({"service.name": "test", "rollout.project_name": "project"}),
                attributes={"rollout.experiment_name": "e", "rollout.reward": 1.0, "input.value": f'"{"x" * 20_000}"'},
                start_time=1_700_000_000_000_000_000,
                end_time=1_700_000_001_000_000_000,
            )
            for number in range(1, 21)
        ]
        for span in spans:
            queue.put(span)

        until(lambda: not queue.flush(0.1) and queue.stats().delivered == 20)
        queue.shutdown(time.monotonic() + 0.3)
        assert not queue.join()

        stats = queue.stats()
        assert (stats.recorded, stats.delivered, stats.lost, stats.payloads_shrunk) == (20, 20, {}, 0)
        assert [(span.context, dict(span.attributes)) for batch in sent for span in batch] == [
            (span.context, dict(span.attributes)) for span in spans
        ]
        assert sum(_Server.requests[path] for path in ("/v1/traces", "/v2/nobody/project/calls/complete")) == len(sent)
        for kind, work in stats.follow_up_requests.items():
            if kind != "announcements":
                assert (work.done, work.waiting, sum(work.lost.values())) == (0, 0, 20)


@pytest.mark.parametrize(
    ("backend", "project"),
    [("weave", "team/project/more"), ("weave", "what?"), ("weave", "x" * 129), ("mlflow", "x" * 501)],
)
def test_a_project_that_the_backend_refuses_is_an_error_of_init(monkeypatch, backend, project):
    """Else each of its spans would be lost, after the first batch."""
    monkeypatch.setenv("MLFLOW_TRACKING_URI", UNREACHABLE)
    with pytest.raises(ConfigurationError, match="project_name="):
        init(project, "experiment", backend=backend)
