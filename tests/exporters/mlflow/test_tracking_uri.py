"""Which store a tracking URI names, and what is said of one that names none."""

from __future__ import annotations

import re
import sys

import pytest

from otel_rollout.errors import ConfigurationError, MissingExtraError
from otel_rollout.export.outcome import Verdict
from otel_rollout.installing import install_line
from otel_rollout_mlflow import MlflowSpanExporter
from otel_rollout_mlflow.tracking_uri import TrackingUri, parse_tracking_uri


class TestParseTrackingUri:
    """The URIs that mlflow knows."""

    def test_default_is_a_file_in_the_working_folder(self, tmp_path, monkeypatch) -> None:
        """With nothing set, it is mlruns.db where the program runs, also if it changes its folder later."""
        monkeypatch.chdir(tmp_path)

        assert parse_tracking_uri(None) == TrackingUri("sql", f"sqlite:///{tmp_path}/mlruns.db", tmp_path / "mlruns.db")

    def test_environment_and_argument(self, monkeypatch) -> None:
        """The argument wins over `MLFLOW_TRACKING_URI`."""
        monkeypatch.setenv("MLFLOW_TRACKING_URI", "http://one:5000/")

        assert parse_tracking_uri(None) == TrackingUri("http", "http://one:5000")
        assert parse_tracking_uri("https://two/prefix/") == TrackingUri("http", "https://two/prefix")

    @pytest.mark.parametrize("uri", ["postgresql+psycopg2://u:p@host/db", "mysql://host/db", "mssql+pyodbc://host/db"])
    def test_databases(self, uri) -> None:
        """Any SQL URI is a database."""
        assert parse_tracking_uri(uri) == TrackingUri("sql", uri)

    def test_sqlite_path(self, tmp_path) -> None:
        """A sqlite URI's path is known and its options are kept; SQLite reads the path of a `file:` URI itself."""
        path = tmp_path / "a b.db"

        assert parse_tracking_uri(f"sqlite:///{path}?timeout=5") == TrackingUri(
            "sql", f"sqlite:///{path}?timeout=5", path
        )
        uri = "sqlite:///file:a.db?uri=true"
        assert parse_tracking_uri(uri) == TrackingUri("sql", uri)

    @pytest.mark.parametrize(
        "uri",
        [
            "sqlite://",
            "sqlite:///",
            "sqlite:///:memory:",
            "sqlite+pysqlite:///:memory:",
            "sqlite:///file::memory:?cache=shared&uri=true",
            "sqlite:///file:traces?mode=memory&uri=true",
        ],
    )
    def test_database_in_memory(self, uri) -> None:
        """A database in memory is an error that says why and what to use instead."""
        with pytest.raises(ConfigurationError) as caught:
            parse_tracking_uri(uri)

        assert str(caught.value) == (
            f"MLFLOW_TRACKING_URI={uri.partition('?')[0]!r} is a database in memory, which ends with its process; set "
            "MLFLOW_TRACKING_URI (or tracking_uri=) to sqlite:///mlruns.db, to another SQL URI, or to a server: "
            "http://host:5000"
        )

    @pytest.mark.parametrize("scheme", ["postgresql", "postgresql+psycopg2", "mysql+pymysql"])
    @pytest.mark.parametrize("password", ["se@cret", "se/cr@et", "se@cr:et", "se@cr?et", "12@34/56", "12/34", "12#34"])
    def test_password_that_is_not_encoded(self, scheme, password) -> None:
        """A password that sqlalchemy splits, or that a message would show, is an error that says how to write it."""
        with pytest.raises(ConfigurationError) as caught:
            parse_tracking_uri(f"{scheme}://me:{password}@host:5432/db")

        assert str(caught.value) == (
            "MLFLOW_TRACKING_URI has a special letter that is not percent-encoded, most likely in the password: write "
            "@ as %40, : as %3A, / as %2F, ? as %3F, # as %23"
        )

    @pytest.mark.parametrize(
        "rest",
        [
            "me:se%40cret@host/db",
            "me@tenant:s3cret@host/db",
            "me:se:cret@host/db",
            "me:s3cret@[::1]:5432/db",
            "/db?host=/run/postgresql&user=me&password=se@cret",
        ],
    )
    def test_letters_that_sqlalchemy_reads_right(self, rest) -> None:
        """An `@` in the user name or the query, and a colon in the password, are no error."""
        assert parse_tracking_uri(f"postgresql://{rest}") == TrackingUri("sql", f"postgresql://{rest}")

    @pytest.mark.parametrize("uri", ["./mlruns", "mlruns", "/data/mlruns", "file:///data/mlruns", "file:mlruns"])
    def test_folder(self, uri) -> None:
        """A folder is an error that says what to use instead."""
        with pytest.raises(ConfigurationError) as caught:
            parse_tracking_uri(uri)

        assert str(caught.value) == (
            f"MLFLOW_TRACKING_URI={uri!r} is a folder, and MLflow keeps no traces in folders; set MLFLOW_TRACKING_URI "
            "(or tracking_uri=) to sqlite:///mlruns.db, to another SQL URI, or to a server: http://host:5000"
        )

    @pytest.mark.parametrize(
        ("uri", "said"), [("databricks", "Databricks is not supported"), ("s3://bucket", "no store for 's3'")]
    )
    def test_other_stores(self, uri, said) -> None:
        """A Databricks workspace and an object store are errors too."""
        with pytest.raises(ConfigurationError, match=said):
            parse_tracking_uri(uri)

    @pytest.mark.parametrize(
        "uri", ["htp://me:s3cret@x", "databricks://me:s3cret@x", "me:s3cret@host:5000", "s3://bucket?key=s3cret"]
    )
    def test_no_secret_is_said(self, uri) -> None:
        """The error for a wrong URI has neither its password nor its query."""
        with pytest.raises(ConfigurationError) as caught:
            parse_tracking_uri(uri)

        assert "s3cret" not in str(caught.value)


