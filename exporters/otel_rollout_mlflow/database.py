"""The opening of a tracking database: its connection, its fault in plain words, and its tables made once."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any, Final, TypeVar

from otel_rollout.export.http import shown_url
from otel_rollout.export.outcome import Outcome, Verdict
from otel_rollout_mlflow.store import AttemptError, configuration_error

SECONDS_TO_CONNECT: Final = 10
SECONDS_FOR_SCHEMA: Final = 120
"""The seconds that another process may take to make the tables: MariaDB on a slow disk takes half a minute."""

_SCHEMA_LOCK: Final = 0x6F74656C726F6C6C
"""The number of PostgreSQL's advisory lock: "otelroll"."""

_OPTIONS: Final[dict[str, dict[str, Any]]] = {
    # A pooler like PgBouncer gives each transaction another connection, without its prepared statements.
    "psycopg": {"connect_timeout": SECONDS_TO_CONNECT, "prepare_threshold": None},
    "psycopg2": {"connect_timeout": SECONDS_TO_CONNECT},
    "pymysql": {"connect_timeout": SECONDS_TO_CONNECT},
    "mysqldb": {"connect_timeout": SECONDS_TO_CONNECT},
    "pysqlite": {"timeout": 20.0, "check_same_thread": False},
}

# Errors of a connection have no code with psycopg and psycopg2, so they are known by their words.
_REFUSED: Final = (
    "password authentication failed",
    "no password supplied",
    "authentication failed",
    "no such user",
    "no such database",
    "no pg_hba.conf entry",
    "not permitted to log in",
    "permission denied for database",
    'database "',
    'role "',
)
_DOES_NOT_EXIST: Final = "does not exist"
_MYSQL_REFUSALS: Final = frozenset({1044, 1045, 1049, 1698})

_HIDDEN: Final = "***"
_SHORT: Final = 4
"""A shorter piece of a password is also a part of other words."""
_ENDS_OF_PIECES: Final = re.compile(r"[@:/?#\[\]\s]")
"""Letters at which a driver or sqlalchemy splits a password that is not percent-encoded."""

_Result = TypeVar("_Result")


def make_engine(uri: str, *, is_pooled: bool = False) -> Any:
    """Return an engine of our own; a pooled one keeps one connection, and tests it before each use."""
    import sqlalchemy
    from sqlalchemy.pool import NullPool, QueuePool

    url = sqlalchemy.make_url(uri)
    options = _OPTIONS.get(url.get_dialect().driver, {})
    # The URI's options go first.
    given = {name: value for name, value in options.items() if name not in url.query}
    if not is_pooled:
        return sqlalchemy.create_engine(url, poolclass=NullPool, connect_args=given)
    return sqlalchemy.create_engine(
        url, poolclass=QueuePool, pool_size=1, max_overflow=0, pool_pre_ping=True, connect_args=given
    )


def connect_without_prepared_statements() -> None:
    """Have every connection by psycopg 3 in this process made so that it works with a pooler."""
    from sqlalchemy import Engine, event

    def set_options(dialect: Any, _record: Any, _arguments: Any, options: dict[str, Any]) -> None:
        for name, value in _OPTIONS.get(dialect.driver if dialect.name == "postgresql" else "", {}).items():
            options.setdefault(name, value)

    event.listen(Engine, "do_connect", set_options)


