"""The file of a catalog: its place, its modes, and making it anew when there is a doubt about it.

All of it follows from the files of trace folders: it may be deleted whenever nobody needs it.
"""

from __future__ import annotations

import os
import re
import shutil
import sqlite3
import weakref
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from hashlib import blake2b
from pathlib import Path
from threading import RLock
from typing import Final, TypeVar

import orjson

from otel_rollout.catalog.tables import VERSION, attach, create
from otel_rollout.errors import RolloutTraceError
from otel_rollout.files.file_modes import make_folder, open_private
from otel_rollout.text.sanitize import replace_surrogates

Answer = TypeVar("Answer")

NAME: Final = "catalog.sqlite3"
FOLDERS: Final = "folders.json"
"""The trace folders that a catalog is of."""
SECONDS_TO_WAIT: Final = 60.0
"""Another reader holds the lock for a second or two; one that was stopped meanwhile holds it forever."""
LOCAL: Final = frozenset(
    {"apfs", "bcachefs", "btrfs", "ext2", "ext3", "ext4", "f2fs", "overlay", "ramfs", "tmpfs", "xfs", "zfs"}
)
"""File systems of one host. A write-ahead log needs memory that all readers share, which network file systems lack."""
MOUNTS: Path = Path("/proc/mounts")

_CATALOG: Final = re.compile(r"[0-9a-f]{16}(\.[0-9a-f]{8})?")
"""A folder of a catalog; with the second part, of one that a reader was removing when it was killed."""
_CACHE_KIB: Final = 64 * 1024


class Database:
    """The database of a set of trace folders, for all threads of a process; opened on first use.

    Args:
        folders: The trace folders.
    """

    def __init__(self, folders: Sequence[Path]) -> None:
        self._folders = [os.path.realpath(folder) for folder in folders]
        self._connections = self._open()
        self._connection: sqlite3.Connection | None = None
        self._lock = RLock()
        self._failure: Exception = sqlite3.DatabaseError("there is no place for a catalog")

    def ask(self, question: Callable[[sqlite3.Connection], Answer]) -> Answer:
        """Ask the database; if that fails, a new one.

        Args:
            question: Called with the connection, which is in no transaction.

        Raises:
            sqlite3.Error: It fails in memory, too (TypeError, ValueError: the same for other reasons).
        """
        with self._lock:
            while True:
                if self._connection is None:
                    self._connection = next(self._connections, None)
                    if self._connection is None:
                        raise self._failure
                    weakref.finalize(self, self._connection.close)
                try:
                    return question(self._connection)
                except RolloutTraceError:
                    raise
                except (sqlite3.DatabaseError, TypeError, ValueError) as error:
                    # Damage, or a fault of ours: that shows in memory, too.
                    self._failure = error
                    with suppress(sqlite3.Error):
                        self._connection.close()
                    self._connection = None
                except BaseException:
                    if self._connection.in_transaction:
                        self._connection.rollback()
                    raise

    def _open(self) -> Iterator[sqlite3.Connection]:
        """Yield connections: to the file in the cache, to a new one there, to one that SQLite keeps for itself."""
        folders = orjson.dumps(list(map(replace_surrogates, self._folders)))
        place = catalogs_folder() / blake2b(folders, digest_size=8).hexdigest()
        for _ in range(2):
            try:
                if not place.exists():
                    _remove_left(place.parent)
                make_folder(place)
                yield _opened(place / NAME, folders)
            except (OSError, sqlite3.Error) as error:
                self._failure = error
            if "locked" in str(self._failure):
                break
            _remove(place)
        # Without a name it is in memory, and what is too much for that in a temporary file.
        connection = sqlite3.connect("", check_same_thread=False, isolation_level=None)
        create(connection)
        attach(connection)
        yield connection


def catalogs_folder() -> Path:
    """Return the folder of all catalogs of this user."""
    cache = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    return Path(cache).expanduser() / "otel-rollout" / "catalogs"


def is_local(path: Path) -> bool:
    """Return True if a path is known to be on a file system that no other host has."""
    try:
        mounts = [line.split(b" ")[1:3] for line in MOUNTS.read_bytes().splitlines()]
    except OSError:
        return False
    # A space is escaped there.
    kinds = {mount.decode("unicode_escape"): kind.decode() for mount, kind in mounts}
    real = path.resolve()
    return next((kinds[str(each)] for each in (real, *real.parents) if str(each) in kinds), None) in LOCAL


def _opened(path: Path, folders: bytes) -> sqlite3.Connection:
    """Return a connection to a catalog, which is made if there is none.

    Raises:
        OSError: It can't be made.
        sqlite3.Error: It is another file, or a catalog of another version.
    """
    if not path.exists():
        with os.fdopen(open_private(path.with_name(FOLDERS), os.O_WRONLY | os.O_TRUNC), "wb") as file:
            file.write(folders)
        os.close(open_private(path, os.O_RDWR))
    connection = sqlite3.connect(
        f"{path.as_uri()}?mode=rw", uri=True, timeout=SECONDS_TO_WAIT, check_same_thread=False, isolation_level=None
    )
    try:
        # Losing the last transactions with the power is no harm: they are read again.
        connection.execute("PRAGMA synchronous = NORMAL")
        if connection.execute("SELECT 1 FROM sqlite_master").fetchone() is None:
            create(connection)
            connection.execute(f"PRAGMA journal_mode = {'WAL' if is_local(path) else 'DELETE'}")
        if connection.execute("SELECT version FROM about").fetchall() != [(VERSION,)]:
            raise sqlite3.DatabaseError("another version")
        connection.execute(f"PRAGMA cache_size = -{_CACHE_KIB}")
        attach(connection)
    except BaseException:
        connection.close()
        raise
    return connection


def _remove(place: Path) -> None:
    """Remove a catalog; who has it open goes on reading it."""
    aside = place.with_name(f"{place.name}.{os.urandom(4).hex()}")
    try:
        place.rename(aside)
    except OSError:
        return
    shutil.rmtree(aside, ignore_errors=True)


def _remove_left(catalogs: Path) -> None:
    """Remove the catalogs of trace folders that are gone, and what a reader left that was killed."""
    for place in catalogs.glob("*"):
        with suppress(OSError, ValueError, TypeError):
            if found := _CATALOG.fullmatch(place.name):
                if found[1]:
                    shutil.rmtree(place)
                elif not any(map(os.path.lexists, orjson.loads((place / FOLDERS).read_bytes()))):
                    _remove(place)
