"""A question in SQL over the public tables of a catalog: it only reads, and ends at a limit of time and of rows."""

from __future__ import annotations

import sqlite3
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple, TypeVar

from otel_rollout.catalog.sql import add_functions, regexp
from otel_rollout.catalog.tables import SQL_COLUMNS, create_empty, stored_name, view_of
from otel_rollout.catalog.unknown_names import message_of, quoted, with_known_name, with_strict_names
from otel_rollout.errors import RolloutTraceError

Taken = TypeVar("Taken")

MAX_SPAN_BYTES: Final = 2**30
"""The most bytes, as OTLP, of the trajectories whose spans one question may read."""
MAX_ANSWER_BYTES: Final = 2**28
"""The rows of an answer end once their values take more memory."""

_READS: Final = frozenset(
    {sqlite3.SQLITE_SELECT, sqlite3.SQLITE_READ, sqlite3.SQLITE_FUNCTION, sqlite3.SQLITE_RECURSIVE}
)
_INSTRUCTIONS_BETWEEN_LOOKS: Final = 10_000


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
        read_as: The columns that other names of the question were read as, by these names.
    """

    columns: Sequence[str]
    rows: Sequence[Sequence[Any]]
    is_cut: bool
    unreadable: Sequence[str] = ()
    read_as: Mapping[str, str] = field(default_factory=dict)


class Question(NamedTuple):
    """A question as it is answered.

    Args:
        sql: The question, with the names that columns have.
        columns: The tables that it reads, each with the columns that it reads.
        read_as: The columns that other names of the question were read as, by these names.
    """

    sql: str
    columns: Mapping[str, set[str]]
    read_as: Mapping[str, str]


def understood(sql: str, *, has_regexp: bool = False) -> Question:
    """Return a question as it is answered.

    Args:
        sql: The question.
        has_regexp: True if REGEXP is answered.

    Raises:
        QueryError: It is no question.
    """
    read_as: dict[str, str] = {}
    # A view names all of its columns, whatever a question reads of them.
    with closing(sqlite3.connect(":memory:")) as connection:
        create_empty(connection)
        _prepare(connection, has_regexp=has_regexp)
        while True:
            try:
                program = connection.execute(f"EXPLAIN {with_strict_names(sql)}").fetchall()
                break
            except (sqlite3.Error, sqlite3.Warning) as error:
                known = with_known_name(sql, str(error))
                if known is None or known[1] in read_as:
                    raise _plain_error(error, sql) from None
                sql, name, column = known
                read_as[name] = column
        tables = dict(connection.execute("SELECT rootpage, name FROM sqlite_master"))
    return Question(sql, _columns_read(tables, program), read_as)


def _columns_read(tables: Mapping[int, str], program: Sequence[Sequence[Any]]) -> dict[str, set[str]]:
    """Return the columns that a program of SQLite's reads, by table; none of a table whose rows it only counts."""
    columns: dict[str, set[str]] = {}
    opened: dict[int, str] = {}
    for _, instruction, first, second, *_ in program:
        if instruction == "OpenRead" and second in tables:
            opened[first] = tables[second]
            columns.setdefault(tables[second], set())
        elif instruction == "Column" and first in opened:
            columns[opened[first]].add(stored_name(SQL_COLUMNS[opened[first]][second].name))
    return columns


def take_rows(
    connection: sqlite3.Connection, sql: str, take: Callable[[sqlite3.Cursor], Taken], seconds: float
) -> Taken:
    """Ask a question that is understood, and return what is made of its rows.

    Args:
        connection: The catalog, with the tables that are asked.
        sql: The question: one SELECT, VALUES or WITH.
        take: Called with the cursor.
        seconds: The time that it may take.

    Raises:
        QueryError: It is no question, or it took longer.
    """
    end = time.monotonic() + seconds
    connection.set_progress_handler(lambda: time.monotonic() > end, _INSTRUCTIONS_BETWEEN_LOOKS)
    faults = _prepare(connection, has_regexp=True)
    try:
        with closing(connection.execute(sql)) as cursor:
            return take(cursor)
    except (sqlite3.Error, sqlite3.Warning) as error:
        said = str(error)
        if said == "interrupted" and time.monotonic() < end:
            # SQLite has swallowed Ctrl-C, which the progress handler has raised.
            raise KeyboardInterrupt from None
        if said == "interrupted":
            raise QueryError(
                f"it took more than {seconds:g} s; narrow it to some steps, or give it more time"
            ) from None
        raise QueryError(faults[0]) if faults else _plain_error(error, sql) from None
    finally:
        connection.set_progress_handler(None, 0)
        connection.set_authorizer(None)
        if sys.version_info >= (3, 11):
            connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, 2**31 - 1)


