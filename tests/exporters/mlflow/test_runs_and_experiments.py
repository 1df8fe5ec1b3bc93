"""Which run and which experiment trajectories belong to, on a server and in a sqlite file."""

from __future__ import annotations

import sqlite3
from concurrent.futures import ThreadPoolExecutor

import pytest

from otel_rollout.export.outcome import Verdict
from otel_rollout_mlflow import MlflowSpanExporter
from otel_rollout_mlflow.sql_store import SqlStore
from otel_rollout_mlflow.store import RUN_KEY_TAG, RUN_SETTLED_TAG
from tests.exporters.mlflow.conftest import kinds

pytestmark = [pytest.mark.integration, pytest.mark.parametrize("uri", kinds("sqlite"), indirect=True)]


def deliver(exporter, spans) -> None:
    outcome = exporter.send(spans)
    assert outcome.verdict is Verdict.DELIVERED, outcome.reason
    assert exporter.force_flush(), exporter.follow_up_requests.last_error


def in_thread(call, *arguments) -> None:
    with ThreadPoolExecutor(1) as pool:
        pool.submit(call, *arguments).result()


@pytest.fixture
def fluent(monkeypatch):
    """mlflow's module-level functions; what they keep in the process is put back afterwards."""
    mlflow = pytest.importorskip("mlflow")
    from mlflow.tracking import fluent

    # set_experiment and set_tracking_uri set these for child processes.
    monkeypatch.setenv("MLFLOW_EXPERIMENT_ID", "")
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "")
    yield mlflow
    mlflow.set_tracking_uri(None)
    fluent._active_experiment_id = None
    fluent._last_active_run_id.reset()


@pytest.fixture
def run_of(read_back, uri, project):
    """Make a run in the project's experiment, and return its id."""

    def make() -> str:
        back = read_back(uri, project)
        return str(back.client.create_run(back.client.create_experiment(project)).info.run_id)

    return make


