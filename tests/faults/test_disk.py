"""Disks that are full or can't be written: a trace folder and MLflow's sqlite file on a small file system."""

from __future__ import annotations

from collections import Counter
from contextlib import suppress

import pytest
from trainer import account

pytestmark = pytest.mark.filterwarnings("ignore:The ``noload`` loader strategy is deprecated")

MIB = 2**20


def fill(folder):
    """Fill a file system up, and return the file that does it."""
    ballast = folder / "ballast"
    with ballast.open("wb", buffering=0) as file, suppress(OSError):
        while True:
            file.write(bytes(4096))
    return ballast


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
        assert trainer.flush(60.0) is True
        ballast = fill(disk)
        train(trainer, 16, size=50_000)
        assert trainer.flush(1.0) is False
        assert "disk is full" in trainer.await_trouble("mlflow")
        ballast.unlink()
        assert trainer.flush(60.0) is True
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
