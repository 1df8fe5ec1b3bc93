"""Servers from 3.6 to 3.13, which have to be told of tags and sessions trace by trace, and older ones."""

from __future__ import annotations

import http.server
import threading

import pytest

from otel_rollout.export.outcome import Verdict
from otel_rollout_mlflow import MlflowSpanExporter


@pytest.fixture(scope="module", params=["mlflow_oldest", "mlflow_without_tags"])
def old_server(request, start_mlflow):
    """A server of the first version with an OTLP endpoint, and one of a version between."""
    with start_mlflow(request.param) as running:
        yield running


@pytest.mark.integration
@pytest.mark.slow
class TestOldServer:
    """Old servers store the same as the newest version."""

    def test_trajectory_arrives_whole(self, old_server, project, trajectory, read_back) -> None:
        """Spans, tags, session, name, previews, state, run and reward are there once, though all is sent twice."""
        back = read_back(old_server.address, project)
        run = back.client.create_run(back.client.create_experiment(project))
        one = trajectory(project, reward=0.5)
        for _ in range(2):
            exporter = MlflowSpanExporter(tracking_uri=old_server.address, run_id=run.info.run_id)
            for part in ([one.model, one.tool], [one.root], one.spans):
                outcome = exporter.send(part)
                assert outcome.verdict is Verdict.DELIVERED, outcome.reason
                assert exporter.force_flush(), exporter.follow_up_requests.last_error

        (trace,) = back.traces("tags.step = '1'")

        assert {span.name: (span.span_type, span.inputs, span.outputs) for span in trace.data.spans} == {
            "trajectory": (
                "AGENT",
                {"messages": [{"role": "user", "content": "What is 2+2?"}]},
                {"reward": 0.5, "output": "4"},
            ),
            "generate": (
                "LLM",
                {"messages": [{"role": "user", "content": "What is 2+2?"}]},
                {"text": "4", "ids": [19, 20]},
            ),
            "calculator": ("TOOL", {"expression": "1/0"}, None),
        }
        info = trace.info
        assert {key: value for key, value in info.tags.items() if not key.startswith("mlflow.")} == {
            "step": "1",
            "sample_index": "7",
            "rollout_n": "0",
            "validate": "False",
            "experiment_name": "exp-1",
            "status": "completed",
        }
        assert info.tags["mlflow.traceName"] == "s7 · r0 · step 1 · trajectory"
        assert info.trace_metadata["mlflow.trace.session"] == "exp-1/1/7"
        assert (info.state, info.request_preview, info.response_preview) == (
            "OK",
            "What is 2+2?",
            '{"reward": 0.5, "output": "4"}',
        )
        assert info.execution_duration == 10_000
        assert [(item.name, item.value) for item in info.assessments] == [("reward", 0.5)]
        connected = old_server.run_of_traces()
        assert connected.get(one.mlflow_id) == run.info.run_id

    def test_tags_before_the_root(self, old_server, project, trajectory, read_back) -> None:
        """A trajectory whose root hasn't arrived is found by its tags, in progress."""
        one = trajectory(project)
        exporter = MlflowSpanExporter(tracking_uri=old_server.address)
        assert exporter.send([one.model]).verdict is Verdict.DELIVERED
        assert exporter.force_flush()

        (trace,) = read_back(old_server.address, project).traces("tags.rollout_n = '0'")

        assert (trace.info.trace_id, trace.info.state) == (one.mlflow_id, "IN_PROGRESS")


class TestTooOldServer:
    """A server without an OTLP endpoint."""

    def test_names_the_version_that_is_needed(self, trajectory) -> None:
        """The error names the server's version and the one that is needed, and the batch waits."""

        class Old(http.server.BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                self.send_response(200)
                self.end_headers()
                self.wfile.write(b"3.5.1")

            def log_message(self, *unused: object) -> None:
                pass

        with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Old) as old:
            threading.Thread(target=old.serve_forever, daemon=True).start()
            address = f"http://127.0.0.1:{old.server_address[1]}"
            exporter = MlflowSpanExporter(tracking_uri=address)
            outcome = exporter.send(trajectory().spans)
            exporter.shutdown()
            old.shutdown()

        assert outcome.verdict is Verdict.CONFIGURATION_ERROR
        assert outcome.reason == (
            f"the MLflow server at {address} is version 3.5.1: it takes no OpenTelemetry spans; 3.6 or later is needed"
        )
