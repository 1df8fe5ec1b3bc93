"""Many rows in few statements, in the words of PostgreSQL, MySQL, MariaDB and SQLite."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final

from otel_rollout.export.outcome import Outcome, Verdict
from otel_rollout_mlflow.layouts import COSTS, TOKENS
from otel_rollout_mlflow.store import AttemptError

__all__ = ["DRIVERS", "Fault", "Statements", "fault_of"]

DRIVERS: Final = ("mysqldb", "psycopg", "psycopg2", "pymysql", "pysqlite")
"""The drivers whose cursors are used; another one is left to MLflow's own store."""

MAX_PARAMETERS: Final = 900
"""SQLite before 3.32 takes 999 in one statement."""
MAX_BYTES: Final = 2 << 20
"""About the payload of one statement, in characters."""
BYTES_OF_CHARACTER: Final = 4
"""The most that a character takes in a statement."""
BYTES_AROUND: Final = 64 * 1024
"""More than a statement of one row has without its payload."""
MAX_IDS: Final = 500

_DEADLOCKS: Final = frozenset({"40001", "40P01", 1205, 1213})
# psycopg's classes for the first three are a wrong statement's too; MySQL and MariaDB have numbers.
_DENIED: Final = frozenset({"42501", "3F000", 1044, 1142, 1143})
_READ_ONLY: Final = frozenset({"25006", 1290, 1792, 1836})
_CONSTRAINTS: Final = ("IntegrityError", "UniqueViolation", "ForeignKeyViolation")
_CONNECTION: Final = ("OperationalError", "InterfaceError", "AdminShutdown", "CrashShutdown", "CannotConnectNow")
_STAGE: Final = "otel_rollout_stage"

_TYPES: Final = {
    **dict.fromkeys((*COSTS, "aggregate_value"), "float8"),
    **dict.fromkeys(("valid", "is_numeric_value"), "boolean"),
    "dimension_attributes": "json",
}
_NUMBERS: Final = frozenset(
    {
        "experiment_id",
        "timestamp_ms",
        "execution_time_ms",
        "db_payload_generation",
        "start_time_unix_nano",
        "end_time_unix_nano",
        "created_timestamp",
        "last_updated_timestamp",
        "trace_timestamp_ms",
        *TOKENS,
    }
)


class Fault:
    """The meaning of a database driver's error for the transaction."""

    DEADLOCK: Final = "deadlock"
    """Two writers waited for each other: the same transaction again."""
    CONSTRAINT: Final = "constraint"
    """Another writer was quicker, or the experiment is gone: read again."""
    CONNECTION: Final = "connection"
    """The database is away or busy: a new connection, later."""
    READ_ONLY: Final = "read-only"
    """The server takes no writes, as a standby for another server: a new connection, later."""
    DENIED: Final = "denied"
    """The user may not write, or may not make tables: nothing helps but other rights."""
    OTHER: Final = "other"


def fault_of(error: BaseException) -> str:
    """Return the kind of a driver's error."""
    code = getattr(error, "sqlstate", None) or getattr(error, "pgcode", None)
    # PyMySQL's errors have both, and the state is the same for many of them.
    number = error.args[0] if error.args and isinstance(error.args[0], int) else None
    if code is None:
        code = number
    if code in _DEADLOCKS:
        return Fault.DEADLOCK
    if code in _READ_ONLY or number in _READ_ONLY:
        return Fault.READ_ONLY
    if code in _DENIED or number in _DENIED:
        return Fault.DENIED
    names = {kind.__name__ for kind in type(error).__mro__}
    if not names.isdisjoint(_CONSTRAINTS):
        return Fault.CONSTRAINT
    # A class of SQLSTATE for a wrong statement comes as an OperationalError of some drivers.
    if not names.isdisjoint(_CONNECTION) and str(code)[:2] not in ("0A", "22", "42"):
        return Fault.CONNECTION
    return Fault.OTHER


