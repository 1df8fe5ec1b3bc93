"""The place that Parquet files are written to: a folder, or a store that fsspec supports, such as `s3://bucket/path`."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Any

from pyarrow.fs import FileSelector, FSSpecHandler, LocalFileSystem, PyFileSystem, SubTreeFileSystem

from otel_rollout.errors import ConfigurationError, MissingExtraError
from otel_rollout.files.file_lock import exclusive_folder_lock
from otel_rollout.files.file_modes import make_folder, open_private
from otel_rollout.installing import install_line
from otel_rollout.text.sanitize import replace_surrogates


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
        # Another one may be there, of a process that was killed.
        with os.fdopen(open_private(temporary, os.O_RDWR | os.O_TRUNC), "wb") as file:
            yield file
            file.flush()
            # Or the name may outlive its bytes when the power fails.
            os.fsync(file.fileno())
        make_folder(place.parent, within)
        temporary.replace(place)
    finally:
        with suppress(OSError):
            temporary.unlink(missing_ok=True)


class Destination:
    """A folder of this host, which is created if it is missing, or a store; no file of it is ever half a file.

    Args:
        text: A path or an address.

    Raises:
        ConfigurationError: It names no place, or there is no store of this kind.
        MissingExtraError: The package of the store isn't installed.
    """

    def __init__(self, text: str) -> None:
        kind, is_url, rest = text.partition("://")
        # Arrow takes only names in UTF-8.
        if not text or text == "s3:" or (is_url and not rest) or replace_surrogates(text) != text:
            raise ConfigurationError(f"{text!r} names no place: write a folder, or an address such as s3://bucket/path")
        self._folder: Path | None = None
        if is_url and kind not in ("file", "local"):
            try:
                from fsspec.core import url_to_fs

                self._store, self._path = url_to_fs(text.rstrip("/"))
            except ImportError as error:
                line = f": {install_line('s3')}" if kind in ("s3", "s3a") else ""
                raise MissingExtraError(f"{text} needs another package ({error}){line}") from error
            except ValueError as error:
                raise ConfigurationError(f"{text}: {error}") from error
            files: Any = PyFileSystem(FSSpecHandler(self._store))
        else:
            self._folder = Path(rest if is_url else text).expanduser()
            self._path, files = str(self._folder), LocalFileSystem()
        self.files = SubTreeFileSystem(self._path, files)

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Keep other exports out of a folder.

        Stores have no locks, and two exports of one trace folder write the same files.

        Raises:
            ConfigurationError: Another export writes here.
            OSError: The folder can't be written to.
        """
        if self._folder is None:
            yield
            return
        make_folder(self._folder)
        with exclusive_folder_lock(self._folder) as is_ours:
            if not is_ours:
                raise ConfigurationError(f"another export writes to {self._folder} now: wait for its end")
            yield

    def names(self) -> set[str]:
        """Return the names of the files that are there."""
        found = self.files.get_file_info(FileSelector("", allow_not_found=True, recursive=True))
        return {each.path for each in found if each.is_file}

    @contextmanager
    def new_file(self, name: str) -> Iterator[IO[bytes]]:
        """Give a file to write to, which is there at the end of the block; an error leaves what was there.

        Raises:
            OSError: It can't be written here or there, or the disk is full.
        """
        if self._folder is not None:
            # On the disk of the tables, so that renaming is atomic; in none of them: polars refuses other files there.
            temporary = self._folder / f"_unfinished-{name.partition('/')[0]}"
            with replaced(self._folder / name, temporary, self._folder) as file:
                yield file
            return
        # A file of fsspec would be sent as far as it is when an error ends the block.
        with tempfile.NamedTemporaryFile(prefix="otel-rollout-export-") as unsent:
            yield unsent.file
            unsent.file.flush()
            self._store.put_file(unsent.name, f"{self._path}/{name}")