class TestRun:
    """Every trajectory is associated with the run, where there is one."""

    def test_run_of_the_environment(self, uri, project, trajectory, read_back, run_of, monkeypatch) -> None:
        """`MLFLOW_RUN_ID` names the run; `search_traces(run_id=…)` finds the trajectory, also before it has ended."""
        run_id = run_of()
        monkeypatch.setenv("MLFLOW_RUN_ID", run_id)
        done, running = trajectory(project), trajectory(project)
        deliver(MlflowSpanExporter(tracking_uri=uri), [*done.spans, running.model])

        found = read_back(uri, project).traces(run_id=run_id)

        assert {trace.info.trace_id for trace in found} == {done.mlflow_id, running.mlflow_id}

    def test_run_page_filter(self, uri, project, trajectory, read_back, run_of) -> None:
        """The filter that MLflow's run page uses finds the trajectory."""
        run_id = run_of()
        one = trajectory(project)
        deliver(MlflowSpanExporter(tracking_uri=uri, run_id=run_id), one.spans)

        (found,) = read_back(uri, project).traces(f"attributes.run_id = '{run_id}'")

        assert found.info.trace_id == one.mlflow_id

    def test_active_run_of_another_thread(self, uri, project, trajectory, read_back, fluent, monkeypatch) -> None:
        """The process's active mlflow run is found from the exporter's thread, and kept after it has ended."""
        mlflow = fluent
        monkeypatch.setenv("MLFLOW_TRACKING_URI", uri)
        read_back(uri, project).client.create_experiment(project)
        during, after = trajectory(project), trajectory(project)
        exporter = MlflowSpanExporter()
        mlflow.set_tracking_uri(uri)
        mlflow.set_experiment(project)
        with mlflow.start_run() as run:
            in_thread(deliver, exporter, during.spans)
        in_thread(deliver, exporter, after.spans)

        found = read_back(uri, project).traces(run_id=run.info.run_id)

        assert {trace.info.trace_id for trace in found} == {during.mlflow_id, after.mlflow_id}

    def test_run_is_made_when_asked(self, uri, project, trajectory, read_back, monkeypatch) -> None:
        """With `OTEL_ROLLOUT_MLFLOW_CREATE_RUN` each experiment name has one run, taken up again after a restart."""
        monkeypatch.setenv("OTEL_ROLLOUT_MLFLOW_CREATE_RUN", "true")
        for _ in range(2):
            exporter = MlflowSpanExporter(tracking_uri=uri)
            deliver(exporter, trajectory(project).spans)
            deliver(exporter, trajectory(project, experiment_name="it's").spans)
            exporter.shutdown()
        back = read_back(uri, project)

        runs = {run.info.run_name: run.info for run in back.client.search_runs([back.experiment_id])}

        assert sorted(runs) == ["exp-1", "it's"]
        assert {info.status for info in runs.values()} == {"FINISHED"}
        assert [len(back.traces(run_id=info.run_id)) for info in runs.values()] == [2, 2]

    def test_each_training_run_has_its_own(self, uri, project, trajectory, read_back, monkeypatch) -> None:
        """If `OTEL_ROLLOUT_RUN_ID` tells training runs apart, the next one of the same name gets another run."""
        for training_run in ("monday", "tuesday", "monday"):
            monkeypatch.setenv("OTEL_ROLLOUT_RUN_ID", training_run)
            exporter = MlflowSpanExporter(tracking_uri=uri, create_run=True)
            deliver(exporter, trajectory(project).spans)
            exporter.shutdown()
        back = read_back(uri, project)

        runs = back.client.search_runs([back.experiment_id])

        assert [run.info.run_name for run in runs] == ["exp-1", "exp-1"]
        assert sorted(len(back.traces(run_id=run.info.run_id)) for run in runs) == [1, 2]

    def test_run_is_running_while_a_worker_is(self, uri, project, trajectory, read_back) -> None:
        """A worker that goes on after another was shut down opens the run again, and the last one finishes it."""
        first, second = (MlflowSpanExporter(tracking_uri=uri, create_run=True) for _ in range(2))
        for exporter in (first, second):
            deliver(exporter, trajectory(project).spans)
        back = read_back(uri, project)
        statuses = []
        for action in (first.shutdown, lambda: deliver(second, trajectory(project).spans), second.shutdown):
            action()
            (run,) = back.client.search_runs([back.experiment_id])
            statuses.append(run.info.status)

        assert statuses == ["FINISHED", "RUNNING", "FINISHED"]
        assert len(back.traces(run_id=run.info.run_id)) == 3

    def test_deleted_run_is_made_anew(self, uri, project, trajectory, read_back, monkeypatch) -> None:
        """After somebody deleted the run that was made, trajectories get a new one, and none of them is lost."""
        monkeypatch.setattr("otel_rollout_mlflow.run_association.SECONDS_TO_SETTLE", 0.0)
        exporter = MlflowSpanExporter(tracking_uri=uri, create_run=True)
        for _ in range(2):
            deliver(exporter, trajectory(project).spans)
        back = read_back(uri, project)
        (deleted,) = back.client.search_runs([back.experiment_id])
        back.client.delete_run(deleted.info.run_id)
        later = [trajectory(project) for _ in range(2)]

        deliver(exporter, [span for each in later for span in each.spans])

        (run,) = back.client.search_runs([back.experiment_id])
        found = {trace.info.trace_id for trace in back.traces(run_id=run.info.run_id)}
        assert found == {each.mlflow_id for each in later}
        exporter.shutdown()
        assert exporter.follow_up_requests.stats()["links"].done == 4
        assert back.client.get_run(run.info.run_id).info.status == "FINISHED"

    @pytest.mark.parametrize("goes_on", [True, False])
    def test_run_that_its_maker_gave_up(self, uri, project, trajectory, read_back, goes_on) -> None:
        """Traces of a run that a worker then deleted for an earlier one are linked to that one."""
        exporter = MlflowSpanExporter(tracking_uri=uri, create_run=True)
        trajectories = [trajectory(project) for _ in range(2)]
        deliver(exporter, trajectories[0].spans)
        back = read_back(uri, project)
        (given_up,) = back.client.search_runs([back.experiment_id])
        tags = {RUN_KEY_TAG: given_up.data.tags[RUN_KEY_TAG], RUN_SETTLED_TAG: "true"}
        chosen = back.client.create_run(back.experiment_id, tags=tags).info.run_id
        back.client.delete_run(given_up.info.run_id)

        if goes_on:
            deliver(exporter, trajectories[1].spans)
        exporter.shutdown()

        expected = {each.mlflow_id for each in trajectories[: 1 + goes_on]}
        assert {trace.info.trace_id for trace in back.traces(run_id=chosen)} == expected
        assert back.client.get_run(chosen).info.status == "FINISHED"

    def test_run_that_is_not_there_yet(self, uri, project, trajectory, read_back, run_of, monkeypatch) -> None:
        """Trajectories of a run that isn't there are stored and wait to be associated, until it is."""
        run_id = run_of()
        client = read_back(uri, project).client
        client.delete_run(run_id)
        monkeypatch.setenv("MLFLOW_RUN_ID", run_id)
        exporter, one = MlflowSpanExporter(tracking_uri=uri), trajectory(project)
        assert exporter.send(one.spans).verdict is Verdict.DELIVERED
        assert not exporter.force_flush()
        assert exporter.follow_up_requests.stats()["links"].waiting == 1
        client.restore_run(run_id)

        assert exporter.force_flush(), exporter.follow_up_requests.last_error

        assert [trace.info.trace_id for trace in read_back(uri, project).traces(run_id=run_id)] == [one.mlflow_id]

    def test_unknown_run_is_reported_once(self, uri, project, trajectory, read_back, caplog) -> None:
        """A run that MLflow doesn't know is named in the log, once, and the trajectories are stored without it."""
        unknown = project.removeprefix("project-") + "0" * 20
        exporter = MlflowSpanExporter(tracking_uri=uri, run_id=unknown)
        for _ in range(2):
            assert exporter.send(trajectory(project).spans).verdict is Verdict.DELIVERED
            assert not exporter.force_flush()

        assert len(read_back(uri, project).traces()) == 2
        assert len([record for record in caplog.records if unknown in record.message]) == 1
        exporter.shutdown()
        assert dict(exporter.follow_up_requests.stats()["links"].lost) == {"configuration_error": 2}


