"""Replay on the real backends: the same as live, and nothing twice, by the backend's own word for it."""

from __future__ import annotations

import shutil
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
import requests

from otel_rollout.export.exporter import OutcomeSpanExporter
from otel_rollout_mlflow import MlflowSpanExporter
from otel_rollout_mlflow.sql_store import SqlStore
from otel_rollout_phoenix import PhoenixSpanExporter
from otel_rollout_weave import WeaveSpanExporter
from tests.servers.fixtures import WEAVE_STORE
from tests.servers.weave_server import WeaveServer

pytestmark = pytest.mark.integration

TRAJECTORIES, SPANS, REWARDS = 5, 15, 5


def without(record: dict[str, Any], *names: str) -> dict[str, Any]:
    return {name: value for name, value in record.items() if name not in names}


class MlflowReader:
    """What MLflow's own client finds.

    Args:
        uri: The tracking URI.
        project: The experiment's name.
    """

    def __init__(self, uri: str, project: str) -> None:
        from mlflow.tracking import MlflowClient

        self.client = MlflowClient(tracking_uri=uri)
        self._project = project

    @property
    def experiment_id(self) -> str:
        """The experiment's id."""
        return str(self.client.get_experiment_by_name(self._project).experiment_id)

    def traces(self) -> list[Any]:
        """Return all traces with their spans."""
        return list(self.client.search_traces(locations=[self.experiment_id], max_results=200))

    def counts(self) -> tuple[int, int, int]:
        """Return how many traces, spans and assessments there are."""
        traces = self.traces()
        return (
            len(traces),
            sum(len(trace.data.spans) for trace in traces),
            sum(len(trace.info.assessments) for trace in traces),
        )

    def records(self) -> dict[str, Any]:
        """Return everything but what names the store, by trace id."""
        return {trace.info.trace_id: self._record(trace) for trace in self.traces()}

    @staticmethod
    def _record(trace: Any) -> dict[str, Any]:
        info = trace.info
        return {
            "time": info.request_time,
            "duration": info.execution_duration,
            "state": info.state,
            "previews": (info.request_preview, info.response_preview),
            "tags": without(info.tags, "mlflow.artifactLocation"),
            "metadata": info.trace_metadata,
            "rewards": [(one.name, one.value, one.source.source_id, one.create_time_ms) for one in info.assessments],
            "spans": sorted((span.to_dict() for span in trace.data.spans), key=lambda span: span["span_id"]),
        }


