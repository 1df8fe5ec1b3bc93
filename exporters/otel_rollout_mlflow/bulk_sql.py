"""Rows written into a tracking database, many in one statement, on SQLite, PostgreSQL, MySQL and MariaDB."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any, Final, TypeVar

import orjson
from sqlalchemy import JSON, event, select
from sqlalchemy.exc import DBAPIError

from otel_rollout.export.outcome import Outcome, Verdict
from otel_rollout_mlflow.database import make_engine
from otel_rollout_mlflow.mlflow_store import Fault, fault_of
from otel_rollout_mlflow.store import AttemptError

DRIVERS: Final = ("mysqldb", "psycopg", "psycopg2", "pymysql", "pysqlite")
"""The drivers whose statements are known; another one is left to MLflow's own store."""

MAX_PARAMETERS: Final = 900
"""SQLite before 3.32 takes 999 in one statement."""
MAX_TRANSACTIONS: Final = 6
"""The attempts of a transaction that loses to another writer."""
SECONDS_FOR_LOCK: Final = 20
BYTES_AROUND: Final = 64 * 1024
"""More than a statement of one row has without its payload."""

_Result = TypeVar("_Result")


def bulk_engine(uri: str) -> Any:
    """Return an engine with one connection, which is tested before each transaction."""
    engine = make_engine(uri, is_pooled=True)
    dialect = engine.dialect.name

    def set_options(connection: Any, record: Any) -> None:
        cursor = connection.cursor()
        if dialect == "sqlite":
            # Transactions begin where we say so.
            connection.isolation_level = None
            cursor.execute(f"PRAGMA busy_timeout = {1000 * SECONDS_FOR_LOCK}")
            cursor.execute("PRAGMA foreign_keys = ON")
        elif dialect == "mysql":
            # With no locks on the gaps between keys, in which writers of new traces would wait for each other.
            cursor.execute("SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED")
            # If only the quote is special, PyMySQL's escaping, in Python, takes a twentieth of the time.
            mode = "CONCAT_WS(',', NULLIF(@@sql_mode, ''), 'NO_BACKSLASH_ESCAPES')"
            cursor.execute(f"SET SESSION innodb_lock_wait_timeout = {SECONDS_FOR_LOCK}, sql_mode = {mode}")
            cursor.execute("SELECT @@max_allowed_packet")
            record.info["max_bytes"] = int(cursor.fetchone()[0])
        cursor.close()

    def begin(connection: Any) -> None:
        if dialect == "sqlite":
            connection.exec_driver_sql("BEGIN IMMEDIATE")
        elif dialect == "postgresql":
            # Only for the transaction: with a pooler the next one has another session.
            connection.exec_driver_sql(f"SET LOCAL lock_timeout = '{SECONDS_FOR_LOCK}s'")

    def bound_statement(connection: Any, cursor: Any, *_: Any) -> None:
        cursor.max_stmt_length = min(cursor.max_stmt_length, connection.info["max_bytes"])

    event.listen(engine, "connect", set_options)
    event.listen(engine, "begin", begin)
    if dialect == "mysql":
        event.listen(engine, "before_cursor_execute", bound_statement)
    return engine


def in_transaction(engine: Any, work: Callable[[Any], _Result]) -> _Result:
    """Do work in a transaction; repeat it if another writer was in its way.

    Raises:
        Exception: The driver's error.
    """
    attempt = 1
    while True:
        try:
            with engine.begin() as connection:
                return work(connection)
        except DBAPIError as error:
            cause = error.orig or error
            if attempt == MAX_TRANSACTIONS or fault_of(cause) not in (Fault.DEADLOCK, Fault.CONSTRAINT):
                # A standby may have taken a server's place: the next connection is a new one.
                engine.dispose()
                # Not from SQLAlchemy's error, which has this one in `orig`: who follows the causes would never end.
                raise cause from None
        time.sleep(random.uniform(0, 0.02 * 2**attempt))  # noqa: S311 - writers that try again, apart
        attempt += 1


