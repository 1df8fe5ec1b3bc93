"""The `file` exporter: a trace folder that any OTLP tool reads."""

from __future__ import annotations

import errno
import os
import secrets
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Final, NamedTuple

from opentelemetry.sdk.trace import ReadableSpan

from otel_rollout import semconv
from otel_rollout.counts import ExporterStats, Loss
from otel_rollout.errors import ConfigurationError, MissingExtraError
from otel_rollout.export.exporter import OutcomeSpanExporter, ReadBack
from otel_rollout.export.outcome import DELIVERED, Outcome, Verdict
from otel_rollout.facts.span_facts import span_id_of, trace_id_of
from otel_rollout.folder.append_file import FileGoneError
from otel_rollout.folder.folder_writer import FolderWriter
from otel_rollout.folder.frames import require_zstandard
from otel_rollout.folder.losses import append_losses
from otel_rollout.folder.op_durations import OpDurations
from otel_rollout.folder.running_file import RunningFile
from otel_rollout.guard.log_once import internal_error
from otel_rollout.record import runtime
from otel_rollout.record.open_trajectories import OpenTrajectory
from otel_rollout.settings import Setting, read_bytes, read_text

DIR: Final = Setting("OTEL_ROLLOUT_DIR", read_text, "rollout-traces", "the trace folder", "folder")
FILE_MAX_BYTES: Final = Setting(
    "OTEL_ROLLOUT_FILE_MAX_BYTES", read_bytes, 2**30, "a file of this size is followed by a new one", "file_max_bytes"
)
DIR_MAX_BYTES: Final = Setting(
    "OTEL_ROLLOUT_DIR_MAX_BYTES", read_bytes, None, "above this, the folder's oldest files are removed", "max_bytes"
)

_FULL: Final = frozenset({errno.ENOSPC, errno.EDQUOT})
_CONFIGURATION_ERRORS: Final = frozenset(
    {
        errno.EACCES,
        errno.EPERM,
        errno.EROFS,
        errno.ENOENT,
        errno.ENOTDIR,
        errno.EISDIR,
        errno.EEXIST,
        errno.ELOOP,
        errno.ENAMETOOLONG,
    }
)


class FileSettings(NamedTuple):
    """The settings of the exporter; `max_bytes` is None if the folder has no limit."""

    folder: Path
    file_max_bytes: int
    max_bytes: int | None


