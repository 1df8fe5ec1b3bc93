"""The doctor's trajectory, sent to real backends and read back."""

from __future__ import annotations

import socket
import threading
from contextlib import closing

import pytest
import requests
from opentelemetry.sdk.trace.export import SpanExporter, SpanExportResult

from otel_rollout import backends
from otel_rollout.doctor import make_trajectory, probe_backend
from otel_rollout.export.exporter import OutcomeSpanExporter, ReadBack
from otel_rollout.export.outcome import DELIVERED
from otel_rollout.testing import InMemorySpanExporter

PROJECT = "otel-rollout-doctor"


@pytest.fixture
def made(monkeypatch):
    """Have `probe_backend` find one exporter, whatever the name."""

    def use(exporter: SpanExporter) -> None:
        monkeypatch.setattr(backends, "make_exporters", lambda names, **_: [(names[0], exporter)])

    return use


class TestTrajectory:
    """What is sent."""

    def test_it_is_filed_where_it_is_in_nobodys_way(self, monkeypatch):
        """It has the doctor's project, whatever the environment names, and no step whose statistics it would change."""
        monkeypatch.setenv("OTEL_SERVICE_NAME", "trainer")
        monkeypatch.setenv("OTEL_RESOURCE_ATTRIBUTES", "openinference.project.name=production")

        op, root = make_trajectory(PROJECT)

        assert root.parent is None
        assert op.parent.span_id == root.context.span_id
        for span in (op, root):
            resource = span.resource.attributes
            assert [
                resource[key] for key in ("rollout.project_name", "service.name", "openinference.project.name")
            ] == [PROJECT] * 3
            assert "rollout.step" not in span.attributes


@pytest.mark.integration
class TestBackends:
    """Real backends that work."""

    def test_phoenix(self, phoenix, monkeypatch):
        """Phoenix is asked over its REST API; the spans are there."""
        monkeypatch.setenv("PHOENIX_COLLECTOR_ENDPOINT", phoenix.address)

        found = probe_backend("phoenix", project=PROJECT)

        assert (found.result, found.sent) == ("ok", "took a trajectory of 2 spans")
        assert found.read_back == f"read back whole from project {PROJECT} of Phoenix at {phoenix.address}"
        stored = phoenix.api.spans(PROJECT, trace_id=found.trace_id)
        assert {span["name"] for span in stored} == {"generate", "s0 · r0 · otel-rollout doctor"}

    @pytest.mark.slow
    @pytest.mark.parametrize("protocol", ["http/protobuf", "grpc"])
    def test_a_receiver_that_can_not_be_asked(self, phoenix, monkeypatch, protocol):
        """By OTLP there is nothing to ask: the doctor says so, and counts what was taken as well."""
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", phoenix.endpoint(protocol))
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_PROTOCOL", protocol)

        found = probe_backend("otlp", project=PROJECT)

        assert found.result == "ok"
        assert found.read_back == (
            "not read back: OTLP has no way to ask a receiver what it has; for a Phoenix, the backend `phoenix` has one"
        )

    @pytest.mark.slow
    def test_mlflow_server(self, mlflow_server, monkeypatch):
        """The server lists both spans of the trace, in the doctor's experiment."""
        monkeypatch.setenv("MLFLOW_TRACKING_URI", mlflow_server.address)

        found = probe_backend("mlflow", project=PROJECT)

        assert found.result == "ok", found
        assert found.read_back == f"read back whole from experiment {PROJECT} of {mlflow_server.address}"
        url = f"{mlflow_server.address}/api/3.0/mlflow/traces/get"
        trace = requests.get(url, {"trace_id": f"tr-{found.trace_id}"}, timeout=30).json()["trace"]
        assert {span["name"] for span in trace["spans"]} == {"generate", "otel-rollout doctor"}

    @pytest.mark.slow
    def test_mlflow_sqlite(self, tmp_path, monkeypatch):
        """A sqlite file is made, written to and read."""
        mlflow = pytest.importorskip("mlflow")
        monkeypatch.setenv("MLFLOW_TRACKING_URI", uri := f"sqlite:///{tmp_path}/traces.db")

        found = probe_backend("mlflow", project=PROJECT)

        assert found.result == "ok", found
        trace = mlflow.MlflowClient(tracking_uri=uri).get_trace(f"tr-{found.trace_id}")
        assert {span.name for span in trace.data.spans} == {"generate", "otel-rollout doctor"}

    @pytest.mark.slow
    def test_weave(self, weave_server, monkeypatch):
        """The trace server has both calls."""
        for variable, value in {**weave_server.variables, "WANDB_ENTITY": "team"}.items():
            monkeypatch.setenv(variable, value)

        found = probe_backend("weave", project=PROJECT)

        assert found.result == "ok", found
        assert found.read_back == f"read back whole from project team/{PROJECT} of Weave at {weave_server.url}"
        assert len([call for call in weave_server.calls(f"team/{PROJECT}") if call["trace_id"] == found.trace_id]) == 2


