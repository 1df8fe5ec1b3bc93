"""Workers that start at once, on one fresh file or on one server."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from otel_rollout_mlflow import MlflowSpanExporter

pytestmark = pytest.mark.integration

PROGRAM = Path(__file__).parent / "programs" / "worker.py"
TRAJECTORIES = 5
SPANS_OF_EACH = 5
SECONDS = 400
WHOLE = "lost 0, imported []"
"""What a worker prints: tracing imports nothing of mlflow, nor any database, where the training runs."""


def run_workers(uri: str, project: str, count: int, *more: str) -> list[str]:
    """Run the workers at once and return what each printed last."""
    environment = {**os.environ, "MLFLOW_DISABLE_TELEMETRY": "true"}
    workers = [
        subprocess.Popen(
            [sys.executable, "-W", "error", str(PROGRAM), uri, project, str(number), str(TRAJECTORIES), *more],
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        for number in range(count)
    ]
    try:
        return [worker.communicate(timeout=SECONDS)[0].strip().splitlines()[-1] for worker in workers]
    finally:
        for worker in workers:
            worker.kill()
            worker.wait()


@pytest.mark.slow
class TestFreshSqliteFile:
    """A file that nobody has made yet."""

    @pytest.mark.parametrize("count", [2, 8])
    def test_workers_lose_nothing(self, tmp_path, project, read_back, count) -> None:
        """Processes that start on one fresh file store all they have, in one experiment and one run."""
        pytest.importorskip("mlflow")
        uri = f"sqlite:///{tmp_path}/fresh/mlruns.db"

        assert run_workers(uri, project, count, "with a run") == [WHOLE] * count

        back = read_back(uri, project)
        traces = back.traces()
        assert len(traces) == count * TRAJECTORIES
        assert {len(trace.data.spans) for trace in traces} == {SPANS_OF_EACH}
        (run,) = back.client.search_runs([back.experiment_id])
        assert run.info.run_name == "exp-1"
        assert run.info.status == "FINISHED"
        assert len(back.traces(run_id=run.info.run_id, include_spans=False)) == count * TRAJECTORIES
        assert sorted(path.name for path in (tmp_path / "fresh").iterdir()) == ["mlruns.db", "mlruns.db.init.lock"]


class TestServer:
    """A server that eight workers write to."""

    @pytest.mark.parametrize("count", [1, pytest.param(8, marks=pytest.mark.slow)])
    def test_workers_share_one_experiment_and_run(self, mlflow_server, project, read_back, count) -> None:
        """Processes that start at once make one experiment and one run, and every trajectory is in both."""
        assert run_workers(mlflow_server.address, project, count, "with a run") == [WHOLE] * count

        back = read_back(mlflow_server.address, project)
        (run,) = back.client.search_runs([back.experiment_id])
        assert len(back.traces(include_spans=False)) == count * TRAJECTORIES
        assert len(back.traces(run_id=run.info.run_id, include_spans=False)) == count * TRAJECTORIES

    @pytest.mark.slow
    def test_workers_that_set_one_tag_at_once(self, mlflow_server, project) -> None:
        """MLflow answers 400 to the slower of two workers that set a run's tag at once; none of them has to see it."""
        exporters = [MlflowSpanExporter(tracking_uri=mlflow_server.address) for _ in range(8)]
        stores = [exporter._opened() for exporter in exporters]
        experiment = stores[0].ensure_experiment(project)
        with ThreadPoolExecutor(len(stores)) as workers:
            for number in range(12):
                run = stores[0].create_run(experiment, f"run-{number}", f"key-{number}")
                together = threading.Barrier(len(stores))

                def settle(store, together=together, run=run) -> None:
                    together.wait(60)
                    store.settle_run(run)

                list(workers.map(settle, stores))
                assert stores[0].find_runs(experiment, f"key-{number}") == [(run, True)]
        for exporter in exporters:
            exporter.shutdown()
