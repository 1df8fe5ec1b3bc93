"""The oldest version that the newest route works with, as a server and as the writer of a database."""

from __future__ import annotations

import importlib.metadata
import os
import shutil
import subprocess
from pathlib import Path

import pytest

from otel_rollout.export.outcome import Verdict
from otel_rollout_mlflow import MlflowSpanExporter
from tests.exporters.mlflow.test_many_processes import PROGRAM, WHOLE
from tests.installed import import_path

pytestmark = [pytest.mark.integration, pytest.mark.slow]


class TestFirstVersionWithTags:
    """mlflow 3.14."""

    def test_as_a_server(self, start_mlflow, project, trajectory, read_back) -> None:
        """Spans, tags, session, run and reward arrive, with no request per trace but the reward's."""
        with start_mlflow("mlflow_first_tags") as server:
            back = read_back(server.address, project)
            run = back.client.create_run(back.client.create_experiment(project))
            one = trajectory(project, reward=0.5)
            exporter = MlflowSpanExporter(tracking_uri=server.address, run_id=run.info.run_id)
            for part in ([one.model, one.tool], [one.root], one.spans):
                outcome = exporter.send(part)
                assert outcome.verdict is Verdict.DELIVERED, outcome.reason
            assert exporter.force_flush(), exporter.follow_up_requests.last_error
            (trace,) = back.traces("tags.step = '1'")
            runs = server.run_of_traces()

        assert {span.name: (span.inputs, span.outputs) for span in trace.data.spans} == {
            "trajectory": (
                {"messages": [{"role": "user", "content": "What is 2+2?"}]},
                {"reward": 0.5, "output": "4"},
            ),
            "generate": ({"messages": [{"role": "user", "content": "What is 2+2?"}]}, {"text": "4", "ids": [19, 20]}),
            "calculator": ({"expression": "1/0"}, None),
        }
        assert (trace.info.state, trace.info.tags["status"]) == ("OK", "completed")
        assert trace.info.trace_metadata["mlflow.trace.session"] == "exp-1/1/7"
        assert [(item.name, item.value) for item in trace.info.assessments] == [("reward", 0.5)]
        assert runs == {one.mlflow_id: run.info.run_id}

    def test_as_the_writer_of_a_database(self, environment, tmp_path, project) -> None:
        """A worker with this version installed makes the file and stores all that it has, tagged and in a run."""
        folder = environment("mlflow_first_tags")
        metadata = importlib.metadata.distribution("otel-rollout")._path
        shutil.copytree(metadata, tmp_path / "installed" / Path(metadata).name)
        paths = [import_path(), tmp_path / "installed"]
        done = subprocess.run(
            [folder / "bin" / "python", PROGRAM, f"sqlite:///{tmp_path}/traces.db", project, "0", "2", "with a run"],
            env={**os.environ, "PYTHONPATH": ":".join(str(path) for path in paths), "MLFLOW_DISABLE_TELEMETRY": "true"},
            capture_output=True,
            text=True,
            timeout=300,
            check=False,
        )
        assert done.stdout.splitlines()[-1:] == [WHOLE], done.stdout + done.stderr

        read = (
            "import sys; from mlflow import MlflowClient; client = MlflowClient(sys.argv[1]);"
            "experiment = client.get_experiment_by_name(sys.argv[2]).experiment_id;"
            "(run,) = client.search_runs([experiment]);"
            "print(sorted((trace.info.tags['step'], len(trace.data.spans)) for trace in"
            " client.search_traces(locations=[experiment], run_id=run.info.run_id)))"
        )
        found = subprocess.run(
            [folder / "bin" / "python", "-c", read, f"sqlite:///{tmp_path}/traces.db", project],
            env={**os.environ, "MLFLOW_DISABLE_TELEMETRY": "true"},
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
        assert found.stdout.splitlines()[-1:] == ["[('0', 5), ('1', 5)]"], found.stdout + found.stderr
