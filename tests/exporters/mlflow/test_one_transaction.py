"""Rewards that go into MLflow's database together."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from otel_rollout_mlflow.attempt import AttemptError
from otel_rollout_mlflow.one_transaction import create_assessments
from otel_rollout_mlflow.sql_store import SqlStore
from otel_rollout_mlflow.store import Feedback
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
    from sqlalchemy import event

    found: list[Any] = []
    event.listen(store._tracing.store.engine, "commit", found.append)
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
    """What is stored afterwards is committed by itself."""
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
    """Where MLflow rolls a transaction back and goes on, what came before is not lost."""
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


def test_a_store_of_another_kind():
    """A version of MLflow that keeps its sessions elsewhere is given one reward after the other."""
    assert not create_assessments(object(), [])
