"""The file of a catalog: its place, its modes, and making it anew when there is a doubt about it.

All of it follows from the files of trace folders: it may be deleted whenever nobody needs it.
"""

from __future__ import annotations

import os
import re
import shutil
import sqlite3
import time
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

_CATALOG: Final = re.compile(r"[0-9a-f]{16}")
_LEFT: Final = re.compile(r"[0-9a-f]{16}\.[0-9a-f]{8}")
_SECONDS_UNTIL_LEFT: Final = 3600.0
"""A catalog that is being made, or removed, has its temporary name for less than this."""
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
        self._is_busy = False
        self._opened: list[sqlite3.Connection] = []
        weakref.finalize(self, _close, self._opened)

    def ask(self, question: Callable[[sqlite3.Connection], Answer]) -> Answer:
        """Ask the database; if that fails, a new one.

        Args:
            question: Called with the connection, which is in no transaction.

        Raises:
            sqlite3.Error: It fails in memory, too (TypeError, ValueError: the same for other reasons).
        """
        with self._lock:
            failure: Exception | None = None
            while True:
                if self._connection is None:
                    self._connection = next(self._connections, None)
                    if self._connection is None:
                        raise failure or sqlite3.DatabaseError("there is no place for a catalog")
                    self._opened.append(self._connection)
                try:
                    return question(self._connection)
                except RolloutTraceError:
                    raise
                except (sqlite3.DatabaseError, TypeError, ValueError) as error:
                    # Damage, or a fault of ours: that shows in memory, too.
                    failure = error
                    self._is_busy = "locked" in str(error)
                    with suppress(sqlite3.Error):
                        self._connection.close()
                    self._connection = None
                except BaseException:
                    if self._connection.in_transaction:
                        self._connection.rollback()
                    raise

    def _open(self) -> Iterator[sqlite3.Connection]:
        """Yield connections: to the file in the cache, to a new one there, to one that SQLite keeps for itself."""
        place = (
            catalogs_folder()
            / blake2b(orjson.dumps(list(map(replace_surrogates, self._folders))), digest_size=8).hexdigest()
        )
        for _ in range(2):
            try:
                if not place.exists():
                    self._make(place)
                yield _opened(place / NAME)
            except (OSError, sqlite3.Error) as error:
                self._is_busy = "locked" in str(error)
            if not self._is_busy:
                _remove(place)
        # Without a name it is in memory, and what is too much for that in a temporary file.
        connection = sqlite3.connect("", check_same_thread=False, isolation_level=None)
        create(connection)
        attach(connection)
        yield connection

    def _make(self, place: Path) -> None:
        """Make an empty catalog under another name, and put it in its place unless another reader was faster.

        Raises:
            OSError: The folder can't be written to (sqlite3.Error: the same for other reasons).
        """
        make_folder(place.parent)
        _remove_left(place.parent)
        new = place.with_name(f"{place.name}.{os.urandom(4).hex()}")
        new.mkdir(0o700)
        try:
            with os.fdopen(open_private(new / FOLDERS, os.O_WRONLY), "wb") as file:
                file.write(orjson.dumps(list(map(replace_surrogates, self._folders))))
            _created(new / NAME).close()
            with suppress(FileExistsError):
                new.rename(place)
        except OSError as error:
            # Linux calls a folder that is there already not empty.
            if not place.is_dir():
                raise error
        finally:
            shutil.rmtree(new, ignore_errors=True)


def _close(connections: Sequence[sqlite3.Connection]) -> None:
    for each in connections:
        with suppress(sqlite3.Error):
            each.close()


def catalogs_folder() -> Path:
    """Return the folder of all catalogs of this user."""
    cache = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    return Path(cache).expanduser() / "otel-rollout" / "catalogs"


def is_local(path: Path) -> bool:
    """Return True if a path is known to be on a file system that no other host has."""
    try:
        mounts = [line.split(" ")[1:3] for line in MOUNTS.read_text("utf-8", "surrogateescape").splitlines()]
    except OSError:
        return False
    real = os.path.realpath(path)
    best, kind = "", ""
    for mount, found in mounts:
        point = mount.encode("utf-8", "surrogateescape").decode("unicode_escape")
        if len(point) >= len(best) and f"{real}/".startswith(point.rstrip("/") + "/"):
            best, kind = point, found
    return kind in LOCAL


def _opened(path: Path) -> sqlite3.Connection:
    """Return a connection to a catalog.

    Raises:
        sqlite3.Error: It is none, or one of another version.
    """
    if path.is_symlink() or path.parent.is_symlink():
        raise sqlite3.DatabaseError("a link")
    connection = sqlite3.connect(
        f"{path.as_uri()}?mode=rw", uri=True, timeout=SECONDS_TO_WAIT, check_same_thread=False, isolation_level=None
    )
    try:
        found = connection.execute("SELECT version FROM about").fetchall()
        if found != [(VERSION,)]:
            raise sqlite3.DatabaseError("another version")
        connection.execute(f"PRAGMA cache_size = -{_CACHE_KIB}")
        # Losing the last transactions with the power is no harm: they are read again.
        connection.execute("PRAGMA synchronous = NORMAL")
        attach(connection)
    except BaseException:
        connection.close()
        raise
    return connection


def _created(path: Path) -> sqlite3.Connection:
    """Make a catalog's file, and return a connection to it."""
    os.close(open_private(path, os.O_RDWR))
    connection = sqlite3.connect(path)
    try:
        # Each table would wait for the disk.
        connection.execute("PRAGMA synchronous = OFF")
        connection.execute(f"PRAGMA journal_mode = {'WAL' if is_local(path) else 'DELETE'}")
        create(connection)
        connection.commit()
    finally:
        connection.close()
    return _opened(path)


def _remove(place: Path) -> None:
    """Remove a catalog; who has it open goes on reading it."""
    aside = place.with_name(f"{place.name}.{os.urandom(4).hex()}")
    try:
        place.rename(aside)
    except OSError:
        return
    if aside.is_symlink() or not aside.is_dir():
        with suppress(OSError):
            aside.unlink()
    else:
        shutil.rmtree(aside, ignore_errors=True)


def _remove_left(catalogs: Path) -> None:
    """Remove the catalogs of trace folders that are gone, and what a reader left that was killed."""
    for place in catalogs.iterdir():
        with suppress(OSError, ValueError, TypeError):
            if _LEFT.fullmatch(place.name):
                if time.time() - place.lstat().st_mtime > _SECONDS_UNTIL_LEFT:
                    shutil.rmtree(place, ignore_errors=True)
            elif _CATALOG.fullmatch(place.name):
                folders = orjson.loads((place / FOLDERS).read_bytes())
                if not any(map(os.path.lexists, folders)):
                    _remove(place)
