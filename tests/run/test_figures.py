"""Every figure of steps and groups is that of plain Python, on runs made up from seeds."""

from __future__ import annotations

import random
import sqlite3
from contextlib import closing
from dataclasses import fields, replace
from typing import Any

import pytest

from otel_rollout.catalog import attach, create, delete, groups, insert, load, refresh, steps
from otel_rollout.facts import TrajectorySummary
from tests.run.random_runs import made_run, naive_groups, naive_steps

SEEDS = range(50)


def fields_of(summary: Any) -> dict[str, Any]:
    """Return a summary's figures."""
    return {each.name: getattr(summary, each.name) for each in fields(summary)}


def about(expected: Any) -> Any:
    """Return a figure up to rounding."""
    if isinstance(expected, float):
        return pytest.approx(expected, rel=1e-9, abs=1e-12)
    if isinstance(expected, dict):
        return {name: about(figure) for name, figure in expected.items()}
    return tuple(map(about, expected)) if isinstance(expected, tuple) else expected


def fill(connection: sqlite3.Connection, seed: int) -> list[TrajectorySummary]:
    """Fill a catalog in parts, with facts that come late and trajectories that go, and return what it must hold."""
    rng = random.Random(seed)
    made = made_run(seed)
    rng.shuffle(made)
    create(connection)
    attach(connection)
    half = len(made) // 2
    insert(connection, made[:half])
    refresh(connection)
    insert(connection, made[half:])
    kept = made
    if len(made) > 1:
        gone = {each.trace_id for each in rng.sample(made, len(made) // 8)}
        late = {each.trace_id for each in rng.sample(made, len(made) // 4)}
        refresh(connection)
        kept = [replace(each, reward=2.0, fate="late") if each.trace_id in late else each for each in made]
        insert(connection, [each for each in kept if each.trace_id in late])
        delete(connection, gone)
        kept = [each for each in kept if each.trace_id not in gone]
    refresh(connection)
    return kept


class TestAgainstPlainPython:
    """Figures from SQL."""

    @pytest.mark.parametrize("seed", SEEDS)
    def test_every_figure(self, seed: int) -> None:
        """Steps and groups are in order, and have the figures of all trajectories as they are last."""
        with closing(sqlite3.connect(":memory:", isolation_level=None)) as connection:
            kept = fill(connection, seed)
            assert {each.trace_id: each for each in load(connection)} == {each.trace_id: each for each in kept}
            for found, expected in (
                (steps(connection), naive_steps(kept)),
                (groups(connection), naive_groups(kept)),
            ):
                assert len(found) == len(expected)
                for one, other in zip(map(fields_of, found), expected, strict=True):
                    assert one == about(other)

    def test_nothing_changed_costs_nothing(self) -> None:
        """A second refresh computes no step again; a change computes its own step alone."""
        with closing(sqlite3.connect(":memory:", isolation_level=None)) as connection:
            kept = fill(connection, 7)
            before = connection.total_changes
            refresh(connection)
            assert connection.total_changes == before
            insert(connection, kept[:1])
            assert connection.execute("SELECT * FROM changed_steps").fetchall() == [(kept[0].step, kept[0].validate)]