class TestExperiment:
    """The MLflow experiment is the project."""

    def test_experiments_of_one_batch(self, uri, project, trajectory, read_back) -> None:
        """Spans of two projects in one batch go to two experiments."""
        one, other = trajectory(project), trajectory(f"{project}-b")
        deliver(MlflowSpanExporter(tracking_uri=uri), [*one.spans, *other.spans])

        assert [trace.info.trace_id for trace in read_back(uri, project).traces()] == [one.mlflow_id]
        assert [trace.info.trace_id for trace in read_back(uri, f"{project}-b").traces()] == [other.mlflow_id]

    def test_experiment_by_argument_and_environment(self, uri, project, trajectory, read_back, monkeypatch) -> None:
        """`experiment_name=` wins over the project; the environment names it for spans that know no project."""
        by_argument, by_environment = trajectory("ignored"), trajectory("service")
        by_environment.resource._attributes = {"service.name": "service"}
        monkeypatch.setenv("MLFLOW_EXPERIMENT_NAME", project)
        deliver(MlflowSpanExporter(tracking_uri=uri, experiment_name=f"{project}-b"), by_argument.spans)
        deliver(MlflowSpanExporter(tracking_uri=uri), by_environment.spans)

        assert [t.info.trace_id for t in read_back(uri, f"{project}-b").traces()] == [by_argument.mlflow_id]
        assert [t.info.trace_id for t in read_back(uri, project).traces()] == [by_environment.mlflow_id]

    @pytest.mark.parametrize("is_bulk", [True, False], ids=["bulk", "by mlflow"])
    def test_deleted_while_it_is_written_to(self, uri, project, trajectory, read_back, monkeypatch, is_bulk) -> None:
        """The next batch is refused, over HTTP the next after a look; once it is restored, it takes the batch."""
        monkeypatch.setattr(MlflowSpanExporter, "seconds_between_looks", 0.0)
        if not is_bulk:
            monkeypatch.setattr(SqlStore, "_opened_bulk", lambda self, engine: None)
        exporter = MlflowSpanExporter(tracking_uri=uri)
        assert exporter.send(trajectory(project).spans).verdict is Verdict.DELIVERED
        back = read_back(uri, project)
        back.client.delete_experiment(back.experiment_id)
        for _ in range(2):
            outcome = exporter.send(trajectory(project).spans)
            assert outcome.verdict is Verdict.CONFIGURATION_ERROR
            assert "is deleted: restore it" in outcome.reason
        back.client.restore_experiment(back.experiment_id)
        assert exporter.send(trajectory(project).spans).verdict is Verdict.DELIVERED
        exporter.shutdown()
        assert len(back.traces()) == 2

    def test_renamed_while_it_is_written_to(self, uri, project, trajectory, read_back, monkeypatch) -> None:
        """The project's trajectories go on in an experiment of its name."""
        monkeypatch.setattr(MlflowSpanExporter, "seconds_between_looks", 0.0)
        exporter = MlflowSpanExporter(tracking_uri=uri)
        assert exporter.send(trajectory(project).spans).verdict is Verdict.DELIVERED
        back = read_back(uri, project)
        back.client.rename_experiment(back.experiment_id, f"{project}-old")
        assert exporter.send(trajectory(project).spans).verdict is Verdict.DELIVERED
        exporter.shutdown()
        assert [len(read_back(uri, name).traces()) for name in (project, f"{project}-old")] == [1, 1]

    def test_deleted_experiment_is_refused_until_restored(self, uri, project, trajectory, read_back) -> None:
        """A deleted experiment is an error that says what to do; once it is restored, the same batch is stored."""
        back = read_back(uri, project)
        experiment_id = back.client.create_experiment(project)
        back.client.delete_experiment(experiment_id)
        exporter, one = MlflowSpanExporter(tracking_uri=uri), trajectory(project)

        outcome = exporter.send(one.spans)

        assert outcome.verdict is Verdict.CONFIGURATION_ERROR
        assert "is deleted: restore it" in outcome.reason
        back.client.restore_experiment(experiment_id)
        deliver(exporter, one.spans)

    def test_experiment_that_is_gone_is_made_again(
        self, uri, project, trajectory, read_back, request: pytest.FixtureRequest
    ) -> None:
        """An experiment that was deleted for good while we wrote to it is made again, and the batch isn't lost."""
        if not uri.startswith(("http", "sqlite")):
            pytest.skip("foreign keys keep an experiment that has traces")
        exporter = MlflowSpanExporter(tracking_uri=uri)
        deliver(exporter, trajectory(project).spans)
        on_server = uri.startswith("http")
        file = request.getfixturevalue("mlflow_server").database if on_server else uri.removeprefix("sqlite:///")
        connection = sqlite3.connect(file, timeout=30)
        connection.execute(
            "update experiments set name = name || '-gone', experiment_id = experiment_id + 100000 where name = ?",
            (project,),
        )
        connection.commit()
        connection.close()
        one = trajectory(project)

        deliver(exporter, one.spans)

        assert [trace.info.trace_id for trace in read_back(uri, project).traces()] == [one.mlflow_id]
