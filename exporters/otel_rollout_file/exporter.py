"""The `file` exporter: a trace folder that any OTLP tool reads."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

from opentelemetry.sdk.trace import ReadableSpan

from otel_rollout.delivery.outcome import DELIVERED, Outcome, Verdict
from otel_rollout.errors import ConfigurationError, MissingExtraError
from otel_rollout.exporter import OutcomeSpanExporter
from otel_rollout.trace_folder.folder_writer import FolderWriter
from otel_rollout.trace_folder.frames import require_zstandard
from otel_rollout_file.disk_error import outcome_of_error
from otel_rollout_file.settings import FileSettings, read_settings

__all__ = ["FileSpanExporter"]


class FileSpanExporter(OutcomeSpanExporter):
    """Writes trajectories into a folder; any number of processes write into the same one.

    Args:
        folder: The trace folder; `OTEL_ROLLOUT_DIR` where None, else `rollout-traces` in the working folder.
        file_max_bytes: A file that has grown to this is followed by a new one; `OTEL_ROLLOUT_FILE_MAX_BYTES` where
            None, else 1 GiB.
        max_bytes: What the folder may take, beyond which the oldest files are removed; `OTEL_ROLLOUT_DIR_MAX_BYTES`
            where None, else there is no bound.

    Raises:
        ConfigurationError: A setting has a value that can't work.
    """

    def __init__(
        self,
        *,
        folder: str | os.PathLike[str] | None = None,
        file_max_bytes: int | str | None = None,
        max_bytes: int | str | None = None,
    ) -> None:
        self.settings: FileSettings = read_settings(folder, file_max_bytes, max_bytes)
        self._writer = FolderWriter(
            self.settings.folder, file_max_bytes=self.settings.file_max_bytes, max_bytes=self.settings.max_bytes
        )
        self._is_shut_down = False

    def check(self) -> None:
        """Say before the first span what can't work.

        Raises:
            MissingExtraError: zstandard isn't installed.
            ConfigurationError: Something that is no folder stands in the folder's place.
        """
        require_zstandard()
        folder = self.settings.folder
        if folder.exists() and not folder.is_dir():
            raise ConfigurationError(f"OTEL_ROLLOUT_DIR={folder}: this should be a folder, and is a file")

    def send(self, spans: Sequence[ReadableSpan]) -> Outcome:
        """Write `spans`; delivered means that the death of this process takes nothing of them away."""
        if self._is_shut_down:
            return Outcome(Verdict.DENIED, "the exporter is shut down")
        try:
            self._writer.write(spans)
        except OSError as error:
            return outcome_of_error(error, self.settings.folder)
        except MissingExtraError as error:
            return Outcome(Verdict.DENIED, str(error))
        except (RecursionError, TypeError, ValueError) as error:
            return Outcome(Verdict.REFUSED, f"a span can't be written as JSON: {_line(error)}")
        return DELIVERED

    def shutdown(self) -> None:
        """Write what has no root yet, and let go of the files; a second time is harmless."""
        self._is_shut_down = True
        self._writer.close()

    def after_fork(self) -> None:
        """Start anew in a forked child: what the parent has open is the parent's."""
        self._writer.after_fork()


def _line(error: Any) -> str:
    return " ".join(str(error).split())