class TestCheck:
    """The errors of `init`, before anything is sent."""

    def test_folder(self) -> None:
        """The constructor never raises; `check` does, and an attempt fails with the same words."""
        exporter = MlflowSpanExporter(tracking_uri="./mlruns")

        with pytest.raises(ConfigurationError, match="is a folder"):
            exporter.check()
        outcome = exporter.send([])
        assert outcome.verdict is Verdict.CONFIGURATION_ERROR
        assert "is a folder" in outcome.reason

    def test_missing_package(self, tmp_path, monkeypatch) -> None:
        """A database without mlflow is an error that says how to install it, and no secret; a server needs nothing."""
        monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
        MlflowSpanExporter(tracking_uri="http://host").check()

        with pytest.raises(MissingExtraError) as said:
            MlflowSpanExporter(tracking_uri="postgresql://me:s3cret@host/db?password=s3cret").check()
        assert str(said.value).startswith("MLFLOW_TRACKING_URI='postgresql://host/db' needs mlflow, ")

        with pytest.raises(MissingExtraError) as caught:
            MlflowSpanExporter(tracking_uri=f"sqlite:///{tmp_path}/t.db").check()

        assert str(caught.value) == (
            f"MLFLOW_TRACKING_URI='sqlite:///{tmp_path}/t.db' needs mlflow, sqlalchemy, alembic: "
            f"{install_line('mlflow')}"
        )

    @pytest.mark.parametrize(
        ("scheme", "module", "install"),
        [
            ("postgresql+psycopg", "psycopg", install_line("postgresql")),
            ("postgresql+psycopg2", "psycopg2", "pip install psycopg2-binary"),
            ("mysql", "MySQLdb", "pip install mysqlclient, or write mysql+pymysql:// for pymysql, which is installed"),
            ("mysql+pymysql", "pymysql", install_line("mysql")),
            ("mssql", "pyodbc", "pip install pyodbc"),
        ],
    )
    def test_missing_driver(self, monkeypatch, scheme, module, install) -> None:
        """A database whose driver isn't installed is an error with the driver's name and the line that installs it."""
        pytest.importorskip("mlflow")
        monkeypatch.setitem(sys.modules, module, None)

        with pytest.raises(MissingExtraError) as caught:
            MlflowSpanExporter(tracking_uri=f"{scheme}://me:s3cret@host/db").check()

        message = str(caught.value)
        assert message.startswith(f"MLFLOW_TRACKING_URI='{scheme}://host/db' needs the driver ")
        assert message.endswith(f": {install}")

    @pytest.mark.parametrize(
        ("uri", "said"),
        [
            ("postgresql://me:s3cret@host:port/db", "can't read it"),
            ("mysql+nosuch://host/db", "knows no such database"),
        ],
    )
    def test_address_that_cannot_be_read(self, uri, said) -> None:
        """An address that sqlalchemy makes nothing of is an error at `init`, without the password."""
        pytest.importorskip("mlflow")

        with pytest.raises(ConfigurationError, match=said) as caught:
            MlflowSpanExporter(tracking_uri=uri).check()

        assert "s3cret" not in str(caught.value)

    @pytest.mark.parametrize(
        "uri", ["postgresql+psycopg2://host/db", "postgresql://host:port/db", "mysql+nosuch://h/d"]
    )
    def test_what_cannot_be_opened_is_denied(self, uri, trajectory, monkeypatch) -> None:
        """Without `check`, under another processor, an attempt fails with the same message."""
        pytest.importorskip("mlflow")
        monkeypatch.setitem(sys.modules, "psycopg2", None)
        exporter = MlflowSpanExporter(tracking_uri=uri)
        with pytest.raises(ConfigurationError) as caught:
            exporter.check()

        outcome = exporter.send(trajectory().spans)

        assert (outcome.verdict, outcome.reason) == (Verdict.CONFIGURATION_ERROR, str(caught.value))

    @pytest.mark.parametrize(("given", "instead"), [("postgres", "postgresql://"), ("mariadb", "mysql+pymysql://")])
    def test_names_of_other_programs(self, given, instead) -> None:
        """A dialect that other programs know by another name is refused with the one that works."""
        with pytest.raises(ConfigurationError, match=re.escape(f"write {instead}")):
            parse_tracking_uri(f"{given}://host/db")

    def test_shutdown_twice(self, caplog) -> None:
        """A second shutdown warns and returns."""
        exporter = MlflowSpanExporter(tracking_uri="http://127.0.0.1:1")
        exporter.shutdown()
        exporter.shutdown()

        assert "is shut down already" in caplog.text
