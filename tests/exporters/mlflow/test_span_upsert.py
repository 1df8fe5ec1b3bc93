"""Rows of spans, written by a statement that is compiled once."""

from __future__ import annotations

import sqlite3
import sys
from contextlib import closing
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from otel_rollout_mlflow.span_upsert import hasten_upserts
from otel_rollout_mlflow.sql_store import SqlStore
from otel_rollout_mlflow.tracking_uri import parse_tracking_uri

MODULE = "mlflow.store.tracking.sqlalchemy_store"


def rows(database: Path) -> list[tuple[Any, ...]]:
    """Return the rows of spans in a database, without the experiment's number."""
    with closing(sqlite3.connect(database)) as connection:
        connection.row_factory = sqlite3.Row
        found = connection.execute("SELECT * FROM spans ORDER BY span_id").fetchall()
    return [tuple(row[key] for key in row.keys() if key != "experiment_id") for row in found]  # noqa: SIM118 - a Row


class TestHastenUpserts:
    """A function of MLflow's that is replaced."""

    @pytest.mark.integration
    def test_the_same_is_stored(self, tmp_path, trajectory, monkeypatch) -> None:
        """New rows, and rows that are there already, come to the same as by MLflow's own function."""
        one = trajectory("project", reward=1.0)
        stored = []
        for name in ("theirs", "ours"):
            store = SqlStore(parse_tracking_uri(f"sqlite:///{tmp_path / name}.db"))
            experiment = store.ensure_experiment("project")
            module = sys.modules[MODULE]
            monkeypatch.setattr(module, "_upsert_batch", module._upsert_batch)
            if name == "ours":
                assert hasten_upserts()
            store.write(experiment, one.spans[:2])
            store.write(experiment, one.spans)
            store.close()
            stored.append(rows(tmp_path / f"{name}.db"))

        assert len(stored[0]) == 3
        assert stored[0] == stored[1]

    def test_twice(self, monkeypatch) -> None:
        """A second call finds it done."""
        module = _module(lambda session, model_class, table, rows, pk_columns, update_columns, dialect: None)
        monkeypatch.setitem(sys.modules, MODULE, module)

        assert hasten_upserts()
        done = module._upsert_batch
        assert hasten_upserts()
        assert module._upsert_batch is done

    @pytest.mark.parametrize("function", [None, lambda session, rows: None])
    def test_another_function(self, monkeypatch, function) -> None:
        """A version of MLflow that has no such function, or one that takes something else, is left as it is."""
        module = _module(function)
        monkeypatch.setitem(sys.modules, MODULE, module)

        assert not hasten_upserts()
        assert module._upsert_batch is function

    @pytest.mark.parametrize(("dialect", "updates"), [("postgresql", ["name"]), ("sqlite", [])])
    def test_what_is_left_to_mlflow(self, monkeypatch, dialect, updates) -> None:
        """Other databases, and rows that are never updated, go MLflow's way."""
        calls = []
        module = _module(
            lambda session, model_class, table, rows, pk_columns, update_columns, dialect: calls.append(rows)
        )
        monkeypatch.setitem(sys.modules, MODULE, module)
        hasten_upserts()

        module._upsert_batch(None, None, None, [{}], [], updates, dialect)

        assert calls == [[{}]]


def _module(function: Any) -> Any:
    module: Any = ModuleType(MODULE)
    module._upsert_batch = function
    return module
