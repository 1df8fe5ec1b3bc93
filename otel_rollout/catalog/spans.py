"""Keeps rows of spans, messages and conversations, a step at a time once it is asked for; also what was inferred."""

from __future__ import annotations

import sqlite3
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from itertools import groupby
from operator import itemgetter
from typing import Any, Final, TypeAlias

import orjson

from otel_rollout.catalog.query import QueryError
from otel_rollout.catalog.records import storable
from otel_rollout.catalog.span_columns import OF_SPANS, batches_of
from otel_rollout.facts.shapes import Shape
from otel_rollout.facts.table import INFERRED, TrajectorySummary
from otel_rollout.folder.frames import frame_of, request_of
from otel_rollout.folder.reader import RecordedTrajectory

StepKey: TypeAlias = tuple[int | None, bool]
"""A step, and whether it is a validation pass."""

MAX_BYTES: Final = 2**28
"""The bound on the kept rows of all steps, compressed: beyond it the steps that were filled first are emptied."""
MAX_SHAPES: Final = 65_536
"""The trajectories whose places on timelines are kept: some 60 MB."""
_OF_STEP: Final = "step IS ? AND validate = ?"
_SUM: Final = """
UPDATE steps SET (two_sides, subagents, forks, compactions) = (
  SELECT sum(t.two_sides), CAST(total(t.subagents) AS INTEGER), CAST(total(t.forks) AS INTEGER),
    CAST(total(t.compactions) AS INTEGER)
  FROM trajectories t
  WHERE NOT t.overtaken AND t.step IS steps.step AND t.validate = steps.validate
    AND t.experiment_name IS steps.experiment_name
    AND (t.run_id IS steps.run_id OR 1 = (SELECT count(*) FROM steps s
      WHERE s.step IS steps.step AND s.validate = steps.validate AND s.experiment_name IS steps.experiment_name)))
WHERE EXISTS (SELECT 1 FROM trajectories t WHERE t.trace_id IN (SELECT value FROM json_each(?))
  AND t.step IS steps.step AND t.validate = steps.validate)
"""
"""Sums what was inferred of some trajectories in the rows of their steps."""


def filled_steps(connection: sqlite3.Connection) -> dict[StepKey, list[str]]:
    """Return the steps whose rows are kept, each with the trace ids of those that can't be read."""
    found = connection.execute("SELECT step, validate, unreadable FROM filled_steps")
    return {(step, bool(validate)): orjson.loads(unreadable) for step, validate, unreadable in found}


def fill_step(
    connection: sqlite3.Connection,
    key: StepKey,
    trajectories: Iterable[RecordedTrajectory],
    spared: Collection[StepKey] = (),
    max_bytes: int = MAX_BYTES,
) -> None:
    """Keep the rows of a step, compressed. The caller commits.

    Args:
        connection: The catalog.
        key: The step, and whether it is a validation pass.
        trajectories: All of its trajectories.
        spared: The steps that are not emptied for it.
        max_bytes: The bound on what is kept of all steps; this step is kept whatever its size.
    """
    empty_step(connection, *key)
    unreadable: list[str] = []
    size = 0
    for number, batch in enumerate(batches_of(trajectories, OF_SPANS, unreadable.append)):
        for table, columns in batch.items():
            for column, values in zip(OF_SPANS[table], columns, strict=True):
                data = _packed(values)
                of_column = (*key, f"{table}.{column.name}", number, data)
                connection.execute("INSERT INTO kept_columns VALUES (?, ?, ?, ?, ?)", of_column)
                size += len(data)
    filled = (*key, size, orjson.dumps(unreadable).decode())
    connection.execute("INSERT INTO filled_steps (step, validate, bytes, unreadable) VALUES (?, ?, ?, ?)", filled)
    _keep_within(connection, max_bytes, {key, *spared})


def kept_rows(
    connection: sqlite3.Connection, key: StepKey, table: str, columns: Sequence[str]
) -> Iterator[list[list[Any]]]:
    """Yield the values of columns of a step's kept rows, some rows at a time.

    Raises:
        ValueError: The catalog is damaged.
    """
    names = [f"{table}.{column}" for column in columns]
    rows = connection.execute(
        f"SELECT batch, name, data FROM kept_columns WHERE {_OF_STEP}"
        " AND name IN (SELECT value FROM json_each(?)) ORDER BY batch",
        (*key, orjson.dumps(names).decode()),
    )
    for _, batch in groupby(rows, key=itemgetter(0)):
        packed = {name: data for _, name, data in batch}
        yield [_unpacked(packed[name]) for name in names]


def show_rows(connection: sqlite3.Connection, keys: Sequence[StepKey], columns: Mapping[str, Collection[str]]) -> None:
    """Let the tables of spans have what a question reads of some steps.

    Args:
        connection: The catalog.
        keys: The steps, which are filled.
        columns: The columns by table; the others are null.

    Raises:
        ValueError: The catalog is damaged.
        QueryError: The disk of temporary files is full.
    """
    connection.execute("BEGIN")
    try:
        for table, read in columns.items():
            connection.execute(f"DELETE FROM asked.{table}")
            names = list({"trace_id": None, **dict.fromkeys(read)})
            listed = ", ".join(map('"{}"'.format, names))
            insert = f"INSERT INTO asked.{table} ({listed}) VALUES ({', '.join('?' * len(names))})"
            for key in keys:
                for values in kept_rows(connection, key, table, names):
                    connection.executemany(insert, zip(*values, strict=True))
    except sqlite3.OperationalError as error:
        if "full" not in str(error):
            raise
        connection.rollback()
        raise QueryError(
            "its rows are too large for the disk of temporary files: name fewer columns or steps, or another folder by "
            "SQLITE_TMPDIR"
        ) from error
    connection.execute("COMMIT")


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
    for table in ("kept_columns", "filled_steps"):
        connection.execute(f"DELETE FROM {table} WHERE {_OF_STEP}", (step, validate))


def _keep_within(connection: sqlite3.Connection, max_bytes: int, spared: Collection[StepKey]) -> None:
    filled = connection.execute("SELECT step, validate, bytes FROM filled_steps ORDER BY number").fetchall()
    size = sum(each[2] for each in filled)
    for step, validate, of_step in filled:
        if size > max_bytes and (step, bool(validate)) not in spared:
            empty_step(connection, step, validate)
            size -= of_step


def _packed(values: Sequence[Any]) -> bytes:
    try:
        text = orjson.dumps(values)
    except TypeError:
        # Texts of other programs have lone surrogates.
        text = orjson.dumps(list(map(storable, values)))
    return frame_of(text)


def _unpacked(data: bytes) -> list[Any]:
    try:
        values: list[Any] = orjson.loads(request_of(data))
    except ValueError as error:
        raise ValueError(f"kept rows are damaged: {error}") from error
    return values
