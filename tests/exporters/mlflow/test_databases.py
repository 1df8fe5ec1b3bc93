"""Database servers that are away, refuse, or are opened by many processes at once."""

from __future__ import annotations

import sqlite3
import subprocess
import sys
import threading
from contextlib import AbstractContextManager, closing, nullcontext

import pytest

import otel_rollout
from otel_rollout import annotate, flush, rollout_trace_attr, rollout_trace_op, stats
from otel_rollout.export import send_batch
from otel_rollout.export.outcome import Verdict
from otel_rollout_mlflow import MlflowSpanExporter, database
from otel_rollout_mlflow.store import AttemptError
from tests.delivery.queues import until
from tests.exporters.mlflow.test_many_processes import SPANS_OF_EACH, TRAJECTORIES, WHOLE, run_workers
from tests.servers.databases import Mariadb, PgBouncer, Postgresql, missing_programs
from tests.servers.fixtures import missing
from tests.servers.process import free_port

pytestmark = pytest.mark.integration


def outcome_of(uri: str, spans):
    """Return the outcome of one attempt."""
    exporter = MlflowSpanExporter(tracking_uri=uri)
    outcome = exporter.send(spans)
    exporter.shutdown()
    return outcome


class TestOpening:
    """A database that can't be opened."""

    def test_away(self, trajectory) -> None:
        """A server that nobody runs is worth another attempt, and the reason is what its driver found."""
        pytest.importorskip("mlflow.store.tracking.sqlalchemy_store")
        outcome = outcome_of(f"postgresql://mlflow:x@127.0.0.1:{free_port()}/mlflow", trajectory().spans)
        assert outcome.verdict is Verdict.RETRY
        assert "can't be reached" in outcome.reason
        assert outcome.reason.endswith("Connection refused")

    @pytest.mark.slow
    def test_away_at_the_start(self, postgresql, project, trajectory, uncaptured) -> None:
        """The attempt after it is back stores the batch: nothing of the failed opening is kept."""
        if names := missing_programs("pgbouncer"):
            missing(f"not installed: {', '.join(names)}")
        away, spans = PgBouncer(postgresql, uncaptured=uncaptured), trajectory(project).spans
        exporter = MlflowSpanExporter(tracking_uri=postgresql.uri("tables", port=away.port))
        assert exporter.send(spans).verdict is Verdict.RETRY
        with away:
            assert exporter.send(spans).verdict is Verdict.DELIVERED
            exporter.shutdown()

    @pytest.mark.slow
    @pytest.mark.parametrize("server", ["postgresql", "mariadb"])
    def test_wrong_password(self, server, trajectory, request) -> None:
        """A wrong password is a configuration error in the words of the database, without the password."""
        uri = request.getfixturevalue(server).uri("tables", password="wrong-one")
        outcome = outcome_of(uri, trajectory().spans)
        assert outcome.verdict is Verdict.CONFIGURATION_ERROR
        assert "refuses" in outcome.reason
        assert "wrong-one" not in outcome.reason

    @pytest.mark.parametrize(
        ("words", "shown"),
        [
            ("failed to resolve host 'cret@host'", "failed to resolve host '***@host'"),
            ("bad password 'se@cret', refused", "bad password '***', refused"),
            ("x" * 298 + "cret", "x" * 298 + "**"),
            ('bad option "k3yword" for user "me", some of it', 'bad option "***" for user "***", some of it'),
            ("no host 'se'", "OSError"),
            ("connection refused", "connection refused"),
        ],
    )
    def test_words_of_the_driver(self, words, shown) -> None:
        """No user name and no piece of a password is shown; with one too short to be replaced, none of the words."""
        sqlalchemy = pytest.importorskip("sqlalchemy")
        pytest.importorskip("psycopg")

        def fail() -> None:
            raise OSError(words)

        uri = "postgresql+psycopg://me:se%40cret@host/db?sslpassword=k3yword"
        with pytest.raises(AttemptError) as caught:
            database.try_connection(sqlalchemy.create_engine(uri, creator=fail), uri)

        reason = caught.value.outcome.reason
        assert reason == f"the MLflow database can't be reached: postgresql+psycopg://host/db: {shown}"

    @pytest.mark.slow
    @pytest.mark.parametrize("server", ["postgresql", "mariadb"])
    def test_missing_database(self, server, trajectory, request) -> None:
        """A database that doesn't exist is a configuration error that names it."""
        outcome = outcome_of(request.getfixturevalue(server).uri("nowhere"), trajectory().spans)
        assert outcome.verdict is Verdict.CONFIGURATION_ERROR
        assert "nowhere" in outcome.reason

    @pytest.mark.slow
    @pytest.mark.parametrize("server", ["postgresql", "mariadb"])
    @pytest.mark.parametrize("has_tables", [False, True])
    def test_user_without_rights(self, server, has_tables, trajectory, request) -> None:
        """A user who may not make the tables, or write into them, is a configuration error: its spans are kept."""
        running = request.getfixturevalue(server)
        name = running.new_database(*(["tables"] if has_tables else []))
        user = f"reader_{name[-8:]}"
        if server == "postgresql":
            running.execute(f"CREATE ROLE {user} LOGIN PASSWORD 'x'")
            running.execute(f"GRANT SELECT ON ALL TABLES IN SCHEMA public TO {user}", name)
        else:
            running.execute(f"CREATE USER {user}@'127.0.0.1' IDENTIFIED BY 'x'")
            running.execute(f"GRANT SELECT ON {name}.* TO {user}@'127.0.0.1'")
        outcome = outcome_of(running.uri(name, user=user, password="x"), trajectory("Default").spans)
        assert outcome.verdict is Verdict.CONFIGURATION_ERROR
        assert "denied" in outcome.reason
        assert "must be a database that this process may write to" in outcome.reason

    @pytest.mark.slow
    def test_encoding(self, postgresql, trajectory) -> None:
        """One without an encoding is a configuration error, and a text that one lacks is refused: both name UTF8."""
        made = trajectory("Default", root_attributes={"input.value": '"語 😀"'})
        for encoding, verdict in (("SQL_ASCII", Verdict.CONFIGURATION_ERROR), ("LATIN1", Verdict.REFUSED)):
            name = f"mlflow_{encoding.lower()}"
            how = f"ENCODING '{encoding}' LC_COLLATE 'C' LC_CTYPE 'C' TEMPLATE template0"
            postgresql.execute(f"CREATE DATABASE {name} {how}")
            outcome = outcome_of(postgresql.uri(name), made.spans)
            assert outcome.verdict is verdict
            assert "needs the encoding UTF8" in outcome.reason

    @pytest.mark.slow
    def test_server_that_stands_by(self, postgresql, project, trajectory) -> None:
        """A server that takes no writes at present costs no span: the batch is stored once it takes them."""
        name = postgresql.new_database("tables")
        uri = postgresql.uri(name)
        assert outcome_of(uri, trajectory(project).spans).verdict is Verdict.DELIVERED
        postgresql.execute(f"ALTER DATABASE {name} SET default_transaction_read_only = on")
        exporter, one = MlflowSpanExporter(tracking_uri=uri), trajectory(project)
        outcome = exporter.send(one.spans)
        assert outcome.verdict is Verdict.RETRY
        assert "read-only transaction" in outcome.reason
        postgresql.execute(f"ALTER DATABASE {name} SET default_transaction_read_only = off")
        assert exporter.send(one.spans).verdict is Verdict.DELIVERED
        exporter.shutdown()

    @pytest.mark.slow
    def test_tables_of_another_version(self, postgresql, trajectory) -> None:
        """Tables that a newer MLflow has made are a configuration error that says which version to install."""
        name = postgresql.new_database("tables")
        postgresql.execute("UPDATE alembic_version SET version_num = '0123456789ab'", name)
        outcome = outcome_of(postgresql.uri(name), trajectory().spans)
        assert outcome.verdict is Verdict.CONFIGURATION_ERROR
        assert "install the version that made them" in outcome.reason