@pytest.fixture(
    params=[
        "sqlite",
        *(pytest.param(name, marks=pytest.mark.slow) for name in ("server", "postgresql", "mariadb")),
    ]
)
def tracking_uri(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A tracking URI of each kind, and the environment that leads to it."""
    if request.param == "server":
        uri = str(request.getfixturevalue("mlflow_server").address)
    elif request.param != "sqlite":
        uri = str(request.getfixturevalue(request.param).uri("tables"))
    else:
        uri = f"sqlite:///{shutil.copy(request.getfixturevalue('empty_database'), tmp_path / 'traces.db')}"
    monkeypatch.setenv("MLFLOW_TRACKING_URI", uri)
    return uri


class TestMlflow:
    """A sqlite file, a server, and databases."""

    @pytest.fixture(autouse=True)
    def one_process(self, monkeypatch):
        """Have databases written to in this process: each start of the other one takes seconds."""
        monkeypatch.setattr("otel_rollout_mlflow.exporter.SqlProcess", SqlStore)

    def test_nothing_is_there_twice(self, tracking_uri, record, replayed, project):
        """After live tracing, a replay and another one: each trace, span and reward once, by MLflow's client."""
        folder = record(MlflowSpanExporter())
        reader = MlflowReader(tracking_uri, project)
        assert reader.counts() == (TRAJECTORIES, SPANS, REWARDS)
        live = reader.records()

        first = replayed(folder, "mlflow", patience=60.0)
        second = replayed(folder, "mlflow", is_again=True, patience=60.0)

        assert (first.report.delivered, second.report.delivered) == (TRAJECTORIES, TRAJECTORIES)
        assert reader.counts() == (TRAJECTORIES, SPANS, REWARDS)
        assert reader.records() == live

    def test_is_the_same_as_live(self, tracking_uri, record, replayed, project):
        """Deleted and replayed, every trace is what it was: ids, times, state, tags, previews, rewards, spans."""
        folder = record(MlflowSpanExporter())
        reader = MlflowReader(tracking_uri, project)
        live = reader.records()
        assert len(live) == TRAJECTORIES
        reader.client.delete_traces(reader.experiment_id, trace_ids=list(live))
        assert reader.counts() == (0, 0, 0)

        replayed(folder, "mlflow", patience=60.0)

        assert reader.records() == live

    def test_a_run_has_each_trace_once(self, tracking_uri, record, replayed, project, monkeypatch):
        """Traces that a replay associates with a run are so once, however often it is repeated."""
        folder = record()
        from mlflow.tracking import MlflowClient

        client = MlflowClient(tracking_uri=tracking_uri)
        run_id = client.create_run(client.create_experiment(project)).info.run_id
        monkeypatch.setenv("MLFLOW_RUN_ID", run_id)

        replayed(folder, "mlflow", patience=60.0)
        replayed(folder, "mlflow", is_again=True, patience=60.0)

        experiment_id = MlflowReader(tracking_uri, project).experiment_id
        linked = client.search_traces(locations=[experiment_id], run_id=run_id, max_results=200)
        assert len({trace.info.trace_id for trace in linked}) == len(linked) == TRAJECTORIES


@pytest.fixture
def weave(weave_server: Any, monkeypatch: pytest.MonkeyPatch) -> Any:
    """The Weave trace server, and the environment that leads to it."""
    lead_to(weave_server, monkeypatch)
    return weave_server


@pytest.fixture
def another_weave(environment: Any, uncaptured: Any) -> Iterator[Any]:
    """One more Weave trace server, with an empty store."""
    with WeaveServer(environment("weave"), store=WEAVE_STORE, uncaptured=uncaptured) as server:
        yield server


def lead_to(server: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    for variable, value in {**server.variables, "WANDB_ENTITY": "team"}.items():
        monkeypatch.setenv(variable, value)


def calls_of(server: Any, project: str) -> dict[str, Any]:
    # What the server says of itself and not of the call.
    return {call["id"]: without(call, "storage_size_bytes", "expire_at") for call in server.calls(f"team/{project}")}


def rewards_of(server: Any, project: str) -> list[Any]:
    found = server.feedback(f"team/{project}")
    return sorted((one["weave_ref"], one["feedback_type"], one["payload"]["output"]) for one in found)


@pytest.mark.slow
class TestWeave:
    """The trace server."""

    def test_nothing_is_there_twice(self, weave, record, replayed, project):
        """After live tracing, a replay and another one each call was stored once, and each reward is there once."""
        folder = record(WeaveSpanExporter())
        live, rewards = calls_of(weave, project), rewards_of(weave, project)
        assert (len(live), len(rewards)) == (SPANS, REWARDS)

        first = replayed(folder, "weave")
        second = replayed(folder, "weave", is_again=True)

        assert (first.report.delivered, second.report.delivered) == (TRAJECTORIES, TRAJECTORIES)
        stored = weave.inserts()
        assert Counter(stored[call_id] for call_id in live) == {1: SPANS}
        assert len(weave.calls(f"team/{project}")) == SPANS
        assert calls_of(weave, project) == live
        assert rewards_of(weave, project) == rewards

    def test_is_the_same_as_live(self, weave, another_weave, record, replayed, project, monkeypatch):
        """Replayed to an empty server, every call and every reward is what it was on the one that was traced to."""
        folder = record(WeaveSpanExporter())
        lead_to(another_weave, monkeypatch)

        replayed(folder, "weave")

        assert calls_of(another_weave, project) == calls_of(weave, project)
        assert rewards_of(another_weave, project) == rewards_of(weave, project)
        assert len(calls_of(weave, project)) == SPANS


@pytest.mark.slow
class TestPhoenix:
    """A backend that keeps a span id once, and of annotations the last of a name."""

    @pytest.fixture
    def exporter(self, phoenix: Any, monkeypatch: pytest.MonkeyPatch) -> OutcomeSpanExporter:
        """What traces to Phoenix live; the environment leads there too."""
        monkeypatch.setenv("PHOENIX_COLLECTOR_ENDPOINT", phoenix.address)
        return PhoenixSpanExporter()

    def test_nothing_is_there_twice(self, phoenix, exporter, record, replayed, project):
        """After live tracing, a replay and another one each span and each reward is there once."""
        folder = record(exporter)
        live = phoenix.api.wait_for_spans(project, SPANS)

        first = replayed(folder, "phoenix", patience=60.0)
        second = replayed(folder, "phoenix", is_again=True, patience=60.0)

        assert (first.report.delivered, second.report.delivered) == (TRAJECTORIES, TRAJECTORIES)
        phoenix.api.wait_until_quiet(project)
        found = phoenix.api.spans(project)
        assert Counter(span["context"]["span_id"] for span in found) == {span["context"]["span_id"]: 1 for span in live}
        assert len(phoenix.api.traces(project)) == TRAJECTORIES
        roots = [span["context"]["span_id"] for span in found if span["parent_id"] is None]
        rewards = phoenix.api.annotations(project, "span", span_ids=roots)
        assert Counter(reward["span_id"] for reward in rewards) == dict.fromkeys(roots, 1)

    def test_is_the_same_as_live(self, phoenix, exporter, record, replayed, project):
        """Deleted and replayed, every span is what it was."""

        def records() -> list[dict[str, Any]]:
            # Phoenix numbers what it stores.
            found = [without(span, "id") for span in phoenix.api.wait_for_spans(project, SPANS)]
            return sorted(found, key=lambda span: span["context"]["span_id"])

        folder = record(exporter)
        live = records()
        answer = requests.delete(f"{phoenix.address}/v1/projects/{quote(project)}", timeout=30)
        assert answer.status_code == 204
        assert phoenix.api.spans(project) == []

        replayed(folder, "phoenix", patience=60.0)

        assert records() == live
