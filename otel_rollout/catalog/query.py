"""A question in SQL over the public tables of a catalog: it only reads, and ends at a limit of time and of rows."""

from __future__ import annotations

import re
import sqlite3
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final, TypeVar

from otel_rollout.catalog.span_columns import OF_SPANS
from otel_rollout.catalog.sql import FUNCTIONS
from otel_rollout.catalog.tables import COLUMNS
from otel_rollout.errors import RolloutTraceError
from otel_rollout.text.near_miss import closest

Taken = TypeVar("Taken")

MAX_SPAN_BYTES: Final = 2**30
"""The most bytes, as OTLP, of the trajectories whose spans one question may read."""
MAX_ANSWER_BYTES: Final = 2**28
"""The rows of an answer end once their values take more memory."""

_READS: Final = frozenset(
    {sqlite3.SQLITE_SELECT, sqlite3.SQLITE_READ, sqlite3.SQLITE_FUNCTION, sqlite3.SQLITE_RECURSIVE}
)
_INSTRUCTIONS_BETWEEN_LOOKS: Final = 10_000
_UNKNOWN: Final = re.compile(r"no such (column|table|function): (?:\w+\.)?(.+)")
_QUOTED: Final = re.compile(
    r"""'(?:[^']|'')*' | --[^\n]* | /\*.*?\*/ | \[[^\]]*\] | `[^`]*` | "((?:[^"]|"")*)\"""", re.DOTALL | re.VERBOSE
)
_BUILT_IN: Final = (
    "avg",
    "count",
    "max",
    "min",
    "sum",
    "total",
    "round",
    "abs",
    "coalesce",
    "json_each",
    "json_extract",
)


class QueryError(RolloutTraceError):
    """A question can't be answered; the message says why, and names what was meant."""


@dataclass(frozen=True)
class Answer:
    """The answer to a question.

    Args:
        columns: The names of its columns.
        rows: Its rows: texts, numbers and None.
        is_cut: True if there are more rows: than were asked for, or than `MAX_ANSWER_BYTES` hold.
        unreadable: The trajectories whose spans were asked for and can't be read.
    """

    columns: Sequence[str]
    rows: Sequence[Sequence[Any]]
    is_cut: bool
    unreadable: Sequence[str] = ()


def columns_read(connection: sqlite3.Connection, sql: str) -> Mapping[str, set[str]]:
    """Return the tables that a question reads, each with the columns that it reads.

    Raises:
        QueryError: It is no question.
    """
    found: dict[str, set[str]] = {}
    with _only_reads(connection, found), _plain_errors(connection, sql):
        # SQLite reads a misspelt name in double quotes as a text, but not one in backticks.
        named = _QUOTED.sub(lambda it: it[0] if it[1] is None else f"`{it[1].replace('`', '``')}`", sql)
        program = connection.execute(f"EXPLAIN {named}").fetchall()
    _add_read(connection, program, found)
    return found


def _add_read(connection: sqlite3.Connection, program: Sequence[Sequence[Any]], columns: dict[str, set[str]]) -> None:
    """Add what a program of SQLite's reads by table: JOIN with USING asks for no leave to read its columns."""
    roots: dict[tuple[int, int], tuple[str, bool]] = {}
    for number, schema, _ in connection.execute("PRAGMA database_list").fetchall():
        rows = connection.execute(f"SELECT rootpage, tbl_name, type = 'table' FROM {schema}.sqlite_master")
        roots.update(((number, root), (table, bool(is_table))) for root, table, is_table in rows)
    opened: dict[int, str] = {}
    for _, instruction, first, second, third, *_ in program:
        if instruction == "OpenRead" and (third, second) in roots:
            table, is_table = roots[third, second]
            columns.setdefault(table, set()).add("")
            opened |= {first: table} if is_table and table in COLUMNS else {}
        elif instruction == "Column" and first in opened:
            columns[opened[first]].add(COLUMNS[opened[first]][second].name)


def take_rows(
    connection: sqlite3.Connection, sql: str, take: Callable[[sqlite3.Cursor], Taken], seconds: float
) -> Taken:
    """Ask a question, and return what is made of its rows.

    Args:
        connection: The catalog.
        sql: The question: one SELECT, VALUES or WITH.
        take: Called with the cursor.
        seconds: The time that it may take.

    Raises:
        QueryError: It is no question, or it took longer.
    """
    end = time.monotonic() + seconds
    connection.set_progress_handler(lambda: time.monotonic() > end, _INSTRUCTIONS_BETWEEN_LOOKS)
    try:
        with _only_reads(connection, {}), _plain_errors(connection, sql, seconds, end):
            cursor = connection.execute(sql)
            try:
                return take(cursor)
            finally:
                cursor.close()
    finally:
        connection.set_progress_handler(None, 0)


