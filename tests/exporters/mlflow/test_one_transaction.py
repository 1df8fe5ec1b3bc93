"""Rewards that go into MLflow's database together."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy

from otel_rollout.export.outcome import Verdict
from otel_rollout_mlflow.one_transaction import create_assessments
from otel_rollout_mlflow.sql_store import SqlStore
from otel_rollout_mlflow.store import AttemptError, Feedback
from otel_rollout_mlflow.tracking_uri import parse_tracking_uri

pytestmark = pytest.mark.integration

TIME_NS = 1_760_000_000_123_456_789


@pytest.fixture
def database(tmp_path) -> Path:
    return tmp_path / "mlflow.db"


@pytest.fixture
def store(database) -> Iterator[SqlStore]:
    store = SqlStore(parse_tracking_uri(f"sqlite:///{database}"))
    yield store
    store.close()


@pytest.fixture
def rewards(store, trajectory) -> list[Feedback]:
    """The rewards of three trajectories that are stored."""
    trajectories = [trajectory("project", rollout_n=number) for number in range(3)]
    store.write(store.ensure_experiment("project"), [span for each in trajectories for span in each.spans])
    return [Feedback(each.mlflow_id, number / 2, TIME_NS) for number, each in enumerate(trajectories)]


@pytest.fixture
def commits(store, rewards) -> list[Any]:
    """Grows by one with each transaction that changes the database."""
    found: list[Any] = []
    sqlalchemy.event.listen(store._tracing.store.engine, "commit", found.append)
    return found


def stored(database: Path) -> list[tuple[Any, ...]]:
    with closing(sqlite3.connect(database)) as connection:
        columns = "trace_id, assessment_id, name, value, source_id, created_timestamp, valid"
        return connection.execute(f"SELECT {columns} FROM assessments ORDER BY value").fetchall()


def as_stored(rewards: list[Feedback]) -> list[tuple[Any, ...]]:
    return [
        (each.trace_id, each.assessment_id, "reward", str(each.value), "otel-rollout", TIME_NS // 1_000_000, 1)
        for each in rewards
    ]


def test_several_are_one_transaction(store, database, rewards, commits):
    """Each is there as it is alone, and the database was changed once."""
    store.record(rewards)
    assert stored(database) == as_stored(rewards)
    assert len(commits) == 1


def test_the_store_keeps_its_own_transactions(store, database, rewards, commits):
    """Later writes of the store are committed by themselves."""
    store.record(rewards[:2])
    store.record(rewards[2:])
    assert stored(database) == as_stored(rewards)
    assert len(commits) == 2


def test_one_that_is_there_already(store, database, rewards):
    """All others are stored all the same, and it is not stored twice."""
    store.record(rewards[1:2])
    store.record(rewards)
    store.record(rewards)
    assert stored(database) == as_stored(rewards)


def test_one_whose_trace_is_gone(store, database, rewards):
    """The error says so, for the exporter to write the trace again; the others come again and are stored once."""
    gone = Feedback("tr-" + "0" * 31 + "1", 1.0, TIME_NS)
    with pytest.raises(AttemptError) as raised:
        store.record([*rewards, gone])
    assert raised.value.is_missing
    store.record(rewards)
    assert stored(database) == as_stored(rewards)


def test_a_store_that_begins_anew_on_its_way(store, database, rewards, monkeypatch):
    """If MLflow rolls a transaction back and goes on, earlier assessments are not lost."""
    genuine = type(store._tracing.store).create_assessment
    calls: list[Any] = []

    def create_assessment(self: Any, assessment: Any) -> Any:
        calls.append(assessment)
        if len(calls) == 2:
            with self.ManagedSessionMaker(read_only=False) as session:
                session.rollback()
        return genuine(self, assessment)

    monkeypatch.setattr(type(store._tracing.store), "create_assessment", create_assessment)
    store.record(rewards)
    assert stored(database) == as_stored(rewards)
    assert len(calls) == 2 * len(rewards)


def test_a_locked_database(store, database, rewards, monkeypatch):
    """It is waited for once, and said to be worth another attempt."""
    genuine = type(store._tracing.store).create_assessment
    calls: list[Any] = []
    monkeypatch.setattr(
        type(store._tracing.store),
        "create_assessment",
        lambda self, assessment: calls.append(assessment) or _without_waiting(self, genuine, assessment),
    )
    with closing(sqlite3.connect(database)) as other:
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(AttemptError) as raised:
            store.record(rewards)
    assert raised.value.outcome.verdict is Verdict.RETRY
    assert len(calls) == 1
    store.record(rewards)
    assert stored(database) == as_stored(rewards)


def _without_waiting(store: Any, create_assessment: Any, assessment: Any) -> Any:
    with store.ManagedSessionMaker(read_only=False) as session:
        session.execute(sqlalchemy.text("PRAGMA busy_timeout = 1"))
    return create_assessment(store, assessment)


def test_another_database(store, database, rewards, commits, monkeypatch):
    """If rows are locked, each reward has a transaction of its own."""
    monkeypatch.setattr(store._tracing.store.engine.dialect, "name", "postgresql")
    store.record(rewards)
    assert stored(database) == as_stored(rewards)
    assert len(commits) == len(rewards)


def test_a_store_of_another_kind(store, database, rewards, monkeypatch):
    """With a version of MLflow that keeps its sessions elsewhere, one reward is stored after the other."""
    monkeypatch.setattr("otel_rollout_mlflow.sql_store.create_assessments", lambda _, each: create_assessments(0, each))
    store.record(rewards)
    assert stored(database) == as_stored(rewards)
