"""One connection to a tracking database, and transactions on it that are tried again."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Final, TypeVar

from otel_rollout_mlflow.bulk_sql import Fault, Statements, fault_of

__all__ = ["BulkConnection"]

MAX_TRANSACTIONS: Final = 6
"""The attempts of a transaction that loses to another writer."""
SECONDS_FOR_LOCK: Final = 20

_Result = TypeVar("_Result")


class _AgainError(Exception):
    """A transaction failed in a way that another one may not."""


class BulkConnection:
    """A connection that is opened when it is needed, and opened again when it was lost.

    Args:
        engine: SQLAlchemy's engine, only for this connection.
    """

    def __init__(self, engine: Any) -> None:
        self._engine = engine
        self._dialect = str(engine.dialect.name)
        self._options: dict[str, Any] = {}
        self._connection: Any = None

    def in_transaction(self, work: Callable[[Statements], _Result]) -> _Result:
        """Do work in a transaction: again if another writer was in its way or the connection was lost.

        That is safe: a transaction whose commit got no answer may be there, and is then written once more.
        """
        for attempt in range(1, MAX_TRANSACTIONS):
            with suppress(_AgainError):
                return self._attempt(work, attempt)
            time.sleep(random.uniform(0, 0.02 * 2**attempt))  # noqa: S311 - writers that try again, apart
        return self._attempt(work, MAX_TRANSACTIONS)

    def close(self) -> None:
        """Close the connection."""
        self._disconnect()
        with suppress(Exception):
            self._engine.dispose()

    def _attempt(self, work: Callable[[Statements], _Result], attempt: int) -> _Result:
        if self._connection is None:
            try:
                self._connect()
            except BaseException:
                self._disconnect()
                raise
        cursor = self._connection.cursor()
        try:
            if self._dialect == "sqlite":
                cursor.execute("BEGIN IMMEDIATE")
            elif self._dialect == "mysql":
                # Without locks on the gaps between keys, in which writers of new traces would wait for each other.
                cursor.execute("SET TRANSACTION ISOLATION LEVEL READ COMMITTED")
            else:
                cursor.execute(f"SET LOCAL lock_timeout = '{SECONDS_FOR_LOCK}s'")
            result = work(Statements(self._dialect, cursor, **self._options))
            if self._dialect == "sqlite":
                cursor.execute("COMMIT")
            else:
                self._connection.commit()
        except BaseException as error:
            fault = fault_of(error)
            is_lost = fault in (Fault.CONNECTION, Fault.READ_ONLY)
            if is_lost or not self._rolled_back():
                self._disconnect()
            # The server may have closed the connection while there was nothing to write; SQLite has waited already.
            is_stale = is_lost and attempt == 1 and self._dialect != "sqlite"
            if attempt < MAX_TRANSACTIONS and (is_stale or fault in (Fault.DEADLOCK, Fault.CONSTRAINT)):
                raise _AgainError from error
            raise
        else:
            return result
        finally:
            with suppress(Exception):
                cursor.close()

    def _rolled_back(self) -> bool:
        try:
            self._connection.rollback()
        except Exception:
            return False
        return True

    def _connect(self) -> None:
        self._connection = self._engine.raw_connection()
        cursor = self._connection.cursor()
        if self._dialect == "sqlite":
            # Transactions begin where we say so.
            self._connection.driver_connection.isolation_level = None
            cursor.execute(f"PRAGMA busy_timeout = {1000 * SECONDS_FOR_LOCK}")
            cursor.execute("PRAGMA foreign_keys = ON")
        elif self._dialect == "mysql":
            # If only the quote is special, PyMySQL's escaping, in Python, takes a twentieth of the time.
            mode = "CONCAT_WS(',', NULLIF(@@sql_mode, ''), 'NO_BACKSLASH_ESCAPES')"
            cursor.execute(f"SET SESSION innodb_lock_wait_timeout = {SECONDS_FOR_LOCK}, sql_mode = {mode}")
            cursor.execute("SELECT @@max_allowed_packet")
            self._options = {"max_bytes": int(cursor.fetchone()[0])}
            self._connection.rollback()
        elif self._dialect == "postgresql":
            cursor.execute(
                "SELECT has_database_privilege(current_database(), 'TEMPORARY'), "
                "current_setting('server_version_num')::int >= 140000"
            )
            may_make_tables, is_14 = cursor.fetchone()
            self._options = {
                "copies": may_make_tables and self._engine.dialect.driver == "psycopg",
                "keeps_compression": bool(is_14),
            }
            self._connection.rollback()
        cursor.close()

    def _disconnect(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            with suppress(Exception):
                connection.invalidate()
