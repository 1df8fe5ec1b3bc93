"""Disks that are full or can't be written: a trace folder and MLflow's sqlite file on a small file system."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import time
from collections import Counter
from contextlib import contextmanager, suppress

import pytest
from trainer import account

import otel_rollout

pytestmark = pytest.mark.filterwarnings("ignore:The ``noload`` loader strategy is deprecated")

MIB = 2**20


def fill(disk, *, leave=0):
    """Fill a file system up but for so many bytes, and return the file that does it."""
    ballast = disk / "ballast"
    with ballast.open("wb", buffering=0) as file, suppress(OSError):
        while True:
            file.write(bytes(4096))
    if leave:
        os.truncate(ballast, ballast.stat().st_size - leave)
    return ballast


@contextmanager
def read_only(disk):
    """Make a file system one that can't be written to for a while."""
    subprocess.run(["mount", "-o", "remount,ro", str(disk)], check=True)
    yield
    subprocess.run(["mount", "-o", "remount,rw", str(disk)], check=True)


class TestTraceFolder:
    """The `file` exporter's folder."""

    def stored(self, folder):
        """Return how often each span is read from the folder."""
        return Counter(
            f"{span.context.span_id:016x}"
            for trajectory in otel_rollout.read_trajectories(folder)
            for span in trajectory.spans
        )

    def test_full(self, small_disk, start, train) -> None:
        """While the disk is full spans wait; once there is room each is stored, once; the rest is counted at the end.

        Each time there is room for a part: what was written of a trajectory when the disk was full is cut off again.
        """
        disk = small_disk(4 * MIB)
        folder = disk / "traces"
        ballast = fill(disk, leave=100_000)
        trainer = start(BACKENDS="file", OTEL_ROLLOUT_DIR=folder, shutdown_timeout_ms=2000, max_batch_spans=10)
        for _ in range(2):
            train(trainer, 16, size=50_000)
            assert trainer.flush(1.0) is False
            assert "No space left" in trainer.stats("file")["last_error"]
            ballast.unlink()
            assert trainer.flush() is True
            assert self.stored(folder) == dict.fromkeys(trainer.sent, 1)
            ballast = fill(disk, leave=100_000)
        train(trainer, 16, size=50_000)
        assert trainer.finish() == 0
        stored = self.stored(folder)
        assert set(stored.values()) == {1}
        # Of the batch that was under way, some may be stored: it is counted as lost whole.
        lost = account(trainer.sent, stored, trainer.report["exporters"]["file"], unanswered=9)
        assert lost.keys() == {"shutdown"}

    def test_read_only(self, small_disk, start, train) -> None:
        """A folder that can't be written to is named at once by a flush too; the loss is a `configuration_error`."""
        disk = small_disk(MIB)
        trainer = start(BACKENDS="file", OTEL_ROLLOUT_DIR=disk / "traces")
        # It has called init then.
        assert trainer.flush() is True
        with read_only(disk):
            train(trainer)
            assert trainer.flush(90.0) is False
            assert "OTEL_ROLLOUT_DIR must be a folder" in trainer.stats("file")["last_error"]
            assert trainer.finish() == 0
        assert account(trainer.sent, {}, trainer.report["exporters"]["file"]) == {"configuration_error": 24}

    def test_no_folder(self, tmp_path, start, train) -> None:
        """A path that leads through a file is refused the same way, and is mended without a new start."""
        folder = tmp_path / "file" / "traces"
        trainer = start(BACKENDS="file", OTEL_ROLLOUT_DIR=folder)
        assert trainer.flush() is True
        (tmp_path / "file").touch()
        train(trainer)
        assert trainer.flush(90.0) is False
        (tmp_path / "file").unlink()
        assert trainer.flush() is True
        assert trainer.finish() == 0
        assert account(trainer.sent, self.stored(folder), trainer.report["exporters"]["file"]) == {}

    def test_sigkill(self, tmp_path, start, train) -> None:
        """SIGKILL costs what is queued; all that was delivered is read, unfinished trajectories too, each span once."""
        trainer = start(BACKENDS="file", OTEL_ROLLOUT_DIR=tmp_path / "traces", schedule_delay_ms=20)
        train(trainer)
        trainer.ask("leave open")
        assert trainer.flush() is True
        first = trainer.sent
        trainer.tell("train", trajectories=100_000, size=2000, bads=0)
        while len(trainer.sent) < 600:
            time.sleep(0.02)
        trainer.process.send_signal(signal.SIGKILL)
        assert trainer.wait() == -signal.SIGKILL
        stored = self.stored(tmp_path / "traces")
        assert set(stored.values()) == {1}
        assert first < stored.keys() <= trainer.sent
        (unfinished,) = otel_rollout.read_trajectories(tmp_path / "traces", step=3)
        assert [span.name for span in unfinished.spans] == ["tool"]
        assert not unfinished.has_root

    @pytest.mark.slow
    def test_eight_processes(self, tmp_path, family) -> None:
        """A parent and seven children, forked, spawned and from a fork server, write one folder whole."""
        sent, counts = family(
            "fork+spawn+forkserver", "7", OTEL_TRACES_EXPORTER="file", OTEL_ROLLOUT_DIR=str(tmp_path / "traces")
        )
        assert self.stored(tmp_path / "traces") == dict.fromkeys(sent, 1)
        assert counts["file"]["lost"] == {}
        trajectories = list(otel_rollout.read_trajectories(tmp_path / "traces"))
        assert [trajectory.span_count for trajectory in trajectories] == [2] * (len(sent) // 2)
        assert {trajectory.step for trajectory in otel_rollout.read_trajectories(tmp_path / "traces", step=1)} == {1}


@pytest.mark.slow
class TestSqlite:
    """MLflow's database."""

    def variables(self, database):
        """Return the environment that leads a process to it."""
        return {
            "BACKENDS": "mlflow",
            "MLFLOW_TRACKING_URI": f"sqlite:///{database}",
            "MLFLOW_DISABLE_TELEMETRY": "true",
        }

    def stored(self, database):
        """Return how often MLflow's client shows each span."""
        mlflow = pytest.importorskip("mlflow")
        client = mlflow.MlflowClient(tracking_uri=f"sqlite:///{database}")
        experiment = client.get_experiment_by_name("faults")
        traces = client.search_traces(locations=[experiment.experiment_id], max_results=500)
        return Counter(span.span_id for trace in traces for span in trace.data.spans)

    def test_full(self, small_disk, start, train) -> None:
        """While the disk is full spans wait; once there is room each is stored, once; the rest is counted at the end.

        The disk is full before there is a database, then beside one, then at the end.
        """
        pytest.importorskip("mlflow")
        disk = small_disk(16 * MIB)
        database, ballast = disk / "mlflow.db", fill(disk)
        trainer = start(**self.variables(database), shutdown_timeout_ms=3000)
        train(trainer)
        trainer.await_trouble("mlflow")
        ballast.unlink()
        assert trainer.flush(90.0) is True
        ballast = fill(disk)
        train(trainer, 16, size=50_000)
        assert trainer.flush(1.0) is False
        assert "disk is full" in trainer.await_trouble("mlflow")
        ballast.unlink()
        assert trainer.flush(90.0) is True
        before_the_end = trainer.sent
        ballast = fill(disk)
        train(trainer, 16, size=50_000)
        assert trainer.finish() == 0
        ballast.unlink()
        stored = self.stored(database)
        assert set(stored.values()) == {1}
        assert stored.keys() >= before_the_end
        lost = account(trainer.sent, stored, trainer.report["exporters"]["mlflow"])
        assert lost.keys() == {"shutdown"}

    def test_read_only(self, small_disk, tmp_path, start, train) -> None:
        """A database that can't be written to is named at once by a flush too; the loss is a `configuration_error`."""
        mlflow = pytest.importorskip("mlflow")
        mlflow.MlflowClient(tracking_uri=f"sqlite:///{tmp_path}/new.db").create_experiment("faults")
        disk = small_disk(16 * MIB)
        shutil.copy(tmp_path / "new.db", disk / "mlflow.db")
        with read_only(disk):
            trainer = start(**self.variables(disk / "mlflow.db"))
            train(trainer)
            assert trainer.flush(90.0) is False
            assert trainer.stats("mlflow")["last_error"].startswith("configuration_error: ")
            assert trainer.finish() == 0
        assert account(trainer.sent, {}, trainer.report["exporters"]["mlflow"]) == {"configuration_error": 24}
        assert self.stored(disk / "mlflow.db") == {}