@pytest.mark.slow
class TestValues:
    """Values that a database refuses."""

    def test_longer_than_a_packet(self, project, trajectory, read_back, uncaptured) -> None:
        """A payload over MariaDB's max_allowed_packet is cut, and the other spans of its batch are stored whole."""
        if names := missing_programs("mariadbd"):
            missing(f"not installed: {', '.join(names)}")
        # The setting holds for all of a server's databases.
        with Mariadb(uncaptured=uncaptured, with_tables=True) as server:
            uri = server.uri("tables")
            server.execute("SET GLOBAL max_allowed_packet = 1048576")
            made = trajectory(project)
            long = made.span("search", 6, 7, {"input.value": '"\n' * 400_000})
            exporter = MlflowSpanExporter(tracking_uri=uri)
            reasons: list[str] = []
            report = send_batch(
                exporter.send,
                [long, *made.spans],
                wait=lambda _, outcome: outcome.verdict is Verdict.TOO_LARGE,
                on_trouble=lambda outcome: reasons.append(outcome.reason),
            )
            exporter.shutdown()
            assert (report.delivered, report.shrunk, report.lost) == (4, 1, {})
            assert "max_allowed_packet" in reasons[0]
            (trace,) = read_back(uri, project).traces()
            assert len(trace.data.spans) == 4

    def test_character_set(self, mariadb, trajectory) -> None:
        """A text that the database's character set lacks is refused with the character set that it needs."""
        name = mariadb.new_database("tables")
        # Other tests leave rows there that the character set lacks.
        mariadb.execute("DELETE FROM spans", name)
        mariadb.execute("ALTER TABLE spans MODIFY content LONGTEXT CHARACTER SET latin1 NOT NULL", name)
        made = trajectory("Default", root_attributes={"input.value": '"語 😀"'})
        outcome = outcome_of(mariadb.uri(name), made.spans)
        assert outcome.verdict is Verdict.REFUSED
        assert "the character set utf8mb4" in outcome.reason

    def test_in_columns(self, postgresql_uri, project, trajectory, read_back) -> None:
        """NUL, long words and integers beyond 64 bits cost no span: the columns have what fits."""
        parts = '{"judge": {"value": 1, "explanation": "x\\u0000y"}}'
        root = {"user.id": "u" * 9000, "input.value": '"a\\u0000b"', "rollout.reward_parts": parts}
        made = trajectory(project, root_attributes=root)
        hostile = [
            made.span("turn", 6, 7, {"openinference.span.kind": "LLM", "gen_ai.request.model": "a\x00b"}),
            made.span("turn", 6, 7, {"openinference.span.kind": "L\x00" * 300}),
            made.span("turn", 6, 7, {"gen_ai.usage.input_tokens": 2**70, "gen_ai.usage.output_tokens": 1}),
            made.span("turn", 6, 7, {"gen_ai.usage.input_tokens": 2**62, "gen_ai.usage.output_tokens": 2**62}),
        ]
        assert outcome_of(postgresql_uri, [*hostile, *made.spans]).verdict is Verdict.DELIVERED
        (trace,) = read_back(postgresql_uri, project).traces()
        assert len(trace.data.spans) == 7
        assert [each.rationale for each in trace.info.assessments] == ["x\ufffdy"]


