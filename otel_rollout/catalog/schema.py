"""The tables of a catalog, generated from the table of facts: a column for each fact of a trajectory."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import islice
from operator import attrgetter, itemgetter
from typing import Any, Final, get_args, get_origin, get_type_hints

import orjson

from otel_rollout.facts.json_types import readers_of
from otel_rollout.facts.table import FACTS, TrajectorySummary
from otel_rollout.text.sanitize import INT64_MAX, INT64_MIN, replace_surrogates

ROWS_AT_ONCE: Final = 1024
SECONDS: Final = "seconds"

COLUMNS: Final = tuple(each.name for each in FACTS)
"""The facts that have a column; `seconds` has one too."""


def _types_of(name: str) -> set[Any]:
    """Return the types that a fact can have, without None."""
    hint = get_type_hints(TrajectorySummary)[name]
    kinds = get_args(hint) if get_origin(hint) not in (None, tuple) and type(None) in get_args(hint) else (hint,)
    return {get_origin(kind) or kind for kind in kinds} - {type(None)}


_TYPES: Final = {name: _types_of(name) for name in COLUMNS}
_JSON: Final = tuple(name for name in COLUMNS if not _TYPES[name] <= {int, float, str, bool})
"""The columns with JSON text."""
_SQL_TYPES: Final = {int: " INTEGER", bool: " INTEGER", float: " REAL", str: " TEXT"}


def _column(name: str) -> str:
    types = _TYPES[name]
    if name in _JSON:
        return f'"{name}" TEXT'
    # Without a type, a number stays a number and a text a text.
    return f'"{name}"' + (_SQL_TYPES[next(iter(types))] if len(types) == 1 else "")


_TABLES: Final = f"""
CREATE TABLE trajectories ({", ".join(map(_column, COLUMNS))}, "{SECONDS}" REAL, UNIQUE ("trace_id"));
CREATE INDEX trajectories_by_step ON trajectories ("step", "validate", "experiment_name");
CREATE VIEW rewards AS
  SELECT t."trace_id", t."step", t."validate", part."key" AS "name", part."value"
  FROM trajectories t, json_each(t."reward_parts") part;
CREATE VIEW tools AS
  SELECT t."trace_id", t."step", t."validate", tool."key" AS "name", json_extract(tool."value", '$[0]') AS "calls",
    json_extract(tool."value", '$[1]') AS "errors"
  FROM trajectories t, json_each(t."tools") tool;
CREATE TABLE changed_steps ("step" INTEGER, "validate" INTEGER, UNIQUE ("step", "validate"));
"""

# Not by OR IGNORE: in a trigger, how the statement that fires it handles conflicts counts. For what comes anew a
# trigger would take a sixth of the time of inserting.
_MARK: Final = """INSERT INTO changed_steps SELECT {row}."step", {row}."validate"
  WHERE NOT EXISTS (SELECT 1 FROM changed_steps c WHERE c."step" IS {row}."step" AND c."validate" IS {row}."validate");
"""
_CHANGED: Final = _MARK.format(row="new").replace('new."step"', "?1").replace('new."validate"', "?2")
_TRIGGERS: Final = f"""
CREATE TRIGGER trajectory_changed AFTER UPDATE ON trajectories
  BEGIN {_MARK.format(row="old")} {_MARK.format(row="new")} END;
CREATE TRIGGER trajectory_went AFTER DELETE ON trajectories BEGIN {_MARK.format(row="old")} END;
"""
DDL: Final = _TABLES + _TRIGGERS
_INSERT: Final = (
    f"INSERT INTO trajectories VALUES ({', '.join('?' * (len(COLUMNS) + 1))}) "
    'ON CONFLICT ("trace_id") DO UPDATE SET '
    + ", ".join(f'"{name}" = excluded."{name}"' for name in (*COLUMNS[1:], SECONDS))
)
_values_of: Final[Callable[[TrajectorySummary], tuple[Any, ...]]] = attrgetter(*COLUMNS, SECONDS)
_JSON_PLACES: Final = tuple((COLUMNS.index(name), "{}" if Mapping in _TYPES[name] else "[]") for name in _JSON)
_READERS: Final[Mapping[str, tuple[Callable[[Any], Any], Callable[[], Any]]]] = {
    name: (readers_of(TrajectorySummary)[name], dict if Mapping in _TYPES[name] else tuple) for name in _JSON
}
_step_of: Final[Callable[[Sequence[Any]], tuple[Any, Any]]] = itemgetter(*map(COLUMNS.index, ("step", "validate")))


def insert(connection: sqlite3.Connection, summaries: Iterable[TrajectorySummary]) -> None:
    """Insert trajectories; one that is there already is replaced. The caller commits."""
    rows = map(_row_of, summaries)
    steps: set[tuple[Any, Any]] = set()
    while found := list(islice(rows, ROWS_AT_ONCE)):
        try:
            connection.executemany(_INSERT, found)
        except (OverflowError, UnicodeEncodeError):
            # Other programs write integers beyond 64 bits, and files have names that are no UTF-8.
            found = [[storable(value) for value in row] for row in found]
            connection.executemany(_INSERT, found)
        steps.update(map(_step_of, found))
    connection.executemany(_CHANGED, steps)


def delete(connection: sqlite3.Connection, trace_ids: Iterable[str]) -> None:
    """Delete trajectories. The caller commits."""
    connection.executemany("DELETE FROM trajectories WHERE trace_id = ?", ((each,) for each in trace_ids))


def load(
    connection: sqlite3.Connection, where: str = "", arguments: Sequence[Any] = (), order: str = "t.rowid"
) -> list[TrajectorySummary]:
    """Return the trajectories of a catalog.

    Args:
        connection: The catalog.
        where: The condition in SQL, of `t`; empty for all.
        arguments: The values of its question marks.
        order: The order in SQL.

    Raises:
        ValueError: A column has another form: the catalog is damaged (TypeError: the same for other reasons).
    """
    return [TrajectorySummary(*row) for row in facts_of(connection, COLUMNS, where, arguments, order)]


def facts_of(
    connection: sqlite3.Connection, names: Sequence[str], where: str, arguments: Sequence[Any], order: str
) -> list[list[Any]]:
    """Return facts of trajectories, or their `seconds`, by their names; the other arguments are the same as for `load`.

    Raises:
        ValueError: As `load`.
    """
    columns, condition = ", ".join(map('t."{}"'.format, names)), f" WHERE {where}" if where else ""
    readers = [(place, *_READERS[name]) for place, name in enumerate(names) if name in _READERS]
    flags = [place for place, name in enumerate(names) if _TYPES.get(name) == {bool}]
    rows = list(
        map(list, connection.execute(f"SELECT {columns} FROM trajectories t{condition} ORDER BY {order}", arguments))
    )
    for row in rows:
        for place, read, empty in readers:
            text = row[place]
            row[place] = read(orjson.loads(text)) if len(text) > len("[]") else empty()
        for place in flags:
            row[place] = bool(row[place])
    return rows


def _row_of(summary: TrajectorySummary) -> Sequence[Any]:
    row = list(_values_of(summary))
    for place, empty in _JSON_PLACES:
        value = row[place]
        # Most are empty.
        row[place] = orjson.dumps(value, default=tuple).decode() if value else empty
    return row


def storable(value: Any) -> Any:
    """Return a value that SQLite takes: text without lone surrogates, an integer of 64 bits or its digits."""
    if isinstance(value, str):
        return replace_surrogates(value)
    return str(value) if isinstance(value, int) and not INT64_MIN <= value <= INT64_MAX else value
