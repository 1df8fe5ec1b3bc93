"""The address of a trajectory's page: what each exporter can say without a request."""

from __future__ import annotations

from otel_rollout_file import FileSpanExporter
from otel_rollout_mlflow import MlflowSpanExporter
from otel_rollout_phoenix import PhoenixSpanExporter
from otel_rollout_weave import WeaveSpanExporter

IDS = ("0123456789abcdef0123456789abcdef", "0123456789abcdef")


def test_phoenix_resolves_the_trace_id():
    """Phoenix redirects from the trace's id, at the address without password."""
    exporter = PhoenixSpanExporter(endpoint="http://me:pw@localhost:6006")

    assert exporter.trajectory_url(*IDS, "p") == f"http://localhost:6006/redirects/traces/{IDS[0]}"


def test_mlflow_needs_the_experiments_id():
    """A server's page is known once the experiment is; a database has none."""
    exporter = MlflowSpanExporter(tracking_uri="http://me:pw@localhost:5000/")

    assert exporter.trajectory_url(*IDS, "p") is None
    exporter._experiments["p"] = "7"
    address = f"http://localhost:5000/#/experiments/7/traces?selectedEvaluationId=tr-{IDS[0]}"
    assert exporter.trajectory_url(*IDS, "p") == address
    database = MlflowSpanExporter(tracking_uri="sqlite:///mlflow.db")
    database._experiments["p"] = "7"
    assert database.trajectory_url(*IDS, "p") is None


def test_weave_needs_the_projects_owner():
    """The page of the root's call is known once something went to the project."""
    exporter = WeaveSpanExporter(api_key="key")

    assert exporter.trajectory_url(*IDS, "p") is None
    exporter._connect()._projects["p"] = "team/p"
    assert exporter.trajectory_url(*IDS, "p") == f"https://wandb.ai/team/p/r/call/{IDS[1]}"


def test_a_folder_has_no_page(tmp_path):
    """Most exporters have none."""
    assert FileSpanExporter(folder=tmp_path).trajectory_url(*IDS, "p") is None