class FileSpanExporter(OutcomeSpanExporter):
    """Writes trajectories into a folder; any number of processes write into the same one.

    Args:
        folder: The trace folder; else `OTEL_ROLLOUT_DIR`, else `rollout-traces` in the working folder.
        file_max_bytes: The size at which a file is followed by a new one, such as `512MiB`; else
            `OTEL_ROLLOUT_FILE_MAX_BYTES`, else 1 GiB.
        max_bytes: The size of the folder beyond which the oldest files are removed; else `OTEL_ROLLOUT_DIR_MAX_BYTES`,
            else there is no limit.

    Raises:
        ConfigurationError: An argument has an invalid value.
    """

    takes_records = True
    address_setting = str(DIR)
    variables = (DIR, FILE_MAX_BYTES, DIR_MAX_BYTES)

    def __init__(
        self,
        *,
        folder: str | os.PathLike[str] | None = None,
        file_max_bytes: int | str | None = None,
        max_bytes: int | str | None = None,
    ) -> None:
        self.settings = FileSettings(
            # A trainer may change its working folder later.
            Path(DIR.value(folder)).expanduser().absolute(),
            FILE_MAX_BYTES.value(file_max_bytes),
            DIR_MAX_BYTES.value(max_bytes),
        )
        self._writer = FolderWriter(
            self.settings.folder, file_max_bytes=self.settings.file_max_bytes, max_bytes=self.settings.max_bytes
        )
        self._durations = OpDurations()
        self._running = RunningFile(self._writer.folder, self._writer.worker)
        self._is_shut_down = False

    @property
    def destination(self) -> str:
        """The folder."""
        return str(self.settings.folder.resolve())

    def check(self) -> None:
        """Check the settings before the first span.

        Raises:
            MissingExtraError: zstandard isn't installed.
            ConfigurationError: The folder's path is a file, or nothing can be written there.
        """
        require_zstandard()
        folder, is_file = self.settings.folder, False
        with suppress(OSError):
            is_file = folder.exists() and not folder.is_dir()
        if is_file:
            raise ConfigurationError(f"{DIR}={folder}: this should be a folder, and is a file")
        fault = _write_fault(folder)
        if fault:
            raise ConfigurationError(f"{DIR}={folder}: this should be a folder that can be written: {fault}")

    def send(self, spans: Sequence[ReadableSpan]) -> Outcome:
        """Write `spans`; what is delivered survives the death of this process."""
        if self._is_shut_down:
            return Outcome(Verdict.CONFIGURATION_ERROR, "the exporter is shut down")
        try:
            self._writer.write(spans)
        except OSError as error:
            return _outcome_of(error, self.settings.folder)
        except MissingExtraError as error:
            return Outcome(Verdict.CONFIGURATION_ERROR, str(error))
        except (OverflowError, RecursionError, TypeError, ValueError) as error:
            return Outcome(Verdict.REFUSED, f"a span can't be encoded: {' '.join(str(error).split())}")
        try:
            self._durations.add(spans)
        except Exception:
            internal_error("counting the durations of ops")
        return DELIVERED

    def add_counts(self, stats: ExporterStats) -> ExporterStats:
        """Add the counts of spans without a step."""
        return replace(stats, joined=self._writer.joined, orphaned=self._writer.orphaned)

    def note_lost(self, losses: Mapping[Loss, int]) -> None:
        """Write which spans the folder lacks, where its readers look."""
        resource = runtime.resource
        run_id = None if resource is None else resource.attributes.get(semconv.RUN_ID)
        # A full disk is reported for spans.
        with suppress(OSError):
            append_losses(
                self.settings.folder, self._writer.worker, run_id if isinstance(run_id, str) else None, losses
            )

    def note_open(self, trajectories: Sequence[OpenTrajectory]) -> None:
        """Write which trajectories run, for `otel-rollout top`; delivery calls it every few seconds.

        Args:
            trajectories: Those that run for longer than a few seconds, the longest first.
        """
        if self._is_shut_down:
            return
        # A full disk is reported for spans.
        with suppress(OSError):
            self._running.write(trajectories, self._durations)

    def read_back(self, spans: Sequence[ReadableSpan]) -> ReadBack:
        """Count the spans, all of one trace, that are in the folder."""
        from otel_rollout.folder.reader import read_trajectories

        step = (spans[0].attributes or {}).get(semconv.STEP)
        recorded = read_trajectories(self.settings.folder, step=step if type(step) is int else None)
        trace_id = f"{trace_id_of(spans[0]):032x}"
        found = next((each.spans for each in recorded if each.trace_id == trace_id), ())
        count = len(set(map(span_id_of, found)) & set(map(span_id_of, spans)))
        return ReadBack(count, f"the trace folder {self.settings.folder}")

    def find_trajectories(self, tags: Mapping[str, object]) -> list[tuple[str, int, str | None]]:
        """Return the trajectories in the folder that have these tags, in the order of their starts.

        Args:
            tags: The tags, by attribute key.

        Returns:
            The trace id, the root's span id and the run of each.
        """
        from otel_rollout_file.looking import find_trajectories

        return find_trajectories(self.settings.folder, tags)

    def for_trial(self) -> FileSpanExporter:
        """Return an exporter that writes into a folder inside this one's, and removes it when it is shut down."""
        from otel_rollout_file.looking import TrialExporter

        return TrialExporter(self.settings.folder)

    def where_to_look(self, project_name: str, experiment_name: str) -> list[str]:
        """Return the commands that list, show, replay and view trajectories."""
        folder = self.settings.folder
        # A validation pass of the same step has the same prompts, and an earlier experiment has the same steps.
        own = f"{folder} --experiment {experiment_name} --step 1 --train --sample 0"
        return [
            f"The trajectories are in the folder {folder}.",
            "List them, compare the rollouts of a prompt, read one, or send all to a backend with",
            "",
            f"    otel-rollout ls {folder} --step 1",
            f"    otel-rollout ls {own}",
            f"    otel-rollout show {own} --rollout 0 --chat",
            f"    otel-rollout replay {folder} --backend mlflow",
            "",
            "See the steps with their rewards, the rollouts of each prompt side by side, who held up a step,",
            "and each conversation beside its spans, in a browser with",
            "",
            f"    otel-rollout view {folder}",
        ]

    def shutdown(self) -> None:
        """Write the trajectories that have no root yet, and close the files; idempotent."""
        self._is_shut_down = True
        self._running.remove()
        with suppress(OSError):
            self._writer.close()

    def after_fork(self) -> None:
        """Drop the parent's open files in a forked child."""
        self._writer.after_fork()
        self._durations = OpDurations()
        self._running = RunningFile(self._writer.folder, self._writer.worker)


def _write_fault(folder: Path) -> str:
    """Return why the folder can't be written or made; it isn't made for that, because other processes may share it."""
    nearest = folder
    try:
        nearest = next(one for one in (folder, *folder.parents) if one.exists())
        if not nearest.is_dir():
            return f"{nearest} is a file"
        if not os.access(nearest, os.W_OK | os.X_OK):
            return f"no permission to write in {nearest}"
        # For root permissions prove nothing, and some file systems take no folders. Readers skip hidden ones.
        trial = nearest / f".trial-{secrets.token_hex(4)}"
        trial.mkdir()
        trial.rmdir()
    except OSError as error:
        if error.errno in _CONFIGURATION_ERRORS:
            return f"{nearest}: {error.strerror}"
    return ""


def _outcome_of(error: OSError, folder: Path) -> Outcome:
    reason = f"{folder}: {error.strerror or error}"
    if isinstance(error, FileGoneError) or error.errno not in _CONFIGURATION_ERRORS:
        # A full disk, an interrupted call, too many open files, a network file system that is away: all may pass.
        hint = f": free space, or limit the folder by {DIR_MAX_BYTES}" if error.errno in _FULL else ""
        return Outcome(Verdict.RETRY, reason + hint)
    return Outcome(Verdict.CONFIGURATION_ERROR, f"{reason}: {DIR} must be a folder that this process may write to")
