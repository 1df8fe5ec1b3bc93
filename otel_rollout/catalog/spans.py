"""Fills the tables of spans, messages and conversations for one step on demand, from the recorded spans."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

import orjson

from otel_rollout.catalog.records import storable
from otel_rollout.catalog.span_columns import OF_SPANS, batches_of
from otel_rollout.facts.shapes import Shape
from otel_rollout.facts.table import INFERRED, TrajectorySummary
from otel_rollout.folder.reader import RecordedTrajectory

MAX_BYTES: Final = 2**28
"""The bound on the texts of all steps' rows: beyond it the steps that were filled first are emptied."""
MAX_SHAPES: Final = 65_536
"""The trajectories whose places on timelines are kept: some 60 MB."""
_ROW_BYTES: Final = 200
_OF_STEP: Final = "step IS ? AND validate = ?"
_SUM: Final = """
UPDATE steps SET (two_sides, subagents, forks, compactions) = (
  SELECT sum(t.two_sides), CAST(total(t.subagents) AS INTEGER), CAST(total(t.forks) AS INTEGER),
    CAST(total(t.compactions) AS INTEGER)
  FROM trajectories t
  WHERE t.step IS steps.step AND t.validate = steps.validate AND t.experiment_name IS steps.experiment_name
    AND (t.run_id IS steps.run_id OR 1 = (SELECT count(*) FROM steps s
      WHERE s.step IS steps.step AND s.validate = steps.validate AND s.experiment_name IS steps.experiment_name)))
WHERE EXISTS (SELECT 1 FROM trajectories t WHERE t.trace_id IN (SELECT value FROM json_each(?))
  AND t.step IS steps.step AND t.validate = steps.validate)
"""
"""Sums what was inferred of some trajectories in the rows of their steps."""


def filled_steps(connection: sqlite3.Connection) -> set[tuple[int | None, bool]]:
    """Return the steps that have rows in these tables, and whether they are validation passes."""
    found = connection.execute("SELECT step, validate FROM filled_steps")
    return {(step, bool(validate)) for step, validate in found}


def fill_step(
    connection: sqlite3.Connection,
    key: tuple[int | None, bool],
    trajectories: Iterable[RecordedTrajectory],
    max_bytes: int = MAX_BYTES,
) -> list[str]:
    """Fill the tables for a step, and return the trace ids of those that can't be read. The caller commits.

    Args:
        connection: The catalog.
        key: The step, and whether it is a validation pass.
        trajectories: All of its trajectories.
        max_bytes: The bound on all steps' texts; this step's rows are kept whatever their size.
    """
    empty_step(connection, *key)
    unreadable: list[str] = []
    size = sum(
        _insert(connection, table, values)
        for batch in batches_of(trajectories, OF_SPANS, unreadable.append)
        for table, values in batch.items()
    )
    connection.execute("INSERT INTO filled_steps (step, validate, bytes) VALUES (?, ?, ?)", (*key, size))
    _keep_within(connection, max_bytes)
    return unreadable


def keep_shapes(connection: sqlite3.Connection, read: Iterable[tuple[str, int, int, Sequence[Shape]]]) -> None:
    """Keep the shapes of trajectories until these change. The caller commits.

    Args:
        connection: The catalog.
        read: Trace ids, spans and ends of trajectories, and the shapes that were read since.
    """
    connection.executemany(
        "INSERT OR REPLACE INTO shapes (trace_id, shapes)"
        " SELECT trace_id, ?4 FROM trajectories WHERE trace_id = ?1 AND spans = ?2 AND end_time = ?3",
        ((*known, orjson.dumps(shapes, default=tuple).decode()) for *known, shapes in read),
    )
    connection.execute("DELETE FROM shapes WHERE number <= (SELECT max(number) FROM shapes) - ?", (MAX_SHAPES,))


def keep_inferred(
    connection: sqlite3.Connection, read: Mapping[str, tuple[int, TrajectorySummary | None]]
) -> list[str]:
    """Keep the facts that were inferred, sum them in their steps, and return those that have changed meanwhile.

    The caller commits.

    Args:
        connection: The catalog.
        read: By trace id, the spans that were listed, and the summary; None of a trajectory that can't be read.
    """
    facts = ", ".join(f"{name} = ?" for name in INFERRED)
    changed = []
    for trace_id, (spans, summary) in read.items():
        is_same = "SELECT 1 FROM trajectories WHERE trace_id = ? AND spans = ?"
        if connection.execute(is_same, (trace_id, spans)).fetchone() is None:
            changed.append(trace_id)
            continue
        if summary is not None:
            values = [getattr(summary, name) for name in INFERRED]
            connection.execute(f"UPDATE trajectories SET {facts} WHERE trace_id = ?", (*values, trace_id))
        connection.execute("UPDATE inferred SET is_known = 1 WHERE trace_id = ?", (trace_id,))
    connection.execute(_SUM, (orjson.dumps([*read]).decode(),))
    return changed


def empty_step(connection: sqlite3.Connection, step: int | None, validate: bool) -> None:
    """Remove the rows of a step: it has changed. The caller commits."""
    for table in (*OF_SPANS, "filled_steps"):
        connection.execute(f"DELETE FROM {table} WHERE {_OF_STEP}", (step, validate))


def _keep_within(connection: sqlite3.Connection, max_bytes: int) -> None:
    filled = connection.execute("SELECT step, validate, bytes FROM filled_steps ORDER BY number").fetchall()
    size = sum(each[2] for each in filled)
    for step, validate, of_step in filled[:-1]:
        if size <= max_bytes:
            return
        empty_step(connection, step, validate)
        size -= of_step


def _insert(connection: sqlite3.Connection, table: str, columns: Sequence[Sequence[Any]]) -> int:
    stored = [[storable(value) for value in row] for row in zip(*columns, strict=True)]
    marks = ", ".join("?" * len(columns))
    connection.executemany(f"INSERT INTO {table} VALUES ({marks})", stored)
    return sum(_ROW_BYTES + sum(len(value) for value in row if isinstance(value, str)) for row in stored)
