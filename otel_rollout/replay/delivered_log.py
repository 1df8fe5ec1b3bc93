"""An append-only file of what a backend has confirmed, so that a replay goes on where it was."""

from __future__ import annotations

import contextlib
import errno
import hashlib
import os
import re
from collections.abc import Iterable
from pathlib import Path

from otel_rollout.errors import ConfigurationError
from otel_rollout.files.file_lock import open_to_read, try_lock
from otel_rollout.files.file_modes import make_folder, open_private


class DeliveredLog:
    """The tokens of the trajectories that one destination has, and the exclusive lock on their file.

    Two processes would both send what the other has not noted yet, which some backends show twice.

    Args:
        destination: Its destination; if None, nothing is remembered.
        is_ignored: If earlier deliveries count as none.

    Raises:
        ConfigurationError: Another replay has the lock.
    """

    def __init__(self, folder: Path, backend: str, destination: str | None, *, is_ignored: bool = False) -> None:
        self.trouble = ""
        self._descriptor: int | None = None
        self._delivered: set[bytes] = set()
        self._path: Path | None = None
        if destination is None:
            self.trouble = f"deliveries to {backend} are not remembered: its exporter has no destination"
            return
        digest = hashlib.sha256(f"{backend}\n{destination}".encode()).hexdigest()[:12]
        self._path = folder / ".replay" / f"{re.sub(r'[^A-Za-z0-9_.-]', '_', backend)}-{digest}.txt"
        path = self._path
        try:
            self._descriptor = _open(path, f"# delivered to {backend}, {destination}: one line each\n")
        except OSError as error:
            self._note_trouble(error)
        if self._descriptor is not None and not try_lock(self._descriptor):
            self.close()
            raise ConfigurationError(f"another replay of {folder} to {backend} is running: wait for its end")
        if not is_ignored:
            self._load(path)

    def __contains__(self, token: str) -> bool:
        return _hash(token.encode()) in self._delivered

    def add(self, tokens: Iterable[str]) -> None:
        """Note what is delivered immediately: the process may be killed next."""
        text = "".join(f"{token}\n" for token in tokens)
        if text and self._descriptor is not None:
            try:
                os.write(self._descriptor, text.encode())
            except OSError as error:
                self._note_trouble(error)

    def _note_trouble(self, error: OSError) -> None:
        self.trouble = f"deliveries can't be remembered ({error}): the next replay sends them once more"
        self.close()

    def close(self) -> None:
        """Close the file, and with it the lock."""
        descriptor, self._descriptor = self._descriptor, None
        if descriptor is not None:
            os.close(descriptor)

    def forget(self) -> None:
        """Remove the file, because the folder's traces are removed."""
        self.close()
        if self._path is not None and not self._path.parent.is_symlink():
            self._path.unlink(missing_ok=True)
            with contextlib.suppress(OSError):
                self._path.parent.rmdir()

    def _load(self, path: Path) -> None:
        try:
            with os.fdopen(open_to_read(path), "rb") as lines:
                # A process that was killed may have left a torn last line.
                self._delivered = {_hash(line[:-1]) for line in lines if line.endswith(b"\n")}
        except FileNotFoundError:
            return
        except OSError as error:
            self.trouble = f"what was delivered before can't be read ({error})"


def _open(path: Path, heading: str) -> int:
    make_folder(path.parent, path.parent.parent)
    if path.parent.is_symlink():
        raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), str(path.parent))
    descriptor = open_private(path, os.O_RDWR | os.O_APPEND)
    size = os.fstat(descriptor).st_size
    if size == 0:
        os.write(descriptor, heading.encode())
    elif os.pread(descriptor, 1, size - 1) != b"\n":
        os.write(descriptor, b"\n")
    return descriptor


def _hash(token: bytes) -> bytes:
    # Keeps millions of units in a few dozen bytes each.
    return hashlib.blake2b(token, digest_size=8).digest()
