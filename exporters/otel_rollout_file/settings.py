"""The settings of the `file` exporter: argument, else environment variable, else default."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final, NamedTuple

from otel_rollout.errors import ConfigurationError
from otel_rollout.settings import read_bytes

__all__ = ["DIR", "DIR_MAX_BYTES", "FILE_MAX_BYTES", "FileSettings", "read_settings"]

DIR: Final = "OTEL_ROLLOUT_DIR"
DIR_MAX_BYTES: Final = "OTEL_ROLLOUT_DIR_MAX_BYTES"
FILE_MAX_BYTES: Final = "OTEL_ROLLOUT_FILE_MAX_BYTES"

DEFAULT_DIR: Final = "rollout-traces"
DEFAULT_FILE_MAX_BYTES: Final = 2**30


class FileSettings(NamedTuple):
    """The values.

    Args:
        folder: The trace folder.
        file_max_bytes: A file that has grown to this is followed by a new one.
        max_bytes: What the folder may take; None for no bound.
    """

    folder: Path
    file_max_bytes: int
    max_bytes: int | None


def read_settings(
    folder: str | os.PathLike[str] | None, file_max_bytes: int | str | None, max_bytes: int | str | None
) -> FileSettings:
    """Return the settings; an argument that is None leaves it to the environment.

    Args:
        folder: The trace folder.
        file_max_bytes: The size of a file; a number or a text such as `512MiB`.
        max_bytes: The bound on the folder; a number or a text such as `50GiB`.

    Raises:
        ConfigurationError: A value can't work; the message says where it came from.
    """
    place = folder if folder is not None else os.environ.get(DIR, "").strip() or DEFAULT_DIR
    return FileSettings(
        # A trainer may change its working folder later.
        Path(place).expanduser().absolute(),
        _size("file_max_bytes", FILE_MAX_BYTES, file_max_bytes) or DEFAULT_FILE_MAX_BYTES,
        _size("max_bytes", DIR_MAX_BYTES, max_bytes),
    )


def _size(name: str, variable: str, value: int | str | None) -> int | None:
    origin = name
    if value is None:
        value, origin = os.environ.get(variable, "").strip(), variable
        if not value:
            return None
    try:
        return read_bytes(value)
    except ValueError as error:
        raise ConfigurationError(f"{origin}={value!r}: this should be {error}") from None
