"""Keeps rows of spans, messages and conversations, a step at a time once it is asked for; also shapes of timelines."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import compress, count
from typing import Any, Final

import orjson

from otel_rollout.catalog.catalog import IN_STEP, Answered, Catalog, StepKey, selection_of
from otel_rollout.catalog.filling import Found
from otel_rollout.catalog.query import MAX_SPAN_BYTES, QueryError
from otel_rollout.catalog.span_columns import OF_SPANS, batches_of
from otel_rollout.facts.shapes import Shape
from otel_rollout.folder.frames import frame_of, request_of
from otel_rollout.folder.reader import RecordedTrajectory
from otel_rollout.text.plain_json import value_to_json
from otel_rollout.text.plain_text import counted

MAX_BYTES: Final = 2**28
"""The bound on the kept rows of all steps, compressed: beyond it the steps that were filled first are emptied."""
_EMPTY: Final = "DELETE FROM filled_steps WHERE step IS ? AND validate = ?"
MAX_SHAPES: Final = 65_536
"""The trajectories whose places on timelines are kept: some 60 MB."""


def check_size(catalog: Catalog, keys: Sequence[StepKey]) -> None:
    """Refuse a question that reads the spans of too many trajectories.

    Args:
        catalog: The catalog.
        keys: The steps that it reads.

    Raises:
        QueryError: It does.
    """
    select = "SELECT step, validate, sum(bytes) FROM trajectories GROUP BY step, validate"
    sizes = catalog.ask(lambda connection, _: connection.execute(select).fetchall())
    read = [size for step, validate, size in sizes if (step, bool(validate)) in keys]
    if sum(read) > MAX_SPAN_BYTES:
        way = "name fewer steps" if len(read) > 1 else "otel-rollout export writes it as Parquet, for DuckDB and others"
        raise QueryError(
            f"it reads the spans of {counted(len(read), 'step')}, {sum(read) / 2**30:.1f} GiB; the limit is "
            f"{MAX_SPAN_BYTES / 2**30:g} GiB: {way}"
        )


def ask_filled(
    catalog: Catalog, keys: Sequence[StepKey], question: Callable[[sqlite3.Connection], Answered]
) -> tuple[Answered, Sequence[str]]:
    """Ask once the rows of steps are kept; return the trajectories that can't be read, too.

    Args:
        catalog: The catalog.
        keys: The steps.
        question: Called with the catalog's connection.
    """
    missing: list[StepKey] = []

    def answer(connection: sqlite3.Connection, _: Found) -> tuple[Answered, Sequence[str]] | None:
        filled = filled_steps(connection) if keys else {}
        missing[:] = [key for key in keys if key not in filled]
        return None if missing else (question(connection), [trace_id for key in keys for trace_id in filled[key]])

    # Another process may empty a step meanwhile.
    while (found := catalog.ask(answer)) is None:
        for done, key in enumerate(missing, 1):
            recorded = catalog.recorded(IN_STEP, key, selection_of(key[0]))
            catalog.keep(partial(fill_step, key=key, trajectories=recorded, spared=keys))
            catalog.on_progress(done, len(missing), "step")
    return found


def filled_steps(connection: sqlite3.Connection) -> dict[StepKey, list[str]]:
    """Return the steps whose rows are kept, each with the trace ids of those that can't be read."""
    found = connection.execute("SELECT step, validate, unreadable FROM filled_steps ORDER BY number")
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
    connection.execute(_EMPTY, key)
    unreadable: list[str] = []
    for number, batch in enumerate(batches_of(trajectories, OF_SPANS, unreadable.append)):
        for table, columns in batch.items():
            for column, values in zip(OF_SPANS[table], columns, strict=True):
                of_column = (*key, f"{table}.{column.name}", number, frame_of(value_to_json(values)))
                connection.execute("INSERT INTO kept_columns VALUES (?, ?, ?, ?, ?)", of_column)
    filled = (*key, orjson.dumps(unreadable).decode())
    connection.execute("INSERT INTO filled_steps (step, validate, unreadable) VALUES (?, ?, ?)", filled)
    size = "SELECT total(length(data)) FROM kept_columns"
    for other in filled_steps(connection):
        if other not in {key, *spared} and connection.execute(size).fetchone()[0] > max_bytes:
            connection.execute(_EMPTY, other)


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
                for values in _kept_rows(connection, key, table, names):
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


def take_counted(
    connection: sqlite3.Connection,
    key: StepKey,
    table: str,
    columns: Sequence[str],
    take: Callable[[list[list[Any]]], Answered],
) -> list[Answered]:
    """Make something of the rows of trajectories that count."""
    select = f"SELECT trace_id FROM trajectories t WHERE {IN_STEP} AND t.overtaken"
    overtaken = {trace_id for (trace_id,) in connection.execute(select, key)}
    taken = []
    for ids, *values in _kept_rows(connection, key, table, ["trace_id", *columns]):
        counts = [trace_id not in overtaken for trace_id in ids]
        taken.append(take([list(compress(column, counts)) for column in values]))
    return taken


def _kept_rows(
    connection: sqlite3.Connection, key: StepKey, table: str, columns: Sequence[str]
) -> Iterator[list[list[Any]]]:
    """Yield the values of columns of a step's kept rows, some rows at a time.

    Raises:
        ValueError: The catalog is damaged.
    """
    select = "SELECT data FROM kept_columns WHERE step IS ? AND validate = ? AND name = ? AND batch = ?"
    for batch in count():
        found = [connection.execute(select, (*key, f"{table}.{name}", batch)).fetchone() for name in columns]
        if None in found:
            return
        yield [orjson.loads(request_of(data)) for (data,) in found]
