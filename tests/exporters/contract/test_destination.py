"""Destinations: secret-free ids that differ for different places."""

from __future__ import annotations

import pytest

from otel_rollout.export.exporter import destination_of
from otel_rollout_console import ConsoleSpanExporter
from otel_rollout_file import FileSpanExporter
from otel_rollout_mlflow import MlflowSpanExporter
from otel_rollout_otlp import OtlpGrpcSpanExporter, OtlpHttpSpanExporter
from otel_rollout_phoenix import PhoenixSpanExporter
from otel_rollout_trackio import TrackioSpanExporter
from otel_rollout_weave import WeaveSpanExporter

OTLP = [OtlpHttpSpanExporter, OtlpGrpcSpanExporter]
BY_HTTP = [*OTLP, PhoenixSpanExporter]


class TestDestination:
    """The `destination` of an exporter, by which a replay remembers what was delivered."""

    def test_is_the_address(self, tmp_path, monkeypatch):
        """An address, a database, a folder: what a person would call it."""
        monkeypatch.setenv("MLFLOW_TRACKING_URI", "http://mlflow:5000")
        monkeypatch.setenv("WF_TRACE_SERVER_URL", "http://weave:8765")
        monkeypatch.setenv("WANDB_ENTITY", "team")
        monkeypatch.chdir(tmp_path)

        assert OtlpHttpSpanExporter().destination == "http://localhost:4318/v1/traces"
        assert OtlpGrpcSpanExporter().destination == "http://localhost:4317"
        assert MlflowSpanExporter().destination == "http://mlflow:5000"
        assert MlflowSpanExporter(tracking_uri="sqlite:///a.db").destination == f"sqlite:///{tmp_path}/a.db"
        assert WeaveSpanExporter().destination == "http://weave:8765, entity team"
        assert PhoenixSpanExporter().destination == "http://localhost:6006"
        assert TrackioSpanExporter(folder="trackio").destination == str(tmp_path / "trackio")
        assert FileSpanExporter(folder="traces").destination == str(tmp_path / "traces")

    @pytest.mark.parametrize("exporter", BY_HTTP)
    def test_has_no_secret(self, exporter):
        """Neither a password in the URL nor a header's value can be read in it."""
        made = exporter(endpoint="http://me:s3cret@host:4318/v1/traces", headers={"authorization": "Bearer s3cret"})

        assert "s3cret" not in made.destination
        assert "me" not in made.destination
        path = "" if exporter is PhoenixSpanExporter else "/v1/traces"
        assert made.destination.startswith(f"http://host:4318{path} (authorization: ")

    def test_of_trackio_has_no_token(self):
        """The write token in a server's URL is left out."""
        made = TrackioSpanExporter(server_url="http://host:7860/?write_token=s3cret", project="p")

        assert made.destination == "http://host:7860, project p"

    @pytest.mark.parametrize("exporter", OTLP)
    def test_of_a_query_there_is_a_hash(self, exporter):
        """A query can hold a key, and name a project: it is not shown, and another one is another destination."""
        first, second = (exporter(endpoint=f"http://host/v1/traces?token=s3cret{n}").destination for n in (1, 2))

        assert first.startswith("http://host/v1/traces (a query: ")
        assert "s3cret" not in first
        assert first != second

    def test_of_mlflow_has_no_password(self):
        """A database's password is left out, and of a query there is a hash."""
        made = MlflowSpanExporter(tracking_uri="postgresql://me:s3cret@host/mlflow")
        queried = MlflowSpanExporter(tracking_uri="postgresql://host/mlflow?password=s3cret")

        assert made.destination == "postgresql://host/mlflow"
        assert queried.destination.startswith("postgresql://host/mlflow (a query: ")
        assert "s3cret" not in queried.destination

    @pytest.mark.parametrize("exporter", BY_HTTP)
    def test_headers_tell_places_apart(self, exporter):
        """At one address a header can name a project, or its owner: another value is another destination."""
        first, second, again = (exporter(headers={"Authorization": value}) for value in ("one", "two", "one"))

        assert first.destination != second.destination
        assert first.destination == again.destination

    def test_what_overrides_the_spans_project_tells_places_apart(self):
        """With a project or an experiment given to the exporter, the spans end up in another place."""
        address = "http://mlflow:5000"

        assert MlflowSpanExporter(tracking_uri=address).destination == address
        assert MlflowSpanExporter(tracking_uri=address, experiment_name="x").destination == f"{address}, experiment x"
        assert "project p" in WeaveSpanExporter(trace_server_url="http://weave", project="p").destination

    def test_is_unknown_where_there_is_none(self, monkeypatch):
        """The console keeps nothing; settings that can't work lead nowhere."""
        monkeypatch.setenv("MLFLOW_TRACKING_URI", "databricks")

        assert destination_of(ConsoleSpanExporter()) is None
        assert destination_of(MlflowSpanExporter()) is None