class Statements:
    """The statements of one transaction.

    Args:
        dialect: `postgresql`, `mysql` or `sqlite`.
        cursor: A cursor of the database's driver.
        copies: PostgreSQL's COPY can be used: the driver is psycopg 3, and the role may make temporary tables.
        keeps_compression: COPY's table takes the compression of the columns, as PostgreSQL 14 and later can.
        max_bytes: The longest statement that the server takes; None if there is no limit.
    """

    def __init__(
        self,
        dialect: str,
        cursor: Any,
        *,
        copies: bool = False,
        keeps_compression: bool = False,
        max_bytes: int | None = None,
    ) -> None:
        self._dialect = dialect
        self._cursor = cursor
        self._copies = copies
        self._keeps_compression = keeps_compression
        self._max_bytes = max_bytes
        self._mark = "?" if dialect == "sqlite" else "%s"
        self._quote = "`" if dialect == "mysql" else '"'

    def execute(self, sql: str, parameters: Sequence[Any] = ()) -> None:
        """Execute a statement that has `?` for each parameter."""
        self._cursor.execute(sql.replace("?", self._mark), tuple(parameters))

    def rows(self, sql: str, ids: Sequence[Any], *, is_locking: bool = False) -> list[tuple[Any, ...]]:
        """Return the rows of a query that ends in `IN`, for any number of ids.

        Args:
            sql: The query, up to the list.
            ids: The list, in the order in which rows are locked.
            is_locking: Lock the rows until the end of the transaction; SQLite locks its file.
        """
        found: list[tuple[Any, ...]] = []
        lock = " FOR UPDATE" if is_locking and self._dialect != "sqlite" else ""
        for first in range(0, len(ids), MAX_IDS):
            some = ids[first : first + MAX_IDS]
            # Rows are locked in the order in which they are found, so ask for the primary key's.
            order = " ORDER BY 1" if lock else ""
            self.execute(f"{sql} ({', '.join('?' * len(some))}){order}{lock}", some)
            found += self._cursor.fetchall()
        return found

    def name(self, column: str) -> str:
        """Return a column's name in quotes: `key` is a word of MySQL's."""
        return f"{self._quote}{column}{self._quote}"

    def insert(self, table: str, columns: Sequence[str], rows: Sequence[Sequence[Any]]) -> None:
        """Insert new rows."""
        self._insert(table, columns, rows, "")

    def upsert(self, table: str, columns: Sequence[str], keys: int, rows: Sequence[Sequence[Any]]) -> None:
        """Insert rows, or update the rows of the same key.

        Args:
            table: The table.
            columns: The columns, the key's first.
            keys: The number of the key's columns.
            rows: The values of the columns.
        """
        self._insert(table, columns, rows, self._on_conflict(columns, keys))

    def upsert_many(self, table: str, columns: Sequence[str], keys: int, rows: Sequence[Sequence[Any]]) -> None:
        """Do the same with many or long rows: by COPY if it can be used."""
        if not self._copies or not rows:
            self.upsert(table, columns, keys, rows)
            return
        names = ", ".join(map(self.name, columns))
        options = " INCLUDING COMPRESSION" if self._keeps_compression else ""
        # Only for the transaction: with a pooler the next one has another connection.
        self.execute(f"CREATE TEMPORARY TABLE {_STAGE} (LIKE {table}{options}) ON COMMIT DROP")
        with self._cursor.copy(f"COPY {_STAGE} ({names}) FROM STDIN") as copy:
            for row in rows:
                copy.write_row(row)
        self.execute(
            f"INSERT INTO {table} ({names}) SELECT {names} FROM {_STAGE} WHERE true{self._on_conflict(columns, keys)}"
        )

    def _on_conflict(self, columns: Sequence[str], keys: int) -> str:
        names = [self.name(column) for column in columns]
        if self._dialect == "mysql":
            return " ON DUPLICATE KEY UPDATE " + ", ".join(f"{name} = VALUES({name})" for name in names[keys:])
        updates = ", ".join(f"{name} = excluded.{name}" for name in names[keys:])
        return f" ON CONFLICT ({', '.join(names[:keys])}) DO UPDATE SET {updates}"

    def _insert(self, table: str, columns: Sequence[str], rows: Sequence[Sequence[Any]], tail: str) -> None:
        names = ", ".join(map(self.name, columns))
        if not rows:
            return
        if self._dialect == "postgresql":
            # One array for each column: the driver doesn't parse thousands of placeholders.
            arrays = ", ".join(f"%s::{_type_of(table, column)}[]" for column in columns)
            sql = f"INSERT INTO {table} ({names}) SELECT * FROM unnest({arrays}) AS t WHERE true{tail}"
            self._cursor.execute(sql, [list(values) for values in zip(*rows, strict=True)])
            return
        one = f"({', '.join(self._mark * len(columns) if len(self._mark) == 1 else [self._mark] * len(columns))})"
        max_characters = MAX_BYTES
        if self._max_bytes is not None:
            max_characters = min(MAX_BYTES, self._max_bytes // BYTES_OF_CHARACTER)
        for some in _pieces(rows, len(columns), max_characters):
            if self._max_bytes is not None and len(some) == 1:
                _check_size(some[0], self._max_bytes)
            sql = f"INSERT INTO {table} ({names}) VALUES {', '.join([one] * len(some))}{tail}"
            self._cursor.execute(sql, [value for row in some for value in row])


def _type_of(table: str, column: str) -> str:
    if column == "value" and table.endswith("_metrics"):
        return "float8"
    return _TYPES.get(column) or ("bigint" if column in _NUMBERS else "text")


def _check_size(row: Sequence[Any], max_bytes: int) -> None:
    """Raise if a row doesn't fit into one statement: the server would close the connection, as if it went away."""
    texts = [value for value in row if isinstance(value, str)]
    size = BYTES_AROUND + sum(map(len, texts)) * BYTES_OF_CHARACTER
    if size > max_bytes:
        size = BYTES_AROUND + sum(len(text.encode()) + text.count("'") for text in texts)
    if size > max_bytes:
        reason = f"a span of {size:,} bytes is over max_allowed_packet of the MLflow database ({max_bytes:,} bytes)"
        raise AttemptError(Outcome(Verdict.TOO_LARGE, reason))


def _pieces(rows: Sequence[Sequence[Any]], width: int, max_characters: int) -> Iterator[Sequence[Sequence[Any]]]:
    """Return the rows in pieces that fit into one statement."""
    most = max(1, MAX_PARAMETERS // width)
    first = size = 0
    for number, row in enumerate(rows):
        length = sum(len(value) for value in row if isinstance(value, str))
        if number > first and (number - first >= most or size + length > max_characters):
            yield rows[first:number]
            first, size = number, 0
        size += length
    if first < len(rows):
        yield rows[first:]
