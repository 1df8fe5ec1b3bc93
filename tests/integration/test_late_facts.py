"""What comes after a trajectory's end, in real backends: an assessment, feedback, an annotation."""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any

import pytest

import otel_rollout
from otel_rollout import rollout_trace_attr
from tests.receive.receiving import ReceiverProcess
from tests.servers.otelcol_server import Otelcol

pytestmark = pytest.mark.integration

SECONDS = 60.0
FACTS: dict[str, Any] = {
    "reward": 0.75,
    "rewards": {"format": 0.5, "correct": True},
    "advantage": -0.25,
    "fate": "trained",
}
EXPECTED = {"reward": 0.75, "format": 0.5, "advantage": -0.25, "fate": "trained"}


@pytest.fixture
def project() -> str:
    """A project's name that no other test uses."""
    return f"late-{uuid.uuid4().hex[:12]}"


@pytest.fixture
def traced(project: str) -> Iterator[Callable[[str], str]]:
    """Trace a trajectory whose facts come after its end, are corrected and come from elsewhere; return its id."""

    def run(backend: str) -> str:
        otel_rollout.init(project, "exp", backend=backend)
        with rollout_trace_attr(sample_index=3, step=2, rollout_n=1, name="agent") as trajectory:
            otel_rollout.annotate(input="2+2?", output="4", reward=0.0)
        assert otel_rollout.flush(SECONDS)
        trajectory.annotate(reward=0.5, rewards={"format": 0.0}, fate="stale")
        otel_rollout.annotate(trajectory=trajectory.handle, **FACTS)
        assert otel_rollout.flush(SECONDS), otel_rollout.stats()
        assert trajectory.trace_id is not None
        return trajectory.trace_id

    yield run
    otel_rollout.shutdown(SECONDS)


class TestBackends:
    """The latest value of each fact is what the backend shows; the trajectory is as long as it was."""

    def test_mlflow(self, monkeypatch, mlflow_server: Any, project: str, traced: Callable[[str], str]) -> None:
        """One assessment for each fact."""
        from mlflow.tracking import MlflowClient

        monkeypatch.setenv("MLFLOW_TRACKING_URI", mlflow_server.address)
        trace_id = traced("mlflow")
        client = MlflowClient(tracking_uri=mlflow_server.address)
        experiment = client.get_experiment_by_name(project)
        assert experiment is not None
        [trace] = client.search_traces(locations=[experiment.experiment_id])
        assert trace.info.trace_id == f"tr-{trace_id}"
        assert {each.name: each.value for each in trace.info.assessments} == {**EXPECTED, "correct": True}
        root = next(span for span in trace.data.spans if span.parent_id is None)
        # MLflow takes the difference of whole milliseconds.
        assert trace.info.execution_duration == root.end_time_ns // 1_000_000 - root.start_time_ns // 1_000_000

    def test_weave(self, monkeypatch, weave_server: Any, project: str, traced: Callable[[str], str]) -> None:
        """Feedback on the root's call."""
        for name, value in weave_server.variables.items():
            monkeypatch.setenv(name, value)
        monkeypatch.setenv("WANDB_ENTITY", "team")
        traced("weave")
        found = {
            each["feedback_type"].rpartition(".")[2]: each["payload"]["output"]
            for each in weave_server.feedback(f"team/{project}")
        }
        assert found == {**EXPECTED, "correct": True}

    def test_phoenix(self, monkeypatch, phoenix: Any, project: str, traced: Callable[[str], str]) -> None:
        """Annotations of the root."""
        monkeypatch.setenv("PHOENIX_COLLECTOR_ENDPOINT", phoenix.address)
        traced("phoenix")
        [root] = phoenix.api.spans(project, parent_id="null")
        rows = phoenix.api.annotations(project, "span", identifier=["otel-rollout"])
        assert {row["span_id"] for row in rows} == {root["context"]["span_id"]}
        found = {
            row["name"]: row["result"]["label"] if row["name"] == "fate" else row["result"]["score"] for row in rows
        }
        assert found == {**EXPECTED, "correct": 1.0}


class TestPlainOtlp:
    """Backends that get spans alone: each call is a span of its own, below the root and linked to it."""

    def test_the_collector_and_a_folder(
        self, monkeypatch, collector_program: Path, tmp_path: Path, traced: Callable[[str], str]
    ) -> None:
        """Through a Collector the links and events arrive; the folder has one trajectory with the latest value."""
        folder = tmp_path / "traces"
        with closing(ReceiverProcess(folder, "--idle", "1")) as receiver, ExitStack() as stack:
            backends = {"folder": receiver.url.removesuffix("/v1/traces")}
            gateway = stack.enter_context(Otelcol.gateway(collector_program, backends, tmp_path / "collector"))
            monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", gateway.address)
            trace_id = traced("otlp")
            deadline = time.monotonic() + SECONDS
            while not ((found := _stored(folder)) and found[0].span_count == 3):
                assert time.monotonic() < deadline, found
                time.sleep(0.1)
        [trajectory] = found
        assert (trajectory.trace_id, trajectory.reward, trajectory.summary.fate) == (trace_id, 0.75, "trained")
        [root] = [span for span in trajectory.spans if span.parent is None]
        assert root.context is not None
        late = [span for span in trajectory.spans if span.name == "annotate"]
        for span in late:
            assert span.parent is not None
            [link] = span.links
            ids = (root.context.trace_id, root.context.span_id)
            assert (link.context.trace_id, link.context.span_id) == ids
            assert (span.parent.trace_id, span.parent.span_id) == ids
        names = [[(event.attributes or {})["gen_ai.evaluation.name"] for event in span.events] for span in late]
        assert names == [["reward", "fate", "format"], ["reward", "advantage", "fate", "format", "correct"]]

    def test_phoenix_by_otlp(
        self, monkeypatch, collector: Any, phoenix: Any, project: str, traced: Callable[[str], str]
    ) -> None:
        """A backend that knows nothing of ours has one trace with one root, and the calls below it."""
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", collector.address)
        trace_id = traced("otlp")
        spans = phoenix.api.wait_for_spans(project, 3)
        assert {span["context"]["trace_id"] for span in spans} == {trace_id}
        [root] = [span for span in spans if span["parent_id"] is None]
        late = [span for span in spans if span["name"] == "annotate"]
        assert {span["parent_id"] for span in late} == {root["context"]["span_id"]}
        assert len(phoenix.api.traces(project)) == 1


def _stored(folder: Path) -> list[otel_rollout.RecordedTrajectory]:
    try:
        return list(otel_rollout.read_trajectories(folder))
    except otel_rollout.NoTracesError:
        return []
