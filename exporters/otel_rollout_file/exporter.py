"""The `file` exporter: a trace folder that any OTLP tool reads."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any, ClassVar

from opentelemetry.sdk.trace import ReadableSpan

from otel_rollout import semconv
from otel_rollout.delivery.outcome import DELIVERED, Outcome, Verdict
from otel_rollout.errors import ConfigurationError, MissingExtraError
from otel_rollout.exporter import OutcomeSpanExporter, ReadBack
from otel_rollout.trace_folder.folder_writer import FolderWriter
from otel_rollout.trace_folder.frames import require_zstandard
from otel_rollout.trace_folder.reader import read
from otel_rollout_file.disk_error import outcome_of_error
from otel_rollout_file.settings import DIR, DIR_MAX_BYTES, FILE_MAX_BYTES, FileSettings, read_settings

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

    variables: ClassVar[Mapping[str, str]] = {
        DIR: "the trace folder; default: rollout-traces in the working folder",
        FILE_MAX_BYTES: "a file that has grown to this is followed by a new one; default: 1GiB",
        DIR_MAX_BYTES: "what the folder may take, beyond which the oldest files are removed; unset: no bound",
    }

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

    @property
    def destination(self) -> str:
        """The folder."""
        return str(self.settings.folder.resolve())

    def check(self) -> None:
        """Say before the first span what can't work.

        Raises:
            MissingExtraError: zstandard isn't installed.
            ConfigurationError: Something that is no folder stands in the folder's place.
        """
        require_zstandard()
        folder, is_file = self.settings.folder, False
        with suppress(OSError):
            is_file = folder.exists() and not folder.is_dir()
        if is_file:
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
        except (OverflowError, RecursionError, TypeError, ValueError) as error:
            return Outcome(Verdict.REFUSED, f"a span can't be written as JSON: {_line(error)}")
        return DELIVERED

    def read_back(self, spans: Sequence[ReadableSpan]) -> ReadBack:
        """Read which of `spans`, all of one trace, are in the folder."""
        context = spans[0].get_span_context()
        attributes = spans[0].attributes or {}
        step = attributes.get(semconv.STEP)
        trace_id = f"{context.trace_id:032x}" if context is not None else ""
        recorded = read(self.settings.folder, step=step if type(step) is int else None)
        found = next((each for each in recorded if each.trace_id == trace_id), None)
        stored = {span.context.span_id for span in found.spans if span.context} if found is not None else set()
        count = sum(span.context is not None and span.context.span_id in stored for span in spans)
        return ReadBack(count, f"the trace folder {self.settings.folder}")

    def where_to_look(self, project_name: str, experiment_name: str) -> list[str]:
        """Return the commands that list, show and replay trajectories."""
        folder = self.settings.folder
        return [
            f"The trajectories are in the folder {folder}. List them, look at one, or send them to a backend with",
            "",
            f"    otel-rollout ls {folder} --step 1",
            # A validation pass of the same step has the same prompts, and an earlier experiment has the same steps.
            f"    otel-rollout show {folder} --experiment {experiment_name} --step 1 --train --sample 0 --rollout 0",
            f"    otel-rollout replay {folder} --backend mlflow",
        ]

    def shutdown(self) -> None:
        """Write what has no root yet, and let go of the files; a second time is harmless."""
        self._is_shut_down = True
        self._writer.close()

    def after_fork(self) -> None:
        """Start anew in a forked child: what the parent has open is the parent's."""
        self._writer.after_fork()


def _line(error: Any) -> str:
    return " ".join(str(error).split())