class TestTables:
    """The lock under which tables are made."""

    @pytest.mark.parametrize(("revision", "locks"), [(None, 1), ("0123456789ab", 1), ("the latest", 0)])
    def test_until_the_last_migration(self, tmp_path, monkeypatch, revision, locks) -> None:
        """It is held unless the database has the latest revision: MariaDB shows the tables that are there already."""
        pytest.importorskip("mlflow.store.tracking.sqlalchemy_store")
        monkeypatch.setattr(database, "_latest_revision", lambda: "the latest")
        held: list[object] = []

        def lock(engine: object) -> AbstractContextManager[None]:
            held.append(engine)
            return nullcontext()

        monkeypatch.setattr(database, "schema_lock", lock)
        path = tmp_path / "traces.db"
        with closing(sqlite3.connect(path)) as connection:
            connection.execute("CREATE TABLE spans (trace_id TEXT)")
            if revision is not None:
                connection.execute("CREATE TABLE alembic_version (version_num TEXT)")
                connection.execute("INSERT INTO alembic_version VALUES (?)", (revision,))
            connection.commit()
        engine = database.make_engine(f"sqlite:///{path}")
        assert database.opened(engine, lambda: "made") == "made"
        assert len(held) == locks


@pytest.mark.slow
class TestManyProcesses:
    """A database without tables that several processes open at once."""

    def check(self, uri: str, project: str, read_back, count: int) -> None:
        """Run the workers and look at what they stored."""
        assert run_workers(uri, project, count, "with a run") == [WHOLE] * count
        back = read_back(uri, project)
        traces = back.traces()
        assert len(traces) == count * TRAJECTORIES
        assert {len(trace.data.spans) for trace in traces} == {SPANS_OF_EACH}
        (run,) = back.client.search_runs([back.experiment_id])
        assert len(back.traces(run_id=run.info.run_id, include_spans=False)) == count * TRAJECTORIES

    @pytest.mark.parametrize("count", [2, 8])
    def test_postgresql(self, postgresql, project, read_back, count) -> None:
        """They make PostgreSQL's tables once and lose nothing; the tables are those that one process makes."""
        database = postgresql.new_database()
        self.check(postgresql.uri(database), project, read_back, count)
        columns = (
            "SELECT table_name, column_name, data_type FROM information_schema.columns WHERE table_schema = 'public'"
        )
        constraints = "SELECT conname FROM pg_constraint WHERE connamespace = 'public'::regnamespace"
        for query in (columns, constraints):
            assert sorted(postgresql.execute(query, database)) == sorted(postgresql.execute(query, "tables"))

    def test_mariadb(self, mariadb, project, read_back) -> None:
        """They make MariaDB's tables once, though its changes of tables are no transactions, and lose nothing."""
        database = mariadb.new_database()
        self.check(mariadb.uri(database), project, read_back, 8)
        for table in ("COLUMNS", "CHECK_CONSTRAINTS", "TABLE_CONSTRAINTS"):
            schema = "TABLE_SCHEMA" if table == "COLUMNS" else "CONSTRAINT_SCHEMA"
            names = {
                "COLUMNS": "TABLE_NAME, COLUMN_NAME, COLUMN_DEFAULT, COLUMN_TYPE",
                "CHECK_CONSTRAINTS": "TABLE_NAME, CONSTRAINT_NAME, CHECK_CLAUSE",
                "TABLE_CONSTRAINTS": "TABLE_NAME, CONSTRAINT_NAME, CONSTRAINT_TYPE",
            }[table]
            found, expected = (
                mariadb.execute(
                    f"SELECT {names} FROM information_schema.{table} WHERE {schema} = '{name}' ORDER BY 1, 2"
                )
                for name in (database, "tables")
            )
            assert found == expected

    @pytest.mark.parametrize("server", ["postgresql", "mariadb"])
    def test_process_that_is_killed(self, server, request) -> None:
        """If a process is killed while it makes the tables, the next one gets the lock at once."""
        uri = request.getfixturevalue(server).uri("tables")
        code = (
            "import sys; sys.path[:0] = sys.argv[2].split(':');"
            "from otel_rollout_mlflow.database import make_engine, schema_lock;"
            "lock = schema_lock(make_engine(sys.argv[1])); lock.__enter__();"
            "print('locked', flush=True); sys.stdin.read()"
        )
        command = [sys.executable, "-c", code, uri, ":".join(sys.path)]
        with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as holder:
            assert holder.stdout.readline() == "locked\n"
            taken = threading.Event()

            def take() -> None:
                with database.schema_lock(database.make_engine(uri)):
                    taken.set()

            threading.Thread(target=take, daemon=True).start()
            assert not taken.wait(0.5)
            holder.kill()
            assert taken.wait(60)