def try_connection(engine: Any, uri: str) -> None:
    """Connect once: MLflow's own way waits for minutes, in silence.

    Raises:
        AttemptError: The database is away (RETRY), or refuses this user or this name (CONFIGURATION_ERROR).
    """
    try:
        with engine.connect():
            pass
    except Exception as error:
        cause = getattr(error, "orig", None) or error
        # The last line explains most, except libpq's question below "Connection refused".
        lines = [line.strip() for line in str(cause).splitlines() if line.strip() and "Is the server " not in line]
        words = _without_credentials(lines[-1], engine.url)[:300] if lines else ""
        reason = f"{shown_url(uri)}: {words or type(cause).__name__}"
        if isinstance(cause, TypeError):
            # SQLAlchemy reads the server's version, and psycopg has it as bytes: the encoding is SQL_ASCII.
            raise configuration_error(f"the MLflow database needs the encoding UTF8: {reason}") from error
        if _is_refusal(cause):
            raise configuration_error(f"the MLflow database refuses the connection: {reason}") from error
        raise AttemptError(Outcome(Verdict.RETRY, f"the MLflow database can't be reached: {reason}")) from error


@contextmanager
def schema_lock(engine: Any) -> Iterator[None]:
    """Hold the lock under which tables are made; without it, processes that start together damage them.

    It is an advisory lock of the database: of the transaction in PostgreSQL, so that it works with a pooler; of the
    connection in MySQL and MariaDB.
    """
    import sqlalchemy

    text = sqlalchemy.text
    if engine.dialect.name == "postgresql":
        with engine.connect() as connection, connection.begin():
            connection.execute(text(f"SET LOCAL lock_timeout = '{SECONDS_FOR_SCHEMA}s'"))
            connection.execute(text(f"SELECT pg_advisory_xact_lock({_SCHEMA_LOCK})"))
            yield
    elif engine.dialect.name == "mysql":
        with engine.connect() as connection:
            name = {"name": f"otel-rollout {engine.url.database}"[:64], "seconds": SECONDS_FOR_SCHEMA}
            if connection.execute(text("SELECT GET_LOCK(:name, :seconds)"), name).scalar() != 1:
                raise AttemptError(
                    Outcome(Verdict.RETRY, "another process is making the tables of the MLflow database")
                )
            try:
                yield
            finally:
                with suppress(Exception):
                    connection.execute(text("SELECT RELEASE_LOCK(:name)"), name)
    else:
        yield


def opened(engine: Any, make: Callable[[], _Result]) -> _Result:
    """Make MLflow's store; under the lock unless the database has all of its tables.

    The revision shows that: MySQL and MariaDB show each table as soon as it is made, and MLflow, which finds that some
    are missing, would make them at the same time.
    """
    is_complete = False
    with suppress(Exception):
        is_complete = revision_of(engine) == _latest_revision()
    if is_complete:
        return make()
    with schema_lock(engine):
        return make()


def revision_of(engine: Any) -> str:
    """Return a database's schema revision."""
    import sqlalchemy

    with engine.connect() as connection:
        return str(connection.execute(sqlalchemy.text("SELECT version_num FROM alembic_version")).scalar_one())


def _latest_revision() -> str:
    """Return the schema revision of the installed MLflow."""
    from mlflow.store.db.utils import _get_latest_schema_revision

    return str(_get_latest_schema_revision())


def _without_credentials(words: str, url: Any) -> str:
    """Return a driver's words without the user name and pieces of the password; nothing if one can't be removed."""
    pieces: set[str] = set()
    for secret in (url.password, *(value for name, value in url.query.items() if "pass" in name.lower())):
        pieces.update((str(secret), *_ENDS_OF_PIECES.split(str(secret))) if secret else ())
    for piece in sorted(pieces - {""}, key=len, reverse=True):
        if len(piece) >= _SHORT:
            words = words.replace(piece, _HIDDEN)
        elif _word(piece).search(words):
            return ""
    return _word(url.username).sub(_HIDDEN, words) if url.username else words


def _word(text: str) -> re.Pattern[str]:
    return re.compile(rf"(?<!\w){re.escape(text)}(?!\w)")


def _is_refusal(error: BaseException) -> bool:
    if error.args and error.args[0] in _MYSQL_REFUSALS:
        return True
    text = str(error)
    return any(words in text and (not words.endswith('"') or _DOES_NOT_EXIST in text) for words in _REFUSED)