@contextmanager
def narrowed(
    connection: sqlite3.Connection,
    steps: Sequence[tuple[int | None, bool]] | None,
    experiment: str | None,
    run: str | None,
    attempt: int | None,
) -> Iterator[None]:
    """Let the public tables have only some rows inside the block.

    Args:
        connection: The catalog.
        steps: The steps, and whether they are validation passes; None for all.
        experiment: The experiment; None for all.
        run: The beginning of the run's id; None for all.
        attempt: The attempt of resumed runs; None for what counts.
    """
    has_overtaken = connection.execute("SELECT 1 FROM processes WHERE overtaken LIMIT 1").fetchone() is not None
    if (steps, experiment, run, attempt) == (None, None, None, None) and not has_overtaken:
        yield
        return
    own = []
    if steps is not None:
        connection.execute("CREATE TEMP TABLE asked_steps (step, validate)")
        connection.executemany("INSERT INTO temp.asked_steps VALUES (?, ?)", steps)
        own.append("EXISTS (SELECT 1 FROM temp.asked_steps a WHERE a.step IS t.step AND a.validate = t.validate)")
    where = " AND ".join(own) or "1"
    same = " AND ".join(f"s.{name} IS t.{name}" for name in ("step", "validate", "experiment_name", "run_id"))
    narrow = {
        "trajectories": f"{where} AND {of_run('t.run_id', experiment, run)} AND {of_attempt(attempt)}",
        "steps": f"{where} AND {of_run('coalesce(t.run_id, t.sole_run_id)', experiment, run)}"
        + ("" if attempt is None else f" AND t.attempt = {attempt}"),
        "groups": f"EXISTS (SELECT 1 FROM temp.steps s WHERE {same})",
    }
    of_trajectories = "t.trace_id IN (SELECT trace_id FROM temp.trajectories)"
    try:
        for table in COLUMNS:
            condition = narrow.get(table, of_trajectories)
            home = "asked" if table in OF_SPANS else "main"
            connection.execute(f"CREATE TEMP VIEW {table} AS SELECT t.* FROM {home}.{table} t WHERE {condition}")
        yield
    finally:
        for table in reversed([*COLUMNS]):
            connection.execute(f"DROP VIEW IF EXISTS temp.{table}")
        connection.execute("DROP TABLE IF EXISTS temp.asked_steps")


def of_run(run_id: str, experiment: str | None, run: str | None) -> str:
    """Return the condition of an experiment and a run: it takes the ids of all attempts, and none for all."""
    own = [] if experiment is None else [f"experiment_name = {_quoted(experiment)}"]
    if run is not None:
        begins = f"1, {len(run)}) = {_quoted(run)}"
        resumed = f"SELECT p.run_id FROM main.processes p WHERE substr(p.process_run_id, {begins}"
        own.append(f"(substr({run_id}, {begins} OR {run_id} IN ({resumed}))")
    return " AND ".join(own) or "1"


def of_attempt(attempt: int | None) -> str:
    """Return the condition of trajectories `t` of an attempt; None: of those that count."""
    return "NOT t.overtaken" if attempt is None else f"t.attempt = {attempt}"


@contextmanager
def _only_reads(connection: sqlite3.Connection, columns: dict[str, set[str]]) -> Iterator[None]:
    """Refuse what is no reading, and collect the columns that are read, by table."""

    def authorize(action: int, first: str | None, second: str | None, *_: str | None) -> int:
        if action == sqlite3.SQLITE_READ and first:
            columns.setdefault(first, set()).add(second or "")
        return sqlite3.SQLITE_OK if action in _READS else sqlite3.SQLITE_DENY

    connection.set_authorizer(authorize)
    try:
        yield
    finally:
        connection.set_authorizer(None)


@contextmanager
def _plain_errors(connection: sqlite3.Connection, sql: str, seconds: float = 0.0, end: float = 0.0) -> Iterator[None]:
    try:
        yield
    except (sqlite3.Error, sqlite3.Warning) as error:
        said = str(error)
        unknown = _UNKNOWN.match(said)
    else:
        return
    if said == "interrupted" and time.monotonic() < end:
        # SQLite has swallowed Ctrl-C, which the progress handler has raised.
        raise KeyboardInterrupt
    if said == "interrupted":
        raise QueryError(f"it took more than {seconds:g} s; narrow it to some steps, or give it more time")
    if "not authorized" in said or "prohibited" in said:
        raise QueryError("it would do more than read: a question is one SELECT")
    if "one statement at a time" in said:
        raise QueryError("it has several statements: a question is one SELECT")
    if "user-defined aggregate" in said:
        raise QueryError("mean, median, percentile and stddev take numbers; percentile's second one is from 0 to 100")
    if unknown is None:
        raise QueryError(said)
    kind, name = unknown.groups()
    tables = _tables_of() if kind == "column" else {}
    known = {"table": COLUMNS, "function": (*FUNCTIONS, *_BUILT_IN)}.get(kind, tables.keys() - {name})
    near = closest(name, known)
    means = f"; did you mean {near}?" if near else f"; there are {', '.join(known)}" if kind != "column" else ""
    if f'"{name}"' in sql:
        means += f"; a text has single quotes: {_quoted(name)}"
    raise QueryError(f"there is no {kind} {name}{_elsewhere(tables.get(name, ()))}{means}")


def _elsewhere(tables: Sequence[str]) -> str:
    """Return the tables that have a column that the question's tables lack, for a message."""
    if not tables:
        return ""
    join = " (JOIN trajectories USING (trace_id))" if "trajectories" in tables else ""
    return f" in what it asks: {', '.join(tables)} {'has' if len(tables) == 1 else 'have'} it{join}"


def _tables_of() -> dict[str, list[str]]:
    """Return the tables that have each column."""
    names: dict[str, list[str]] = {}
    for table, columns in COLUMNS.items():
        for column in columns:
            names.setdefault(column.name, []).append(table)
    return names


def _quoted(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"
