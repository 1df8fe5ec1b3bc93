"""Rows of the catalog's tables as Arrow, with one schema for each table whatever its rows hold."""

from __future__ import annotations

import sqlite3
from collections import Counter
from collections.abc import Container, Iterable, Mapping, Sequence
from typing import Any, Final

import orjson
import pyarrow as pa
import pyarrow.compute as pc

from otel_rollout.catalog import QueryError, Run
from otel_rollout.catalog.columns import Column
from otel_rollout.catalog.tables import COLUMNS
from otel_rollout.finish.known_forms import REDACTED
from otel_rollout.text.near_miss import did_you_mean

REDACTED_KEY: Final = b"otel_rollout.redacted"
"""The key of a schema's metadata with the values that redaction had replaced, by column, as JSON."""
UNREADABLE_KEY: Final = b"otel_rollout.unreadable"
"""The key with the number of trajectories whose spans can't be read."""
SECONDS: Final = 600.0
"""The most that reading with a condition may take: it may be one that never ends."""
_PANDAS_KEY: Final = b"pandas"
_ROWS_AT_ONCE: Final = 2048
"""The garbage collector takes a fifth of the time at four times as many."""

_TIME: Final = pa.timestamp("us", tz="UTC")
"""Spark reads no nanoseconds."""
_TYPES: Final = {int: pa.int64(), float: pa.float64(), bool: pa.bool_()}
_OF_PANDAS: Final = {pa.int64(): "Int64", pa.bool_(): "boolean"}
"""The types of pandas that have null; without them it makes floats of integers, and objects of booleans."""


def columns_named(table: str, names: Sequence[str] | None) -> Sequence[Column]:
    """Return columns of a table by their names; all of them if None.

    Raises:
        QueryError: The table doesn't have one, or none is named.
    """
    if isinstance(names, str) or (names is not None and not len(names)):
        raise QueryError(f"columns is a list with one name or more, or None for all columns, not {names!r}")
    columns = {each.name: each for each in COLUMNS[table]}
    for name in names or ():
        if name not in columns:
            means = did_you_mean(name, columns) or f"; there are {', '.join(columns)}"
            raise QueryError(f"there is no column {name} in {table}{means}")
    return list(columns.values()) if names is None else [columns[name] for name in names]


def schema_of(columns: Iterable[Column], texts: Container[str] = ()) -> pa.Schema:
    """Return the schema of columns; each has its unit and its meaning as metadata.

    Args:
        columns: The columns.
        texts: The names of mixed columns with a text among their values.
    """
    fields = []
    of_pandas = []
    for each in columns:
        kind = _type_of(each, has_text=each.name in texts)
        fields.append(pa.field(each.name, kind, metadata={"meaning": each.meaning, "unit": each.unit}))
        if each.is_nullable and kind in _OF_PANDAS:
            types = {"pandas_type": str(kind), "numpy_type": _OF_PANDAS[kind], "metadata": None}
            of_pandas.append({"name": each.name, "field_name": each.name, **types})
    metadata = {"index_columns": [], "column_indexes": [], "columns": of_pandas, "pandas_version": "2"}
    return pa.schema(fields, {_PANDAS_KEY: orjson.dumps(metadata)})


def is_mixed(column: Column) -> bool:
    """Return True if a column mixes integers and texts."""
    return {*column.kinds} == {int, str}


def _type_of(column: Column, *, has_text: bool) -> pa.DataType:
    if is_mixed(column):
        return pa.string() if has_text else pa.int64()
    if column.unit == "ns" and column.kinds == [int]:
        return _TIME
    # JSON is text.
    return _TYPES.get(column.kinds[0], pa.string()) if len(column.kinds) == 1 else pa.string()


def batch_of(columns: Sequence[Column], values: Sequence[Sequence[Any]]) -> pa.RecordBatch:
    """Return a batch of columns and their values, as SQLite or spans have them."""
    texts = {
        each.name
        for each, of_column in zip(columns, values, strict=True)
        if is_mixed(each) and any(type(value) is str for value in of_column)
    }
    schema = schema_of(columns, texts)
    arrays = [_array(*each) for each in zip(schema.types, values, strict=True)]
    return pa.record_batch(arrays, schema=schema)


def _array(kind: pa.DataType, values: Sequence[Any]) -> pa.Array:
    if kind == _TIME:
        return pc.divide(pa.array(values, pa.int64()), 1000).cast(kind)
    try:
        return pa.array(values, kind)
    except pa.ArrowException:
        # SQLite has integers for booleans, and a mixed column has both integers and texts.
        make = bool if kind == pa.bool_() else str
        return pa.array([value if value is None else make(value) for value in values], kind)


def take_batches(
    run: Run, table: str, columns: Sequence[Column], condition: str, steps: Any = None
) -> tuple[list[pa.RecordBatch], Sequence[str]]:
    """Return rows of a table in batches, and the trajectories that can't be read.

    Args:
        run: The trace folders.
        table: The table.
        columns: The columns.
        condition: The condition from ` WHERE ` on; empty for all rows.
        steps: Only these steps; None for all.
    """

    def take(cursor: sqlite3.Cursor) -> list[pa.RecordBatch]:
        batches = []
        while rows := cursor.fetchmany(_ROWS_AT_ONCE):
            batches.append(batch_of(columns, list(zip(*rows, strict=True))))
        return batches

    listed = ", ".join(f'"{each.name}"' for each in columns)
    batches, unreadable, _ = run.take(f"SELECT {listed} FROM {table}{condition}", take, steps, seconds=SECONDS)
    return batches, unreadable


def redacted_in(batch: pa.RecordBatch | pa.Table) -> Counter[str]:
    """Count the values that redaction had replaced, by column: it has left `[redacted]` in their place."""
    texts = [name for name, kind in zip(batch.schema.names, batch.schema.types, strict=True) if kind == pa.string()]
    return +Counter({name: pc.sum(pc.count_substring(batch[name], REDACTED)).as_py() or 0 for name in texts})


def table_of(columns: Sequence[Column], batches: Iterable[pa.RecordBatch], more: Mapping[bytes, bytes]) -> pa.Table:
    """Return batches as a table with the counts of redacted values in its metadata.

    Args:
        columns: Their columns.
        batches: The batches.
        more: Further metadata.
    """
    batches = list(batches)
    mixed = [each.name for each in columns if is_mixed(each)]
    schema = schema_of(columns, {name for name in mixed for batch in batches if batch[name].type == pa.string()})
    table = pa.Table.from_batches([batch.cast(schema) for batch in batches], schema)
    return table.replace_schema_metadata({**schema.metadata, REDACTED_KEY: orjson.dumps(redacted_in(table)), **more})


def table_of_answer(names: Sequence[str], rows: Sequence[Sequence[Any]]) -> pa.Table:
    """Return an answer to any question as a table with the types of its values.

    Args:
        names: The names of its columns.
        rows: Its rows.
    """
    columns = zip(*rows, strict=True) if rows else [()] * len(names)
    return pa.Table.from_arrays(list(map(_inferred, columns)), list(names))


def _inferred(values: Sequence[Any]) -> pa.Array:
    try:
        array = pa.array(values)
    except pa.ArrowException:
        array = pa.array([value if value is None else str(value) for value in values], pa.string())
    # A column of nothing but nulls has no type that others read.
    return array.cast(pa.string()) if pa.types.is_null(array.type) else array
