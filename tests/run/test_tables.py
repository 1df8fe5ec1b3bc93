"""Tests of the catalog's tables, which hold each trajectory's facts."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from dataclasses import replace

import pytest

from otel_rollout.catalog import attach, create, insert, load
from otel_rollout.facts import FACTS, SpanError, ToolCounts, TrajectorySummary

FULL = TrajectorySummary(
    "0" * 31 + "1",
    step=7,
    sample_index="a",
    rollout_n=2,
    validate=True,
    experiment_name="e",
    start_time=1_700_000_000_000_000_001,
    end_time=1_700_000_002_000_000_001,
    has_root=True,
    reward=1 / 3,
    reward_parts={"format": 0.1, "length": -1.0},
    late={"reward": 5, ".format": 6},
    tools={"search": ToolCounts(3, 1)},
    odd_results={"search": 2},
    errors=(SpanError("search", "TOOL", "ValueError", True),),
    turn_hashes=("0123abcd", ""),
    bytes=2**63 - 1,
)


@pytest.fixture
def catalog() -> Iterator[sqlite3.Connection]:
    """An empty catalog in memory."""
    connection = sqlite3.connect(":memory:")
    create(connection)
    attach(connection)
    yield connection
    connection.close()


class TestTables:
    """Facts go into tables and come back."""

    def test_each_fact_has_a_column(self, catalog: sqlite3.Connection) -> None:
        """The columns of `trajectories` are the facts, the seconds, and what tells of attempts."""
        insert(catalog, [FULL])
        found = catalog.execute("SELECT * FROM trajectories")
        row = dict(zip([each[0] for each in found.description], found.fetchone(), strict=True))
        assert row.keys() == {each.name for each in FACTS} | {"seconds", "process_run_id", "attempt", "overtaken"}
        assert (row["seconds"], row["validate"], row["turn_hashes"]) == (2.0, 1, '["0123abcd",""]')

    def test_values_that_no_database_has(self, catalog: sqlite3.Connection) -> None:
        """An integer beyond 64 bits becomes a text, and a surrogate of a file's name a question mark."""
        insert(catalog, [replace(FULL, sample_index=2**64, worker="host\udcff"), replace(FULL, trace_id="2")])
        first, second = load(catalog)
        assert (first.sample_index, first.worker, second.sample_index) == (str(2**64), "host?", "a")
