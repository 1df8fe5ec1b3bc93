"""Databases that are locked, replaced, broken or shared with a forked child, and servers that go away."""

from __future__ import annotations

import os
import sqlite3
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import closing

import pytest

from otel_rollout.errors import ConfigurationError
from otel_rollout.export.outcome import Verdict
from otel_rollout.installing import install_line
from otel_rollout_mlflow import MlflowSpanExporter
from otel_rollout_mlflow.sql_store import SqlStore

pytestmark = pytest.mark.integration


class TestSqliteFile:
    """Faults of a SQLite file."""

    @pytest.mark.slow
    def test_locked_database(self, database, project, trajectory, read_back) -> None:
        """A database that another program keeps locked is tried again; once it is free, the batch is stored."""
        uri, one = f"sqlite:///{database}", trajectory(project)
        exporter = MlflowSpanExporter(tracking_uri=uri)
        assert exporter.send([one.model]).verdict is Verdict.DELIVERED
        holder = sqlite3.connect(database, isolation_level=None)
        holder.execute("begin exclusive")

        outcome = exporter.send(one.spans)  # MLflow waits 20 s for the lock

        assert outcome.verdict is Verdict.RETRY
        assert "database is locked" in outcome.reason
        holder.execute("rollback")
        holder.close()
        assert exporter.send(one.spans).verdict is Verdict.DELIVERED
        assert len(read_back(uri, project).trace(one.mlflow_id).data.spans) == 3

    def test_lock_that_is_let_go_in_time(self, database, project, trajectory) -> None:
        """A lock that is let go soon only makes the batch wait."""
        exporter = MlflowSpanExporter(tracking_uri=f"sqlite:///{database}")
        assert exporter.send(trajectory(project).spans).verdict is Verdict.DELIVERED
        holder = sqlite3.connect(database, isolation_level=None, check_same_thread=False)
        holder.execute("begin exclusive")

        with ThreadPoolExecutor(1) as pool:
            sending = pool.submit(exporter.send, trajectory(project).spans)
            assert wait([sending], 0.2).not_done
            holder.execute("rollback")
            assert sending.result(60).verdict is Verdict.DELIVERED
        holder.close()

    def test_file_that_takes_no_writes(self, database, project, trajectory) -> None:
        """A database that can be read but not written to is a configuration error, at the first attempt."""
        uri = f"sqlite:///{database}"
        exporter = MlflowSpanExporter(tracking_uri=uri)
        assert exporter.send(trajectory(project).spans).verdict is Verdict.DELIVERED
        exporter.shutdown()
        with database.open("r+b") as file:
            # The "write version" of the file format: SQLite only reads a file of a version that it doesn't know.
            file.seek(18)
            file.write(b"\x03")
        exporter = MlflowSpanExporter(tracking_uri=uri)

        outcome = exporter.send(trajectory(project).spans)

        assert outcome.verdict is Verdict.CONFIGURATION_ERROR
        assert "readonly database" in outcome.reason

    @pytest.mark.slow
    def test_file_that_is_emptied(self, database, project, trajectory) -> None:
        """After the file was truncated, its tables are made again, and the next batch is in them."""
        one = trajectory(project)
        exporter = MlflowSpanExporter(tracking_uri=f"sqlite:///{database}")
        assert exporter.send(trajectory(project).spans).verdict is Verdict.DELIVERED
        os.truncate(database, 0)

        outcome = exporter.send(one.spans)

        assert outcome.verdict is Verdict.DELIVERED, outcome.reason
        with closing(sqlite3.connect(database)) as connection:
            assert connection.execute("select request_id from trace_info").fetchall() == [(one.mlflow_id,)]

    @pytest.mark.parametrize(
        ("spoil", "said"),
        [
            (lambda path: os.truncate(path, path.stat().st_size // 2), "disk image is malformed"),
            (lambda path: path.write_bytes(b"something else" * 1000), "is not a database"),
        ],
        ids=["cut", "overwritten"],
    )
    def test_file_that_is_damaged(self, database, project, trajectory, spoil, said) -> None:
        """A file that breaks meanwhile is the fault, and no span: each attempt says what is wrong with it."""
        exporter = MlflowSpanExporter(tracking_uri=f"sqlite:///{database}")
        assert exporter.send(trajectory(project).spans).verdict is Verdict.DELIVERED
        spoil(database)

        outcome = exporter.send(trajectory(project).spans)

        assert outcome.verdict is Verdict.CONFIGURATION_ERROR
        assert said in outcome.reason

    @pytest.mark.slow
    def test_file_that_is_removed(self, database, project, trajectory, read_back) -> None:
        """After the file was removed, the next batch makes a new one, and isn't written to a file without a name."""
        uri, one = f"sqlite:///{database}", trajectory(project)
        exporter = MlflowSpanExporter(tracking_uri=uri)
        assert exporter.send(trajectory(project).spans).verdict is Verdict.DELIVERED
        database.unlink()

        outcome = exporter.send(one.spans)

        assert outcome.verdict is Verdict.DELIVERED, outcome.reason
        connection = sqlite3.connect(database)
        assert connection.execute("select request_id from trace_info").fetchall() == [(one.mlflow_id,)]
        connection.close()

    def test_forked_child(self, database, project, trajectory, read_back) -> None:
        """A forked child writes with connections of its own, and its parent goes on with its own."""
        uri = f"sqlite:///{database}"
        exporter = MlflowSpanExporter(tracking_uri=uri)
        of_parent, of_child, after = (trajectory(project) for _ in range(3))
        assert exporter.send(of_parent.spans).verdict is Verdict.DELIVERED
        child = os.fork()
        if child == 0:
            os._exit(0 if exporter.send(of_child.spans).verdict is Verdict.DELIVERED else 1)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0

        assert exporter.send(after.spans).verdict is Verdict.DELIVERED

        found = {trace.info.trace_id for trace in read_back(uri, project).traces()}
        assert found == {of_parent.mlflow_id, of_child.mlflow_id, after.mlflow_id}

    def test_database_of_an_interrupted_start(self, tmp_path, trajectory, monkeypatch) -> None:
        """Half a database is waited for, as another program may be making it, and then named as broken."""
        broken = tmp_path / "broken.db"
        connection = sqlite3.connect(broken)
        connection.execute("create table alembic_version (version_num text)")
        connection.commit()
        connection.close()
        exporter = MlflowSpanExporter(tracking_uri=f"sqlite:///{broken}")

        first = exporter.send(trajectory().spans)
        monkeypatch.setattr("otel_rollout_mlflow.sql_store.SECONDS_FOR_OTHERS", 0.0)
        second = exporter.send(trajectory().spans)

        assert (first.verdict, first.reason) == (Verdict.RETRY, f"{broken} is being made by another program")
        assert second.verdict is Verdict.CONFIGURATION_ERROR
        assert f"{broken} is an incomplete MLflow database" in second.reason

    @pytest.mark.parametrize("content", [b"this is a text", b"x" * 10_000, None])
    def test_file_that_is_no_database(self, tmp_path, trajectory, content) -> None:
        """Another file, or a folder, is named as such by `init` and by the first attempt, and is not changed."""
        path = tmp_path / "notdb.db"
        if content is None:
            path.mkdir()
        else:
            path.write_bytes(content)
        exporter = MlflowSpanExporter(tracking_uri=f"sqlite:///{path}")
        said = f"{path} is no SQLite database: MLFLOW_TRACKING_URI must name a SQLite database or a new file"

        with pytest.raises(ConfigurationError) as caught:
            exporter.check()
        outcome = exporter.send(trajectory().spans)

        assert str(caught.value) == said
        assert (outcome.verdict, outcome.reason) == (Verdict.CONFIGURATION_ERROR, said)
        assert content is None or path.read_bytes() == content

    @pytest.mark.slow
    def test_empty_file(self, tmp_path, trajectory) -> None:
        """An empty file is no error: it becomes the database."""
        path = tmp_path / "empty.db"
        path.touch()
        exporter = MlflowSpanExporter(tracking_uri=f"sqlite:///{path}")

        exporter.check()

        assert exporter.send(trajectory().spans).verdict is Verdict.DELIVERED
        exporter.shutdown()

    def test_folder_that_cannot_be_made(self, tmp_path, trajectory) -> None:
        """A path under a file is an error that names the path."""
        (tmp_path / "file").write_text("")

        outcome = MlflowSpanExporter(tracking_uri=f"sqlite:///{tmp_path}/file/traces.db").send(trajectory().spans)

        assert outcome.verdict is Verdict.CONFIGURATION_ERROR
        assert str(tmp_path) in outcome.reason


class TestServer:
    """Faults of a server."""

    @pytest.mark.slow
    def test_server_that_is_down_and_comes_back(self, start_mlflow, project, trajectory, read_back) -> None:
        """A batch for a server that is down is tried again; once it is back, it is stored."""
        down = start_mlflow("mlflow")
        exporter, one = MlflowSpanExporter(tracking_uri=down.address), trajectory(project, reward=1.0)
        first = exporter.send(one.spans)
        with down:
            second = exporter.send(one.spans)
            found = len(read_back(down.address, project).traces())
        third = exporter.send(one.spans)

        assert [outcome.verdict for outcome in (first, second, third)] == [
            Verdict.RETRY,
            Verdict.DELIVERED,
            Verdict.RETRY,
        ]
        assert found == 1

    def test_something_else_answers(self, mlflow_server, trajectory) -> None:
        """An address where no MLflow API is, is an error that names the address."""
        outcome = MlflowSpanExporter(tracking_uri=f"{mlflow_server.address}/elsewhere").send(trajectory().spans)

        assert outcome.verdict is Verdict.CONFIGURATION_ERROR
        assert f"{mlflow_server.address}/elsewhere/" in outcome.reason


class TestMissingPackage:
    """A database, where mlflow is missing or too old."""

    def test_mlflow_is_missing(self, tmp_path, trajectory, monkeypatch) -> None:
        """The error has the line that installs it."""
        monkeypatch.setitem(__import__("sys").modules, "mlflow", None)

        outcome = MlflowSpanExporter(tracking_uri=f"sqlite:///{tmp_path}/traces.db").send(trajectory().spans)

        assert outcome.verdict is Verdict.CONFIGURATION_ERROR
        assert install_line("mlflow") in outcome.reason

    def test_mlflow_is_too_old(self, tmp_path, trajectory, monkeypatch) -> None:
        """The error names the version that is there and the one that is needed."""
        mlflow = pytest.importorskip("mlflow")
        monkeypatch.setattr(mlflow, "__version__", "3.12.1")

        outcome = MlflowSpanExporter(tracking_uri=f"sqlite:///{tmp_path}/traces.db").send(trajectory().spans)

        assert outcome.verdict is Verdict.CONFIGURATION_ERROR
        assert "mlflow 3.12.1 is installed; writing traces to a database needs 3.14 or later" in outcome.reason

    def test_store_is_closed_twice(self, database, project, trajectory) -> None:
        """A store that was closed opens again when it is used."""
        exporter = MlflowSpanExporter(tracking_uri=f"sqlite:///{database}")
        assert exporter.send(trajectory(project).spans).verdict is Verdict.DELIVERED
        store = exporter._opened()
        assert isinstance(store, SqlStore)
        store.close()
        store.close()

        assert exporter.send(trajectory(project).spans).verdict is Verdict.DELIVERED