@contextmanager
def asked_tables(
    connection: sqlite3.Connection,
    steps: Sequence[tuple[int | None, bool]] | None,
    experiment: str | None,
    run: str | None,
    attempt: int | None,
) -> Iterator[None]:
    """Let the public tables have all columns of a question, and only some rows, inside the block.

    Args:
        connection: The catalog.
        steps: The steps, and whether they are validation passes; None for all.
        experiment: The experiment; None for all.
        run: The beginning of the run's id; None for all.
        attempt: The attempt of resumed runs; None for what counts.
    """
    has_overtaken = connection.execute("SELECT 1 FROM processes WHERE overtaken LIMIT 1").fetchone() is not None
    is_all = (steps, experiment, run, attempt) == (None, None, None, None) and not has_overtaken
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
        for table in SQL_COLUMNS:
            condition = "" if is_all else f" WHERE {narrow.get(table, of_trajectories)}"
            connection.execute(f"CREATE TEMP VIEW {table} AS {view_of(table)}{condition}")
        yield
    finally:
        for table in reversed([*SQL_COLUMNS]):
            connection.execute(f"DROP VIEW IF EXISTS temp.{table}")
        connection.execute("DROP TABLE IF EXISTS temp.asked_steps")


def of_run(run_id: str, experiment: str | None, run: str | None) -> str:
    """Return the condition of an experiment and a run: it takes the ids of all attempts, and none for all."""
    own = [] if experiment is None else [f"experiment_name = {quoted(experiment)}"]
    if run is not None:
        begins = f"1, {len(run)}) = {quoted(run)}"
        resumed = f"SELECT p.run_id FROM main.processes p WHERE substr(p.process_run_id, {begins}"
        own.append(f"(substr({run_id}, {begins} OR {run_id} IN ({resumed}))")
    return " AND ".join(own) or "1"


def of_attempt(attempt: int | None) -> str:
    """Return the condition of trajectories `t` of an attempt; None: of those that count."""
    return "NOT t.overtaken" if attempt is None else f"t.attempt = {attempt}"


def _prepare(connection: sqlite3.Connection, *, has_regexp: bool) -> list[str]:
    """Give a connection the functions of questions, refuse what is no reading, and bound each value.

    Returns:
        What will be wrong with the patterns of REGEXP.
    """
    faults: list[str] = []

    def matches(pattern: Any, value: Any) -> bool | None:
        try:
            return regexp(pattern, value)
        except ValueError as error:
            faults.append(str(error))
            raise

    add_functions(connection)
    if has_regexp:
        connection.create_function("regexp", 2, matches, deterministic=True)
    if sys.version_info >= (3, 11):
        connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, MAX_ANSWER_BYTES)
    connection.set_authorizer(lambda action, *_: sqlite3.SQLITE_OK if action in _READS else sqlite3.SQLITE_DENY)
    return faults


def _plain_error(error: Exception, sql: str) -> QueryError:
    said = str(error)
    if "not authorized" in said or "prohibited" in said or "cannot modify" in said:
        return QueryError("it would do more than read: a question is one SELECT")
    if "one statement at a time" in said:
        return QueryError("it has several statements: a question is one SELECT")
    if "user-defined aggregate" in said:
        return QueryError(
            "mean, median, stddev, percentile, quantile and corr take numbers; percentile's second one is from 0 to "
            "100, that of quantile from 0 to 1"
        )
    if "too big" in said:
        return QueryError(
            f"a value of its answer has more than {MAX_ANSWER_BYTES >> 20} MiB: group by more columns, or cut texts by "
            "substr"
        )
    return QueryError(message_of(said, sql) or said)
