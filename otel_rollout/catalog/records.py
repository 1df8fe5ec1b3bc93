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
    """Reads the rows of a table.

    Args:
        table: Its name.
        kind: The class of what a row is of.
    """

    def __init__(self, table: str, kind: Any) -> None:
        columns = COLUMNS[table]
        self.columns = [each.name for each in columns]
        self._kind = kind
        self.names = [each.name for each in fields(kind)]
        hints, readers = get_type_hints(kind, include_extras=True), readers_of(kind)
        amounts = ((at, amount_of(hints[name])) for at, name in enumerate(self.names))
        self._amounts = [(at, amount) for at, amount in amounts if amount is not None]
        """The fields that have a column for each statistic."""
        self.as_json = [each.name for each in columns if each.is_json]
        self._readers: Mapping[str, Callable[[Any], Any]] = {
            **{each.name: bool for each in columns if each.type is bool},
            **{name: _from_json(readers[name]) for name in self.as_json},
        }

    def read(self, rows: Iterable[Sequence[Any]]) -> Iterator[Any]:
        """Yield the object of each row.

        Raises:
            ValueError: A column has another form: the catalog is damaged (TypeError: the same for other reasons).
        """
        for values in self.values(self.columns, rows):
            for at, amount in self._amounts:
                found = values[at : at + len(amount._fields)]
                values[at : at + len(amount._fields)] = [None if found[0] is None else amount(*found)]
            yield self._kind(**dict(zip(self.names, values, strict=False)))

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

_GIVEN: Final = [*TRAJECTORIES.names, "seconds", "run_id"]
_values_of: Final[Callable[[TrajectorySummary], tuple[Any, ...]]] = attrgetter(*_GIVEN)
_JSON: Final = [_GIVEN.index(name) for name in TRAJECTORIES.as_json]
# The columns of attempts are set when these are found.
_INSERTED: Final = ", ".join(map('"{}"'.format, [*TRAJECTORIES.names, "seconds", "process_run_id"]))
_INSERT: Final = f"INSERT OR REPLACE INTO trajectories ({_INSERTED}) VALUES ({', '.join('?' * len(_GIVEN))})"
_step_of: Final[Callable[[Sequence[Any]], tuple[Any, Any]]] = itemgetter(*map(_GIVEN.index, ("step", "validate")))


def _row_of(summary: TrajectorySummary) -> list[Any]:
    row = list(_values_of(summary))
    for at in _JSON:
        row[at] = orjson.dumps(row[at], default=tuple).decode()
    return row


def insert(connection: sqlite3.Connection, summaries: Iterable[TrajectorySummary]) -> None:
    """Insert trajectories; one that is there already is replaced. The caller commits."""
    rows = list(map(_row_of, summaries))
    try:
        connection.executemany(_INSERT, rows)
    except (OverflowError, UnicodeEncodeError):
        # Other programs write integers beyond 64 bits, and files have names that are no UTF-8.
        rows = [[storable(value) for value in row] for row in rows]
        connection.executemany(_INSERT, rows)
    steps = set(map(_step_of, rows))
    connection.executemany(MARK, steps)
    for table in ("processes", "filled_steps"):
        connection.executemany(f"DELETE FROM {table} WHERE step IS ? AND validate IS ?", steps)


def delete(connection: sqlite3.Connection, trace_ids: Iterable[str]) -> None:
    """Delete trajectories. The caller commits."""
    connection.executemany("DELETE FROM trajectories WHERE trace_id = ?", ((each,) for each in trace_ids))


def load(
    connection: sqlite3.Connection,
    where: str = "1",
    arguments: Sequence[Any] = (),
    order: str = "t.rowid",
) -> list[TrajectorySummary]:
    """Return the trajectories of a catalog.

    Args:
        connection: The catalog.
        where: The condition in SQL, of `t`.
        arguments: The values of its question marks.
        order: The order in SQL.

    Raises:
        ValueError: A column has another form: the catalog is damaged (TypeError: the same for other reasons).
    """
    select = f"SELECT * FROM trajectories t WHERE {where} ORDER BY {order}"
    return list(TRAJECTORIES.read(connection.execute(select, arguments)))


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
