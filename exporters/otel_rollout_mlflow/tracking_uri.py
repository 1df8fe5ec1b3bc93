"""Tracking URIs: a server, or a database and its driver."""

from __future__ import annotations

import importlib.util
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal
from urllib.parse import parse_qsl

from otel_rollout.errors import ConfigurationError, MissingExtraError
from otel_rollout.export.http import shown_url, without_userinfo
from otel_rollout.installing import install_line
from otel_rollout.settings import Setting, read_text

DEFAULT_URI: Final = "sqlite:///mlruns.db"
TRACKING_URI: Final = Setting(
    "MLFLOW_TRACKING_URI", read_text, DEFAULT_URI, "the server or the database, in the working folder", "tracking_uri"
)

_DIALECTS: Final = ("mssql", "mysql", "postgresql", "sqlite")
_HELP: Final = (
    f"set {TRACKING_URI} (or tracking_uri=) to {DEFAULT_URI}, to another SQL URI, or to a server: http://host:5000"
)

_OTHER_NAMES: Final = {"mariadb": "mysql+pymysql", "postgres": "postgresql"}
"""Names that other programs take for these databases."""

_PACKAGES: Final = {
    "MySQLdb": "mysqlclient",
    "psycopg2": "psycopg2-binary",
}
"""Packages whose names differ from their modules' names."""

_EXTRAS: Final = {"psycopg": "postgresql", "pymysql": "mysql"}

_INSTEAD: Final = {
    "psycopg": [("psycopg2", "postgresql+psycopg2")],
    "mysqldb": [("pymysql", "mysql+pymysql")],
}
"""Drivers that may replace sqlalchemy's default, and the name that a URI has for each."""


_USERINFO: Final = re.compile(r"(?:[^:/]*(?::[^@]*)?@)?")
"""The user name and the password as sqlalchemy reads them: its password ends at the first `@`."""


@dataclass(frozen=True)
class TrackingUri:
    """A parsed tracking URI; the path of a SQLite file is absolute."""

    kind: Literal["http", "sql"]
    uri: str
    sqlite_path: Path | None = None


def parse_tracking_uri(uri: str | None) -> TrackingUri:
    """Parse a tracking URI.

    Args:
        uri: The URI; if None, `MLFLOW_TRACKING_URI`, else a SQLite file in the working folder.

    Raises:
        ConfigurationError: It is a folder, a database in memory, a Databricks workspace, or unknown to MLflow; or it
            has a special letter that is not percent-encoded.
    """
    text = TRACKING_URI.value(uri or None)
    scheme, separator, rest = text.partition("://")
    dialect = scheme.partition("+")[0].lower()
    if separator and dialect in ("http", "https"):
        return TrackingUri("http", text.rstrip("/"))
    if separator and dialect in _DIALECTS:
        return _sqlite(scheme, rest, text) if dialect == "sqlite" else _server_database(scheme, rest, text)
    if dialect.startswith("databricks"):
        raise ConfigurationError(f"{TRACKING_URI}={shown_url(text)!r}: Databricks is not supported; {_HELP}")
    if separator and dialect in _OTHER_NAMES:
        raise ConfigurationError(
            f"{TRACKING_URI}={shown_url(text)!r}: sqlalchemy has no {scheme!r}: write {_OTHER_NAMES[dialect]}://"
        )
    if separator and dialect != "file":
        raise ConfigurationError(f"{TRACKING_URI}={shown_url(text)!r}: MLflow has no store for {scheme!r}; {_HELP}")
    raise ConfigurationError(
        f"{TRACKING_URI}={shown_url(text)!r} is a folder, and MLflow keeps no traces in folders; {_HELP}"
    )


def _server_database(scheme: str, rest: str, text: str) -> TrackingUri:
    after = _USERINFO.sub("", rest, count=1)
    place, _, query = after.partition("?")
    # Then a piece of the password is the host or the database for sqlalchemy, or shows in a message of ours.
    if "@" in place + query.partition("=")[0] or without_userinfo(text) != f"{scheme}://{after}":
        raise ConfigurationError(
            f"{TRACKING_URI} has a special letter that is not percent-encoded, most likely in the password: write @ as "
            "%40, : as %3A, / as %2F, ? as %3F, # as %23"
        )
    return TrackingUri("sql", text)


def _sqlite(scheme: str, rest: str, text: str) -> TrackingUri:
    database, mark, query = rest.removeprefix("/").partition("?")
    if database.removeprefix("file:") in ("", ":memory:") or (
        database.startswith("file:") and {("mode", "memory"), ("vfs", "memdb")} & set(parse_qsl(query))
    ):
        raise ConfigurationError(
            f"{TRACKING_URI}={shown_url(text)!r} is a database in memory, which ends with its process; {_HELP}"
        )
    if database.startswith("file:"):
        return TrackingUri("sql", text)
    # The working folder may have changed when the exporter's thread opens the file.
    path = Path(database).absolute()
    return TrackingUri("sql", f"{scheme}:///{path}{mark}{query}", path)


def check_driver(uri: str) -> None:
    """Import the driver that sqlalchemy would use for a database.

    Args:
        uri: The database; its password must not be in any message.

    Raises:
        ConfigurationError: sqlalchemy can't read the URI, or has no such dialect.
        MissingExtraError: The driver isn't installed.
    """
    from sqlalchemy import make_url
    from sqlalchemy.exc import ArgumentError, NoSuchModuleError

    where = f"{TRACKING_URI}={shown_url(uri)!r}"
    try:
        dialect = make_url(uri).get_dialect()
    except NoSuchModuleError as error:
        raise ConfigurationError(f"{where}: sqlalchemy knows no such database ({error})") from error
    except (ArgumentError, ValueError) as error:
        # Without its text, which shows a part of a password with a special letter as the port.
        raise ConfigurationError(
            f"{where}: sqlalchemy can't read it ({type(error).__name__}); it should be "
            "dialect+driver://user:password@host:port/database, with special letters of the password percent-encoded"
        ) from None
    try:
        dialect.import_dbapi()
    except ImportError as error:
        package = _PACKAGES.get(dialect.driver) or _PACKAGES.get(error.name or "") or error.name or dialect.driver
        extra = _EXTRAS.get(dialect.driver)
        install = f"pip install {package}" if extra is None else install_line(extra)
        others = [
            f", or write {scheme}:// for {module}, which is installed"
            for module, scheme in _INSTEAD.get(dialect.driver, ())
            if importlib.util.find_spec(module) is not None
        ]
        raise MissingExtraError(
            f"{where} needs the driver {dialect.driver} ({error}): {install}{''.join(others)}"
        ) from error
