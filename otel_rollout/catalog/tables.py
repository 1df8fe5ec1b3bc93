"""The tables of a catalog, in SQL, and the columns of the public ones, for the docs and for data frames."""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping, Sequence
from typing import Final
from zlib import crc32

from otel_rollout.catalog.columns import Column, facts_columns, figures_columns
from otel_rollout.catalog.group_summary import GroupSummary
from otel_rollout.catalog.span_columns import COMMON, OF_SPANS
from otel_rollout.catalog.step_summary import StepSummary
from otel_rollout.version import __version__

COLUMNS: Final[Mapping[str, Sequence[Column]]] = {
    "trajectories": facts_columns(),
    "rewards": [
        *COMMON,
        Column("name", str, "the part's name"),
        Column("value", float, "its value; of a boolean, 0 or 1"),
    ],
    "tools": [
        *COMMON,
        Column("name", str, "the tool"),
        Column("calls", int, "the calls", unit="calls"),
        Column("errors", int, "those that failed", unit="calls"),
    ],
    "steps": figures_columns(StepSummary),
    "groups": figures_columns(GroupSummary),
    **OF_SPANS,
}
"""The columns of each public table, in order."""
SQL_COLUMNS: Final[Mapping[str, Sequence[Column]]] = {
    table: [
        *columns,
        *(
            Column(each.name.removesuffix("_time") + "_utc", str, f"`{each.name}` as text, in UTC")
            for each in columns
            if each.name.endswith("_time")
        ),
    ]
    for table, columns in COLUMNS.items()
}
"""The columns that a question in SQL sees: a time has one for its text, too."""
_USE_JSON: Final = "SELECT 1 FROM json_each('[]'), json_tree('[]');"
"""SQLite makes the tables of JSON at their first use, and a question may only read."""
_SQL_TYPES: Final = {int: " INTEGER", bool: " INTEGER", float: " REAL", str: " TEXT"}


def _listed(table: str) -> str:
    return ", ".join(f'"{each.name}"' for each in COLUMNS[table])


def _declared(column: Column) -> str:
    # Without a type, a number stays a number and a text a text.
    kind = _SQL_TYPES.get(column.kinds[0], " TEXT") if len(column.kinds) == 1 else ""
    return f'"{column.name}"{kind}{" DEFAULT 0" if column.name == "overtaken" else ""}'


