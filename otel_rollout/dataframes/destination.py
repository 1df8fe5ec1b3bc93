"""The place that Parquet files are written to: a folder, or a store that fsspec supports, such as `s3://bucket/path`."""

from __future__ import annotations

import os
import secrets
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Any

from otel_rollout.errors import ConfigurationError, MissingExtraError
from otel_rollout.files.file_lock import exclusive_folder_lock
from otel_rollout.files.file_modes import make_folder, open_private
from otel_rollout.installing import install_line


@contextmanager
def replaced(place: Path, temporary: Path, within: Path | None = None) -> Iterator[IO[bytes]]:
    """Give a file to write to, which takes its name at the end of the block; an error leaves what was there.

    Args:
        place: Its name.
        temporary: Its name until then, on the same disk.
        within: The folder whose modes its folders take.

    Raises:
        OSError: It can't be written, or the disk is full.
    """
    try:
        with os.fdopen(open_private(temporary, os.O_RDWR), "wb") as file:
            yield file
            file.flush()
            # Or the name may outlive its bytes when the power fails.
            os.fsync(file.fileno())
        make_folder(place.parent, within)
        temporary.replace(place)
    finally:
        with suppress(OSError):
            temporary.unlink(missing_ok=True)


class Folder:
    """A folder of this host.

    Args:
        path: The folder, which is created if it is missing.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        # On the disk of the tables, so that renaming is atomic; in none of them: polars refuses other files there.
        self._temporary = path / "_temporary"

    def __str__(self) -> str:
        return str(self._path)

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Keep other exports out, and remove what a killed one left.

        Raises:
            ConfigurationError: Another export writes here.
            OSError: The folder can't be written to.
        """
        make_folder(self._path)
        with exclusive_folder_lock(self._path) as is_ours:
            if not is_ours:
                raise ConfigurationError(f"another export writes to {self._path} now: wait for its end")
            shutil.rmtree(self._temporary, ignore_errors=True)
            make_folder(self._temporary, self._path)
            try:
                yield
            finally:
                shutil.rmtree(self._temporary, ignore_errors=True)

    def names(self) -> set[str]:
        """Return the names of the Parquet files that are there."""
        return {path.relative_to(self._path).as_posix() for path in self._path.rglob("*.parquet")}

    def open(self, name: str) -> IO[bytes] | None:
        """Open a file to read; None if it isn't there."""
        try:
            return (self._path / name).open("rb")
        except FileNotFoundError:
            return None

    @contextmanager
    def new_file(self, name: str) -> Iterator[IO[bytes]]:
        """Give a file to write to, which takes its name at the end of the block; an error leaves what was there.

        Raises:
            OSError: It can't be written, or the disk is full.
        """
        with replaced(self._path / name, self._temporary / secrets.token_hex(8), self._path) as file:
            yield file


class Store:
    """A store that fsspec supports; each file comes with one request, or is completed by the last of several.

    Args:
        url: Its address.

    Raises:
        ConfigurationError: There is no store of this kind.
        MissingExtraError: Its package isn't installed.
    """

    def __init__(self, url: str) -> None:
        try:
            import fsspec

            self._files: Any
            self._files, self._path = fsspec.core.url_to_fs(url)
        except ImportError as error:
            line = f": {install_line('s3')}" if url.startswith(("s3://", "s3a://")) else ""
            raise MissingExtraError(f"{url} needs another package ({error}){line}") from error
        except ValueError as error:
            raise ConfigurationError(f"{url}: {error}") from error
        self._url = url

    def __str__(self) -> str:
        return self._url

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Do nothing: stores have no locks, and two exports of one folder write the same files."""
        yield

    def names(self) -> set[str]:
        """Return the names of the files that are there."""
        self._files.invalidate_cache()
        above = len(self._path.rstrip("/")) + 1
        return {place[above:] for place in self._files.find(self._path)}

    def open(self, name: str) -> IO[bytes] | None:
        """Open a file to read; None if it isn't there."""
        try:
            # Exports of before are not listed: the listing may be a cached one.
            found: IO[bytes] = self._files.open(f"{self._path}/{name}", "rb", block_size=2**20)
        except FileNotFoundError:
            return None
        return found

    @contextmanager
    def new_file(self, name: str) -> Iterator[IO[bytes]]:
        """Give a file to write to, which is sent at the end of the block; an error leaves what was there.

        Raises:
            OSError: It can't be written here or there.
        """
        # A file of fsspec would be sent as far as it is when an error ends the block.
        with tempfile.NamedTemporaryFile(prefix="otel-rollout-export-") as file:
            yield file.file
            file.flush()
            self._files.put_file(file.name, f"{self._path}/{name}")


def destination_of(text: str) -> Folder | Store:
    """Return the place that a path or an address names.

    Raises:
        ConfigurationError: It names none.
    """
    kind, is_url, rest = text.partition("://")
    if not text or text == "s3:" or (is_url and not rest):
        raise ConfigurationError(f"{text!r} names no place: write a folder, or an address such as s3://bucket/path")
    if is_url and kind not in ("file", "local"):
        return Store(text.rstrip("/"))
    return Folder(Path(rest if is_url else text).expanduser())
