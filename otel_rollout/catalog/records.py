"""Rows of the catalog's tables, and the objects that they are made of and read as."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import fields
from functools import lru_cache
from operator import attrgetter, itemgetter
from typing import Any, Final, get_type_hints

import orjson

from otel_rollout.catalog.columns import amount_of
from otel_rollout.catalog.group_summary import GroupSummary
from otel_rollout.catalog.step_summary import StepSummary
from otel_rollout.catalog.tables import COLUMNS, MARK
from otel_rollout.facts.json_types import readers_of
from otel_rollout.facts.table import TrajectorySummary
from otel_rollout.text.sanitize import INT64_MAX, INT64_MIN, replace_surrogates


class Rows:
    """Converts the rows of a table.

    Args:
        table: Its name.
        kind: The class of what a row is of.
    """

    def __init__(self, table: str, kind: Any) -> None:
        columns = COLUMNS[table]
        self.columns = [each.name for each in columns]
        self._kind = kind
        self._names = [each.name for each in fields(kind)]
        hints, readers = get_type_hints(kind, include_extras=True), readers_of(kind)
        amounts = ((at, amount_of(hints[name])) for at, name in enumerate(self._names))
        self._amounts = [(at, amount) for at, amount in amounts if amount is not None]
        """The fields that have a column for each statistic."""
        as_json = [each.name for each in columns if each.is_json]
        self._json = [self._names.index(name) for name in as_json]
        self._readers: Mapping[str, Callable[[Any], Any]] = {
            **{each.name: bool for each in columns if each.type is bool},
            **{name: _from_json(readers[name]) for name in as_json},
        }
        # Columns of trajectories that are no fields; the columns of attempts are set when these are found.
        more = {"seconds": "seconds", "process_run_id": "run_id"} if table == "trajectories" else {}
        self._values_of: Callable[[Any], tuple[Any, ...]] = attrgetter(*self._names, *more.values())
        inserted = [*self._names, *more] if more else self.columns
        names = ", ".join(map('"{}"'.format, inserted))
        self.insert = f"INSERT INTO {table} ({names}) VALUES ({', '.join('?' * len(inserted))})"

    def row_of(self, one: Any) -> list[Any]:
        """Return the row of an object."""
        row = list(self._values_of(one))
        for at in self._json:
            row[at] = orjson.dumps(row[at], default=tuple).decode()
        # The last first: the places of the others stay.
        for at, amount in reversed(self._amounts):
            row[at : at + 1] = row[at] or (None,) * len(amount._fields)
        return row

    def read(self, rows: Iterable[Sequence[Any]], names: Sequence[str] = ()) -> Iterator[Any]:
        """Yield the object of each row of all columns, or of the named ones.

        Raises:
            ValueError: A column has another form: the catalog is damaged (TypeError: the same for other reasons).
        """
        for values in self.values(names or self.columns, rows):
            for at, amount in () if names else self._amounts:
                found = values[at : at + len(amount._fields)]
                values[at : at + len(amount._fields)] = [None if found[0] is None else amount(*found)]
            yield self._kind(**dict(zip(names or self._names, values, strict=False)))

    def values(self, names: Sequence[str], rows: Iterable[Sequence[Any]]) -> Iterator[list[Any]]:
        """Yield the values of each row of some columns.

        Raises:
            ValueError: As `read`.
        """
        readers = [(at, self._readers[name]) for at, name in enumerate(names) if name in self._readers]
        for row in rows:
            values = list(row)
            for at, read in readers:
                values[at] = read(values[at])
            yield values


def _from_json(read: Callable[[Any], Any]) -> Callable[[str], Any]:
    # Thousands of trajectories call the same tools as often, and most have no errors.
    return lru_cache(1024)(lambda text: read(orjson.loads(text)))


TRAJECTORIES: Final = Rows("trajectories", TrajectorySummary)
STEPS: Final = Rows("steps", StepSummary)
GROUPS: Final = Rows("groups", GroupSummary)

_INSERT: Final = TRAJECTORIES.insert.replace("INSERT", "INSERT OR REPLACE", 1)
_step_of: Final[Callable[[Sequence[Any]], tuple[Any, Any]]] = itemgetter(
    *map(TRAJECTORIES.columns.index, ("step", "validate"))
)


def insert(connection: sqlite3.Connection, summaries: Iterable[TrajectorySummary]) -> None:
    """Insert trajectories; one that is there already is replaced. The caller commits."""
    rows = list(map(TRAJECTORIES.row_of, summaries))
    try:
        connection.executemany(_INSERT, rows)
    except (OverflowError, UnicodeEncodeError):
        # Other programs write integers beyond 64 bits, and files have names that are no UTF-8.
        rows = [[storable(value) for value in row] for row in rows]
        connection.executemany(_INSERT, rows)
    steps = set(map(_step_of, rows))
    connection.executemany(MARK, steps)
    connection.executemany("DELETE FROM processes WHERE step IS ? AND validate IS ?", steps)


def delete(connection: sqlite3.Connection, trace_ids: Iterable[str]) -> None:
    """Delete trajectories. The caller commits."""
    connection.executemany("DELETE FROM trajectories WHERE trace_id = ?", ((each,) for each in trace_ids))


def load(
    connection: sqlite3.Connection,
    where: str = "1",
    arguments: Sequence[Any] = (),
    order: str = "t.rowid",
    names: Sequence[str] = (),
) -> list[TrajectorySummary]:
    """Return the trajectories of a catalog.

    Args:
        connection: The catalog.
        where: The condition in SQL, of `t`.
        arguments: The values of its question marks.
        order: The order in SQL.
        names: The only facts that they have; none for all.

    Raises:
        ValueError: A column has another form: the catalog is damaged (TypeError: the same for other reasons).
    """
    columns = ", ".join(map('t."{}"'.format, names)) or "*"
    select = f"SELECT {columns} FROM trajectories t WHERE {where} ORDER BY {order}"
    return list(TRAJECTORIES.read(connection.execute(select, arguments), names))


def facts_of(
    connection: sqlite3.Connection, names: Sequence[str], where: str, arguments: Sequence[Any], order: str
) -> list[list[Any]]:
    """Return facts of trajectories, or their `seconds`, by their names; the other arguments are the same as for `load`.

    Raises:
        ValueError: As `load`.
    """
    columns = ", ".join(map('t."{}"'.format, names))
    select = f"SELECT {columns} FROM trajectories t WHERE {where} ORDER BY {order}"
    return list(TRAJECTORIES.values(names, connection.execute(select, arguments)))


def storable(value: Any) -> Any:
    """Return a value that SQLite takes: text without lone surrogates, an integer of 64 bits or its digits."""
    if isinstance(value, str):
        return replace_surrogates(value)
    return str(value) if isinstance(value, int) and not INT64_MIN <= value <= INT64_MAX else value
