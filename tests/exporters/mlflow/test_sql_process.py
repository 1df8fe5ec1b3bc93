"""The process in which a tracking database is written to."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from otel_rollout.export import worker_process
from otel_rollout.export.outcome import Verdict
from otel_rollout_mlflow import MlflowSpanExporter
from otel_rollout_mlflow.sql_process import SqlProcess
from otel_rollout_mlflow.tracking_uri import parse_tracking_uri
from tests.delivery.queues import until


def worker_of(exporter: MlflowSpanExporter) -> int:
    """Return the process that an exporter writes with."""
    store = exporter._opened()
    assert isinstance(store, SqlProcess)
    assert store._worker is not None
    return store._worker._process.pid


def is_running(pid: int) -> bool:
    """Return True if a process runs and is no zombie."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


@pytest.mark.integration
class TestSqlProcess:
    """Its life."""

    def test_its_life(self, database, project, trajectory, read_back, tmp_path, monkeypatch) -> None:
        """It gets a lower priority, leaves SIGTERM and SIGINT to its parent, has a successor if killed, and ends."""
        # Python imports this in the process before anything else.
        soon = "import otel_rollout.export.worker_process as process\nprocess.SECONDS_BEFORE_NICE = 0.0\n"
        (tmp_path / "sitecustomize.py").write_text(soon)
        monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(tmp_path), *sys.path]))
        uri = f"sqlite:///{database}"
        exporter, one = MlflowSpanExporter(tracking_uri=uri), trajectory(project)
        assert exporter.send([one.model]).verdict is Verdict.DELIVERED
        pid = worker_of(exporter)
        until(lambda: os.getpriority(os.PRIO_PROCESS, pid) > os.getpriority(os.PRIO_PROCESS, 0))

        # As a scheduler or a terminal sends them to all processes of a group.
        os.kill(pid, signal.SIGTERM)
        os.kill(pid, signal.SIGINT)
        assert exporter.send([one.tool]).verdict is Verdict.DELIVERED
        assert worker_of(exporter) == pid

        os.kill(pid, signal.SIGKILL)
        outcomes = [exporter.send(one.spans) for _ in range(2)]
        assert [outcome.verdict for outcome in outcomes] == [Verdict.RETRY, Verdict.DELIVERED]
        assert "the process that writes to the MLflow database has ended" in outcomes[0].reason
        assert len(read_back(uri, project).trace(one.mlflow_id).data.spans) == 3

        pid = worker_of(exporter)
        exporter.shutdown()
        assert not is_running(pid)

    @pytest.mark.slow
    def test_process_that_does_not_answer(self, database, project, trajectory, read_back, monkeypatch) -> None:
        """A process that hangs is ended after a while, and the batch goes to another one."""
        uri = f"sqlite:///{database}"
        exporter, one = MlflowSpanExporter(tracking_uri=uri), trajectory(project)
        assert exporter.send([one.model]).verdict is Verdict.DELIVERED
        hanging = worker_of(exporter)
        os.kill(hanging, signal.SIGSTOP)
        with monkeypatch.context() as patched:
            patched.setattr(worker_process, "SECONDS_TO_ANSWER", 0.2)
            patched.setattr(worker_process, "SECONDS_TO_END", 0.2)
            outcome = exporter.send(one.spans)

        assert outcome.verdict is Verdict.RETRY
        assert "the process that writes to the MLflow database does not answer" in outcome.reason
        assert not is_running(hanging)
        assert exporter.send(one.spans).verdict is Verdict.DELIVERED
        assert len(read_back(uri, project).trace(one.mlflow_id).data.spans) == 3
        exporter.shutdown()

    @pytest.mark.slow
    def test_it_ends_at_once_beside_a_forked_child(self, database, project, trajectory) -> None:
        """A child that was forked meanwhile, and holds the pipe too, does not keep it from ending when told to."""
        store = SqlProcess(parse_tracking_uri(f"sqlite:///{database}"))
        store.ensure_experiment(project)
        assert store._worker is not None
        process = store._worker._process
        child = os.fork()
        if child == 0:
            time.sleep(60)
            os._exit(0)
        try:
            store.close()
            assert process.returncode == 0
        finally:
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)

    @pytest.mark.slow  # it waits half a minute for the rest
    def test_it_ends_with_its_parent(self, database, project) -> None:
        """If its parent is killed it ends by itself, even if a forked child keeps the pipe open."""
        code = (
            "import os, sys, time; sys.path[:0] = sys.argv[3].split(os.pathsep);"
            "from otel_rollout_mlflow.sql_process import SqlProcess;"
            "from otel_rollout_mlflow.tracking_uri import parse_tracking_uri;"
            "store = SqlProcess(parse_tracking_uri(sys.argv[1])); store.ensure_experiment(sys.argv[2]);"
            "child = os.fork(); child or time.sleep(60);"
            "print(store._worker._process.pid, child, flush=True); time.sleep(60)"
        )
        command = [sys.executable, "-c", code, f"sqlite:///{database}", project, os.pathsep.join(sys.path)]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as parent:
            worker, child = map(int, parent.stdout.readline().split())
            assert is_running(worker)
            parent.kill()
            try:
                until(lambda: not is_running(worker))
            finally:
                os.kill(child, signal.SIGKILL)

    def test_no_process_can_be_started(self, database, project, trajectory, read_back, monkeypatch, caplog) -> None:
        """If no process can be started, the spans are stored anyway, with one warning."""
        monkeypatch.setattr(worker_process.sys, "executable", "/nowhere/python")
        uri, one = f"sqlite:///{database}", trajectory(project)
        exporter = MlflowSpanExporter(tracking_uri=uri)

        assert exporter.send(one.spans).verdict is Verdict.DELIVERED

        assert len(read_back(uri, project).trace(one.mlflow_id).data.spans) == 3
        [warning] = [record.message for record in caplog.records if record.name == "otel_rollout"]
        assert warning.startswith("no process could be started that writes to the MLflow database")