# A trigger for what comes anew would take a sixth of the time of inserting.
SQL: Final = f"""
CREATE TABLE about (version TEXT);

-- The files that were read, and the lines of each trajectory in them.
CREATE TABLE files (
  id INTEGER PRIMARY KEY, place TEXT UNIQUE, steps TEXT, status TEXT DEFAULT '', known TEXT, problems TEXT
);
CREATE TABLE parts (trace_id TEXT, file INTEGER, offset INTEGER, traces INTEGER, line BLOB, facts BLOB);
CREATE INDEX parts_by_trace ON parts (trace_id);
CREATE INDEX parts_by_file ON parts (file, offset);

-- The facts of trajectories.
CREATE TABLE trajectories ({", ".join(map(_declared, COLUMNS["trajectories"]))}, UNIQUE (trace_id));
CREATE INDEX trajectories_by_step ON trajectories (step, validate, experiment_name);

-- The trajectories of each process in a step, by which the attempts of a run are told; none of a step that has changed.
CREATE TABLE processes (
  step INTEGER, validate INTEGER, project_name TEXT, experiment_name TEXT, process_run_id TEXT, worker TEXT,
  start_time INTEGER, end_time INTEGER, trajectories INTEGER, run_id TEXT, attempt INTEGER, overtaken INTEGER
);
CREATE INDEX processes_by_step ON processes (step, validate);

CREATE VIEW rewards AS
  SELECT t.trace_id, t.step, t.validate, part.key AS name, part.value
  FROM trajectories t, json_each(t.reward_parts) part;
CREATE VIEW tools AS
  SELECT t.trace_id, t.step, t.validate, tool.key AS name, json_extract(tool.value, '$[0]') AS calls,
    json_extract(tool.value, '$[1]') AS errors
  FROM trajectories t, json_each(t.tools) tool;

-- The figures of steps and groups, and the steps whose figures are not those of their trajectories any more.
CREATE TABLE steps ({_listed("steps")});
CREATE INDEX steps_by_step ON steps (step, validate);
CREATE TABLE groups ({_listed("groups")});
CREATE INDEX groups_by_step ON groups (step, validate, experiment_name);
CREATE INDEX groups_by_prompt ON groups (CAST(sample_index AS TEXT));
CREATE TABLE signals (step INTEGER, validate INTEGER, experiment_name TEXT, run_id TEXT, signals TEXT);
CREATE INDEX signals_by_step ON signals (step, validate);
CREATE TABLE unjudged (one INTEGER PRIMARY KEY);
CREATE TABLE changed_steps (step INTEGER, validate INTEGER, UNIQUE (step, validate));
CREATE TRIGGER trajectory_went AFTER DELETE ON trajectories BEGIN
  INSERT INTO changed_steps SELECT old.step, old.validate
    WHERE NOT EXISTS (SELECT 1 FROM changed_steps c WHERE c.step IS old.step AND c.validate IS old.validate);
  DELETE FROM processes WHERE step IS old.step AND validate IS old.validate;
  DELETE FROM filled_steps WHERE step IS old.step AND validate IS old.validate;
  DELETE FROM shapes WHERE trace_id = old.trace_id;
  DELETE FROM inferred WHERE trace_id = old.trace_id;
END;

-- What is read from frames once it is asked for. Of rows of spans: a column of some of a step's, compressed.
CREATE TABLE kept_columns (step INTEGER, validate INTEGER, name TEXT, batch INTEGER, data BLOB);
CREATE INDEX kept_columns_by_name ON kept_columns (step, validate, name, batch);
CREATE TABLE filled_steps (number INTEGER PRIMARY KEY, step INTEGER, validate INTEGER, unreadable TEXT);
CREATE TRIGGER step_emptied AFTER DELETE ON filled_steps BEGIN
  DELETE FROM kept_columns WHERE step IS old.step AND validate IS old.validate;
END;
CREATE TABLE inferred (trace_id TEXT PRIMARY KEY, is_known INTEGER);
CREATE TABLE shapes (number INTEGER PRIMARY KEY, trace_id TEXT UNIQUE, shapes TEXT);
"""
ASKED: Final = "".join(
    f"CREATE TABLE asked.{table} ({_listed(table)}); CREATE INDEX asked.{table}_by_trace ON {table} (trace_id);"
    for table in OF_SPANS
)
"""The tables of spans: each connection has its own, with what a question reads."""
VERSION: Final = f"{__version__} {crc32((SQL + ASKED).encode()):08x}"
"""A catalog of another version is made again: its columns have other names."""
MARK: Final = """
INSERT INTO changed_steps SELECT ?1, ?2
  WHERE NOT EXISTS (SELECT 1 FROM changed_steps c WHERE c.step IS ?1 AND c.validate IS ?2)
"""
"""Marks a step as changed."""


def create_empty(connection: sqlite3.Connection) -> None:
    """Create the tables that a question sees, without rows."""
    for table, columns in SQL_COLUMNS.items():
        connection.execute(f"CREATE TABLE {table} ({', '.join(each.name for each in columns)})")
    connection.executescript(_USE_JSON)


def stored_name(name: str) -> str:
    """Return the column of the catalog that a column of a question is made of."""
    return name.removesuffix("_utc") + "_time" if name.endswith("_utc") else name


def view_of(table: str) -> str:
    """Return the SELECT of a view with the columns that a question sees, of the table as `t`."""
    more = [each.name for each in SQL_COLUMNS[table][len(COLUMNS[table]) :]]
    texts = (f", utc(t.{stored_name(name)}) AS {name}" for name in more)
    return f"SELECT t.*{''.join(texts)} FROM {'asked' if table in OF_SPANS else 'main'}.{table} t"


def create(connection: sqlite3.Connection) -> None:
    """Make the tables of a catalog in an empty database, unless another connection does at the same time."""
    try:
        connection.executescript(f"BEGIN IMMEDIATE; {SQL} INSERT INTO about VALUES ('{VERSION}'); COMMIT;")
    except sqlite3.OperationalError as error:
        if "already exists" not in str(error):
            raise
        connection.rollback()


def attach(connection: sqlite3.Connection) -> None:
    """Prepare a connection: attach empty tables of spans, make the JSON tables, let replaced rows fire triggers."""
    # Without a name it is in memory, and what is too much for that in a temporary file.
    connection.execute("ATTACH '' AS asked")
    connection.executescript(f"PRAGMA recursive_triggers = ON; PRAGMA asked.journal_mode = MEMORY; {ASKED}{_USE_JSON}")