def stored_rows(
    connection: Any, table: Any, ids: Sequence[str], *conditions: Any, is_locking: bool = False
) -> list[dict[str, Any]]:
    """Return the rows of a table whose key is, or begins with, one of some ids.

    Args:
        connection: The transaction.
        table: The table.
        ids: The ids.
        conditions: Further conditions.
        is_locking: Lock the rows, in the order of the ids, until the end of the transaction; SQLite locks its file.
    """
    key = next(iter(table.primary_key))
    query = select(table).where(key.in_(ids), *conditions).order_by(key)
    return [dict(row) for row in connection.execute(query.with_for_update() if is_locking else query).mappings()]


def upsert(connection: Any, table: Any, rows: Sequence[dict[str, Any]], *, are_new: bool = False) -> None:
    """Insert rows, or update the rows of the same key.

    Args:
        connection: The transaction.
        table: The table.
        rows: The rows, all with the same columns.
        are_new: A row of the same key violates a constraint.
    """
    if not rows:
        return
    dialect, columns = connection.dialect.name, tuple(rows[0])
    if dialect == "sqlite":
        # A statement for each row takes half as long again.
        most = MAX_PARAMETERS // len(columns)
        for some in (rows[first : first + most] for first in range(0, len(rows), most)):
            sql = _upsert_sql(dialect, table, columns, are_new, len(some))
            connection.exec_driver_sql(sql, tuple(value for row in some for value in row.values()))
        return
    sql = _upsert_sql(dialect, table, columns, are_new)
    if dialect == "postgresql":
        # One parameter: the driver doesn't parse thousands of placeholders, and the server has the types.
        connection.exec_driver_sql(sql, (orjson.dumps(rows).decode(),))
        return
    # The server would close the connection, as if it went away.
    size = BYTES_AROUND + max(sum(map(_size, row.values())) for row in rows)
    if size > (most := connection.info["max_bytes"]):
        reason = f"a span of {size:,} bytes is over max_allowed_packet of the MLflow database ({most:,} bytes)"
        raise AttemptError(Outcome(Verdict.TOO_LARGE, reason))
    # The driver makes statements of many rows.
    connection.exec_driver_sql(sql, [tuple(row.values()) for row in rows])


def _size(value: Any) -> int:
    return len(value.encode()) + value.count("'") if isinstance(value, str) else 0


@lru_cache(maxsize=256)
def _upsert_sql(dialect: str, table: Any, columns: tuple[str, ...], are_new: bool, count: int = 1) -> str:
    quote = "`" if dialect == "mysql" else '"'
    quoted = {column: f"{quote}{column}{quote}" for column in columns}
    sql = f"INSERT INTO {table.name} ({', '.join(quoted.values())})"
    if dialect == "postgresql":
        # A column of JSON is given as text, as in the other databases.
        unwrapped = {column: f"({name} #>> '{{}}')::json" for column, name in quoted.items()}
        values = [unwrapped[column] if isinstance(table.c[column].type, JSON) else quoted[column] for column in columns]
        sql += f" SELECT {', '.join(values)} FROM json_populate_recordset(NULL::{table.name}, %s::json)"
    else:
        row = f"({', '.join(['?' if dialect == 'sqlite' else '%s'] * len(columns))})"
        sql += f" VALUES {', '.join([row] * count)}"
    if are_new:
        return sql
    keys = [column.name for column in table.primary_key]
    updated = [name for column, name in quoted.items() if column not in keys]
    if dialect == "mysql":
        return f"{sql} ON DUPLICATE KEY UPDATE {', '.join(f'{name} = VALUES({name})' for name in updated)}"
    changes = ", ".join(f"{name} = excluded.{name}" for name in updated)
    return f"{sql} ON CONFLICT ({', '.join(quoted[key] for key in keys)}) DO UPDATE SET {changes}"
