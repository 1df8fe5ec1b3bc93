"""What comes after a trajectory's end, in real backends: an assessment, feedback, an annotation."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator
from typing import Any

import pytest

import otel_rollout
from otel_rollout import rollout_trace_attr

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
        assert trace.info.execution_duration == (root.end_time_ns - root.start_time_ns) // 1_000_000

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
