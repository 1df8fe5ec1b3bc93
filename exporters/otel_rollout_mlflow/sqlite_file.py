"""A new SQLite file for MLflow, made safely by many processes that start simultaneously.

MLflow checks for tables and then makes them without a lock: of eight processes on one new file, seven fail, and now
and then the file stays broken. Here the file is made under another name and an exclusive lock, then linked to its own.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import sqlite3
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

from otel_rollout.errors import ConfigurationError
from otel_rollout.files.file_modes import make_folder, narrow, open_private

_MAGIC: Final = b"SQLite format 3\0"


def check_sqlite_file(path: Path) -> None:
    """Check that a file is a SQLite database; a missing or an empty one can become one.

    Raises:
        ConfigurationError: It is another file, or a folder.
    """
    try:
        with path.open("rb") as file:
            is_database = file.read(len(_MAGIC)) in (_MAGIC, b"")
    except IsADirectoryError:
        is_database = False
    except OSError:
        # It doesn't exist, or the opening of the database reports why it can't be read.
        return
    if not is_database:
        raise ConfigurationError(
            f"{path} is no SQLite database: MLFLOW_TRACKING_URI must name a SQLite database or a new file"
        )


def ensure_sqlite_file(path: Path, initialise: Callable[[Path], None]) -> bool:
    """Create the database file if it doesn't exist; return True if it is complete.

    It is incomplete while a program that doesn't take our lock, the mlflow command for example, is creating it.

    Args:
        path: The file.
        initialise: Creates a database in a file that doesn't exist yet.

    Raises:
        OSError: The folder can't be written to.
    """
    if path.exists() and path.stat().st_size > 0:
        return is_initialised(path)
    make_folder(path.parent)
    with _locked(path.with_name(path.name + ".init.lock")):
        if not path.exists():
            _make_aside(path, initialise)
        elif path.stat().st_size == 0:
            # Created by `touch` or by opening it; it may be open elsewhere, so it isn't replaced.
            initialise(path)
    return is_initialised(path)


def is_initialised(path: Path) -> bool:
    """Return True if a database file has the tables that traces need, written by a finished transaction."""
    try:
        connection = sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True, timeout=20.0)
        with contextlib.closing(connection):
            (count,) = connection.execute(
                "select count(*) from sqlite_master where type = 'table' and name in ('alembic_version', 'spans')"
            ).fetchone()
            return bool(count == 2) and connection.execute("select 1 from alembic_version").fetchone() is not None
    except sqlite3.Error:
        return False


def _make_aside(path: Path, initialise: Callable[[Path], None]) -> None:
    aside = path.with_name(path.name + ".init.tmp")
    try:
        # Elsewhere: a process that is killed in these seconds leaves its file, and SQLite is slow on a network's disk.
        with tempfile.TemporaryDirectory(prefix="otel-rollout-") as folder:
            made = Path(folder) / path.name
            initialise(made)
            shutil.copyfile(made, aside)
        narrow(aside)
        try:
            os.link(aside, path)
        except FileExistsError:
            # Another program created it meanwhile.
            pass
        except OSError:
            # A file system without hard links.
            aside.rename(path)
    finally:
        aside.unlink(missing_ok=True)


@contextlib.contextmanager
def _locked(path: Path) -> Iterator[None]:
    """Hold an exclusive lock, which the kernel releases when the process dies."""
    try:
        import fcntl
    except ImportError:
        yield
        return
    with os.fdopen(open_private(path, os.O_RDWR), "wb") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield
