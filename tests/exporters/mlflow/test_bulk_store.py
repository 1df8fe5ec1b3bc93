"""Spans and rewards written into the database by statements of our own, beside what MLflow's store writes."""

from __future__ import annotations

import json
import os
import sqlite3
import subprocess
import sys
import threading
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from otel_rollout.export.outcome import Verdict
from otel_rollout_mlflow import MlflowSpanExporter
from otel_rollout_mlflow.sql_store import SqlStore
from otel_rollout_mlflow.store import AttemptError, Feedback
from otel_rollout_mlflow.tracking_uri import parse_tracking_uri
from tests.installed import import_path

pytestmark = pytest.mark.integration

PROGRAM = Path(__file__).parent / "programs" / "compare_rows.py"
TIME_NS = 1_760_000_000_123_456_789

# With MySQL and MariaDB, MLflow subtracts a start that the same statement has changed already.
MOVED = ("trace_info", "tr-5ce8bcf06c0fd4f5f8130c4237730ee0", "execution_time_ms", "12000", "10000")


def differences(python: str | Path, ours: str, theirs: str) -> list[tuple[str, ...]]:
    """Write the same batches in both ways; return the values that differ, ours first."""
    done = subprocess.run(
        [str(python), "-W", "ignore", str(PROGRAM), ours, theirs],
        env={**os.environ, "PYTHONPATH": str(import_path()), "MLFLOW_DISABLE_TELEMETRY": "true"},
        capture_output=True,
        text=True,
        timeout=500,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    found = json.loads(done.stdout.splitlines()[-1])
    assert found["bulk"]
    assert "in bulk" not in done.stderr
    assert found["rows"]["spans"] > 160
    return [tuple(each) for each in found["differences"]]


class TestEqualRows:
    """All rows of all tables, written by us and by MLflow."""

    def test_sqlite(self, empty_database, tmp_path) -> None:
        """Whatever spans a batch holds, the installed version's tables have the rows that MLflow would write."""
        uris = []
        for name in ("ours", "theirs"):
            (tmp_path / name).mkdir()
            (tmp_path / name / "m.db").write_bytes(empty_database.read_bytes())
            uris.append(f"sqlite:///{tmp_path / name / 'm.db'}")
        assert differences(sys.executable, *uris) == []

    @pytest.mark.parametrize(
        "version", [pytest.param(version, marks=pytest.mark.slow) for version in ("3_15", "3_16", "3_18")]
    )
    def test_other_versions(self, environment, tmp_path, version) -> None:
        """The same holds for every other version whose tables are known."""
        python = environment(f"mlflow_store_{version}") / "bin" / "python"
        for name in ("ours", "theirs"):
            (tmp_path / name).mkdir()
        uris = [f"sqlite:///{tmp_path / name / 'm.db'}" for name in ("ours", "theirs")]
        assert differences(python, *uris) == []

    @pytest.mark.slow
    def test_postgresql(self, postgresql) -> None:
        """Rows given as one JSON text are those that MLflow's statements leave in PostgreSQL."""
        uris = [postgresql.uri(postgresql.new_database("tables")) for _ in range(2)]
        assert differences(sys.executable, *uris) == []

    @pytest.mark.slow
    def test_pgbouncer(self, postgresql, pgbouncer) -> None:
        """Behind PgBouncer in transaction mode, where each transaction has another session, the rows are the same."""
        names = [postgresql.new_database("tables") for _ in range(2)]
        ours = postgresql.uri(names[0], port=pgbouncer.port)
        assert differences(sys.executable, ours, postgresql.uri(names[1])) == []

    @pytest.mark.slow
    def test_mariadb(self, mariadb) -> None:
        """MariaDB has the same rows, but for a duration that MLflow computes from a start that it has just changed."""
        uris = [mariadb.uri(mariadb.new_database("tables")) for _ in range(2)]
        assert differences(sys.executable, *uris) == [MOVED]


@pytest.mark.slow
class TestPostgresql:
    """The statements for PostgreSQL."""

    def test_one_for_a_table_keeps_the_compression(self, postgresql, trajectory, monkeypatch) -> None:
        """The spans of a batch go by one statement, and a long payload has the compression of its column."""
        psycopg = pytest.importorskip("psycopg")
        name = postgresql.new_database("tables")
        postgresql.execute("ALTER TABLE spans ALTER COLUMN content SET COMPRESSION lz4", name)
        statements: list[str] = []
        execute = psycopg.Cursor.execute
        monkeypatch.setattr(
            psycopg.Cursor, "execute", lambda *given, **more: statements.append(given[1]) or execute(*given, **more)
        )
        made = trajectory("Default", root_attributes={"input.value": '"' + "word " * 10_000 + '"'})
        store = SqlStore(parse_tracking_uri(postgresql.uri(name)))
        store.write(store.ensure_experiment("Default"), made.spans)
        store.close()
        assert len([sql for sql in statements if str(sql).startswith("INSERT INTO spans")]) == 1
        query = "SELECT count(*), max(pg_column_compression(content)) FROM spans WHERE length(content) > 40000"
        assert postgresql.execute(query, name) == "1|lz4\n"


@pytest.fixture
def store(database):
    """A store of an empty sqlite file."""
    store = SqlStore(parse_tracking_uri(f"sqlite:///{database}"))
    yield store
    store.close()


def rows(database: Path, query: str) -> list[tuple[Any, ...]]:
    """Return the rows of a query."""
    with closing(sqlite3.connect(database)) as connection:
        return connection.execute(query).fetchall()


class TestRewards:
    """Rewards that go into the database together."""

    @pytest.fixture
    def rewards(self, store, trajectory) -> list[Feedback]:
        """The rewards of three trajectories that are stored."""
        trajectories = [trajectory("project", rollout_n=number) for number in range(3)]
        store.write(store.ensure_experiment("project"), [span for each in trajectories for span in each.spans])
        return [Feedback(each.mlflow_id, number / 2, TIME_NS) for number, each in enumerate(trajectories)]

    def stored(self, database: Path) -> dict[str, float]:
        """Return the stored rewards by trace."""
        return {trace: float(value) for trace, value in rows(database, "SELECT trace_id, value FROM assessments")}

    def test_several_are_one_transaction(self, store, database, rewards, monkeypatch) -> None:
        """All are there, and the database was changed once."""
        from otel_rollout_mlflow import bulk_store

        transactions: list[str] = []
        run = bulk_store.in_transaction
        monkeypatch.setattr(bulk_store, "in_transaction", lambda *given: transactions.append("one") or run(*given))
        store.record(rewards)
        assert self.stored(database) == {reward.trace_id: reward.value for reward in rewards}
        assert transactions == ["one"]

    def test_sent_twice(self, store, database, rewards) -> None:
        """A reward that is there already is not stored a second time, and the others are stored all the same."""
        store.record(rewards[1:2])
        store.record(rewards)
        store.record(rewards)
        assert rows(database, "SELECT count(*) FROM assessments") == [(3,)]

    def test_latest_counts(self, store, database, rewards) -> None:
        """A corrected reward takes the place of the stored one; an older one that comes late changes nothing."""
        store.record(rewards)
        trace_id = rewards[0].trace_id
        store.record([Feedback(trace_id, 9.0, TIME_NS + 1), Feedback(rewards[1].trace_id, 9.0, TIME_NS - 1)])
        assert self.stored(database) == {trace_id: 9.0, rewards[1].trace_id: 0.5, rewards[2].trace_id: 1.0}

    def test_one_whose_trace_is_gone(self, store, database, rewards) -> None:
        """The error says so, for the exporter to write the trace again; the others are stored."""
        gone = Feedback("tr-" + "0" * 31 + "1", 1.0, TIME_NS)
        with pytest.raises(AttemptError) as raised:
            store.record([*rewards, gone])
        assert raised.value.is_missing
        assert self.stored(database) == {reward.trace_id: reward.value for reward in rewards}


class TestFaults:
    """Databases that are busy, unknown, or refuse a batch."""

    def test_locked_file(self, store, database, trajectory, monkeypatch) -> None:
        """A file that another program locks is worth another attempt, and nothing of the batch is stored."""
        monkeypatch.setattr("otel_rollout_mlflow.bulk_sql.SECONDS_FOR_LOCK", 0)
        experiment_id = store.ensure_experiment("project")
        with closing(sqlite3.connect(database)) as other:
            other.execute("BEGIN IMMEDIATE")
            with pytest.raises(AttemptError) as raised:
                store.write(experiment_id, trajectory("project").spans)
        assert raised.value.outcome.verdict is Verdict.RETRY
        assert rows(database, "SELECT count(*) FROM spans") == [(0,)]
        store.write(experiment_id, trajectory("project").spans)
        assert rows(database, "SELECT count(*) FROM spans") == [(3,)]

    def test_unknown_revision(self, database, trajectory, monkeypatch, caplog) -> None:
        """A schema revision that isn't known is written to by MLflow's own store, and one line says so."""
        monkeypatch.setattr("otel_rollout_mlflow.bulk_store.REVISIONS", {})
        store = SqlStore(parse_tracking_uri(f"sqlite:///{database}"))
        store.write(store.ensure_experiment("project"), trajectory("project").spans)
        store.close()
        assert rows(database, "SELECT count(*) FROM spans") == [(3,)]
        assert [record.getMessage() for record in caplog.records if "layout" in record.getMessage()] == [
            f"mlflow {'.'.join(map(str, store._version))}: the layout of its database is not known: "  # noqa: ISC004
            "its own store writes the spans, more slowly"
        ]

    @pytest.mark.slow
    def test_writers_of_the_same_traces(self, postgresql_uri, project, trajectory, read_back) -> None:
        """Four writers that write parts of the same traces at once lose no span, and none gives up."""
        trajectories = [trajectory(project, rollout_n=number) for number in range(20)]
        outcomes: list[Verdict] = []
        stores = [MlflowSpanExporter(tracking_uri=postgresql_uri) for _ in range(4)]
        stores[0]._opened().ensure_experiment(project)

        def write(number: int) -> None:
            ordered = trajectories if number % 2 else trajectories[::-1]
            spans = [each.spans[number % 3] for each in ordered]
            outcomes.extend(stores[number].send(spans).verdict for _ in range(5))

        threads = [threading.Thread(target=write, args=(number,)) for number in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

        assert outcomes == [Verdict.DELIVERED] * 20
        traces = read_back(postgresql_uri, project).traces()
        assert sorted(len(trace.data.spans) for trace in traces) == [3] * 20
        assert {str(trace.info.token_usage["total_tokens"]) for trace in traces} == {"15"}
        for each in stores:
            each.shutdown()