class TestFolder:
    """The trace folder, which needs no server."""

    @pytest.mark.parametrize("is_there", [True, False])
    def test_nothing_is_left(self, tmp_path, monkeypatch, is_there):
        """The trajectory is written beside the recorded ones, read back and removed; so are folders made for it."""
        folder = tmp_path / "some" / "traces"
        monkeypatch.setenv("OTEL_ROLLOUT_DIR", str(folder))
        if is_there:
            folder.mkdir(parents=True)
        report = probe_backend("file", project=PROJECT)
        assert (report.result, report.destination) == ("ok", str(folder))
        assert report.read_back == f"read back whole from a temporary folder in {folder}"
        assert list(tmp_path.rglob("*")) == ([folder.parent, folder] if is_there else [])

    def test_one_that_can_not_be_written_to(self, monkeypatch):
        """A folder that can't be made is a failure that names it."""
        monkeypatch.setenv("OTEL_ROLLOUT_DIR", "/proc/traces")

        found = probe_backend("file", project=PROJECT, timeout=5.0)

        assert found.result != "ok"
        assert "/proc/traces" in found.sent


class TestFailures:
    """Backends that don't work, and what is said of them."""

    def test_nobody_listens(self, unused_address, monkeypatch):
        """A dead port is a failure that names the address and the reason, in seconds."""
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", unused_address)

        found = probe_backend("otlp", project=PROJECT)

        assert found.result == "failed"
        assert found.sent.startswith(
            f"not delivered: {unused_address}/v1/traces: connection refused: nothing listens on"
        )
        assert found.read_back == ""

    def test_nobody_answers(self, monkeypatch):
        """A server that takes the connection and never answers is given up after the time that it has."""
        with closing(socket.create_server(("127.0.0.1", 0))) as silent:
            monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", f"http://127.0.0.1:{silent.getsockname()[1]}")
            monkeypatch.setenv("OTEL_EXPORTER_OTLP_TIMEOUT", "300")

            found = probe_backend("otlp", project=PROJECT, timeout=1.0)

        assert (found.result, found.sent) == ("failed", "no answer within 1 s")

    @pytest.mark.slow
    @pytest.mark.integration
    def test_a_wrong_token(self, weave_server, monkeypatch):
        """Credentials that are refused are a failure with what the server said and which variables to look at."""
        for variable, value in {**weave_server.variables, "WANDB_ENTITY": "team", "WANDB_API_KEY": "wrong"}.items():
            monkeypatch.setenv(variable, value)

        found = probe_backend("weave", project=PROJECT)

        assert found.result == "failed"
        assert found.sent.startswith("auth or configuration error: HTTP 401")
        assert "WANDB_API_KEY" in found.sent

    def test_a_wrong_name(self):
        """A name that no exporter has is a matter of configuration, with the nearest name that there is."""
        found = probe_backend("mlfow", project=PROJECT)

        assert found.result == "misconfigured"
        assert found.sent.startswith("no exporter is called 'mlfow'")
        assert "'mlflow'?" in found.sent

    def test_a_setting_of_the_exporter_that_can_not_work(self, monkeypatch):
        """What the exporter finds wrong with its own variables is shown as it says it."""
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "nowhere")

        found = probe_backend("otlp", project=PROJECT)

        assert (found.result, found.sent) == (
            "misconfigured",
            "OTEL_EXPORTER_OTLP_ENDPOINT='nowhere': this should be a URL such as http://localhost:4318",
        )

    def test_somebody_elses_exporter(self, made):
        """An exporter that is none of ours is tried by what it returns; it can't be asked, which is no failure."""
        made(memory := InMemorySpanExporter())

        found = probe_backend("memory", project=PROJECT)

        assert found.result == "ok"
        assert found.read_back == "not read back: this exporter has no way to ask its backend"
        assert len(memory.spans) == 2

    def test_somebody_elses_exporter_that_fails(self, made):
        """Its failure is one, with what it returned."""

        class Failing(InMemorySpanExporter):
            def export(self, spans):
                return SpanExportResult.FAILURE

        made(Failing())

        found = probe_backend("failing", project=PROJECT, timeout=4.0)

        assert found.result == "failed"
        assert found.sent == "failed: export() returned SpanExportResult.FAILURE"

    def test_a_shutdown_that_hangs_holds_up_nothing(self, made):
        """The report comes although the exporter never finishes."""
        never = threading.Event()

        class Hanging(InMemorySpanExporter):
            def shutdown(self):
                never.wait()

        made(Hanging())

        found = probe_backend("hanging", project=PROJECT, timeout=0.2)

        never.set()
        assert found.result == "ok"

    def test_spans_that_are_taken_and_not_kept(self, made):
        """A backend that takes the spans and does not have them afterwards has failed, with the count."""

        class Forgetful(OutcomeSpanExporter):
            def send(self, spans):
                return DELIVERED

            def read_back(self, spans):
                return ReadBack(1, "the sieve")

        made(Forgetful())

        found = probe_backend("forgetful", project=PROJECT, timeout=4.0)

        assert (found.result, found.read_back) == ("failed", "1 of 2 spans are in the sieve")
