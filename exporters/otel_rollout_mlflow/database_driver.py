"""The driver that sqlalchemy needs for a database, checked without a connection."""

from __future__ import annotations

from typing import Final

from otel_rollout.errors import ConfigurationError, MissingExtraError
from otel_rollout.export.http import shown_url

__all__ = ["check_driver"]

_PACKAGES: Final = {
    "MySQLdb": "mysqlclient",
    "psycopg": "'psycopg[binary]'",
    "psycopg2": "psycopg2-binary",
}
"""Packages whose names differ from those of their modules."""


def check_driver(uri: str) -> None:
    """Import the driver that sqlalchemy would use for a database.

    Args:
        uri: The database; its password must not be in any message.

    Raises:
        ConfigurationError: sqlalchemy can't read the URI, or knows no such dialect.
        MissingExtraError: The driver isn't installed.
    """
    from sqlalchemy import make_url
    from sqlalchemy.exc import ArgumentError, NoSuchModuleError

    where = f"MLFLOW_TRACKING_URI={shown_url(uri)!r}"
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
        raise MissingExtraError(
            f"{where} needs the driver {dialect.driver} ({error}): pip install {package}"
        ) from error