def check_restart(server, uri: str, project: str, read_back, caplog) -> None:
    """Kill a database in the middle of a burst, start it again later, and find everything once."""
    otel_rollout.init(project, "exp-1", backend=MlflowSpanExporter(tracking_uri=uri))

    @rollout_trace_op
    def step(text: str) -> str:
        return text

    def trace(first: int, count: int) -> None:
        for number in range(first, first + count):
            with rollout_trace_attr(sample_index=number, step=1, rollout_n=0):
                for _ in range(4):
                    step("x" * 400)
                annotate(reward=1.0)

    trace(0, 5)
    assert flush(120)
    tracing = threading.Thread(target=trace, args=(5, 200))
    tracing.start()
    server.kill()
    tracing.join()
    until(lambda: any(each.last_error for each in stats().exporters.values()))
    server.start()
    assert flush(120)
    otel_rollout.shutdown(60)
    traces = read_back(uri, project).traces()
    assert len(traces) == 205
    assert {len(trace.data.spans) for trace in traces} == {5}
    assert {len(trace.info.assessments) for trace in traces} == {1}
    # One cause, few lines: neither statements nor their parameters are logged.
    assert sum(len(record.getMessage().splitlines()) for record in caplog.records) < 20


@pytest.mark.slow
class TestOutage:
    """A database that is killed in the middle of a burst."""

    def test_postgresql(self, project, read_back, caplog, uncaptured) -> None:
        """Every span and reward is there once after PostgreSQL is back, and the log has a few lines."""
        if names := missing_programs("postgres"):
            missing(f"not installed: {', '.join(names)}")
        with Postgresql(uncaptured=uncaptured) as server:
            check_restart(server, server.uri(server.new_database()), project, read_back, caplog)

    def test_mariadb(self, project, read_back, caplog, uncaptured) -> None:
        """Every span and reward is there once after MariaDB is back."""
        if names := missing_programs("mariadbd"):
            missing(f"not installed: {', '.join(names)}")
        with Mariadb(uncaptured=uncaptured) as server:
            check_restart(server, server.uri(server.new_database()), project, read_back, caplog)
