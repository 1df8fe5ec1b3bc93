"""A spool as the source of a replay: batches in the order of writing."""

from __future__ import annotations

import hashlib
import re
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from pathlib import Path

from opentelemetry.sdk.trace import ReadableSpan

from otel_rollout.errors import ConfigurationError, NoTracesError
from otel_rollout.files.file_lock import exclusive_lock
from otel_rollout.folder.frame_scanning import TornFrame, scan_frames
from otel_rollout.folder.frames import FrameExtent, read_frame
from otel_rollout.folder.layout import NO_STEP, is_frame_file, steps_of
from otel_rollout.folder.reader import read_trajectories
from otel_rollout.folder.selection import Filters
from otel_rollout.folder.trace_files import find_trace_files
from otel_rollout.otlp import decode_spans
from otel_rollout.replay.source import Total, Unit, UnreadableError
from otel_rollout.text.plain_text import counted


def is_spool(folder: Path, *, may_be_empty: bool = False) -> bool:
    """Return if a folder holds only files of a spool: frames without an index or a step.

    Args:
        folder: The folder.
        may_be_empty: If an empty folder counts as a spool.

    Raises:
        NoTracesError: The folder doesn't exist or holds no traces.
    """
    if folder.is_file():
        raise NoTracesError(f"{folder} is a file: name the folder that it is in")
    try:
        files = find_trace_files(folder)
    except NoTracesError:
        if may_be_empty and folder.is_dir():
            return True
        raise
    if any(steps_of(part) is not None or part == NO_STEP for part in folder.resolve().parts):
        # Part of a trace folder: its files are no spool's, even without their indexes.
        return False
    return all(file.is_compressed and file.index_place is None and file.steps is None for file in files)


def spool_of(folder: Path, backend: str) -> Path:
    """Return the folder of one exporter's spool.

    Args:
        folder: The folder that OTEL_ROLLOUT_SPOOL names, or one exporter's within it.
        backend: The exporter's name.

    Raises:
        ConfigurationError: It holds only other exporters' spans.
    """
    own = folder / re.sub(r"[^\w.-]+", "_", backend)
    if own.is_dir():
        return own
    others = sorted({file.relative_to(folder).parts[0] for file in _files_in(folder)})
    others = [name for name in others if (folder / name).is_dir()]
    if others:
        raise ConfigurationError(
            f"the spool {folder} holds nothing for {backend}, but for {', '.join(others)}: to send that to {backend}, "
            f"name the folder {folder / others[0]}"
        )
    return folder


class SpoolSource:
    """The files of a spool whose processes are gone; each is locked while its batches are sent.

    Args:
        folder: The folder.
        is_removing: If a file is removed once all in it is delivered.
        filters: The filters of the trajectories; all if None.
        trace: The beginning of the trace id.
    """

    unit_name = "batch"
    goes_alone = True
    """A unit is a batch already: it is settled before the next is read."""

    def __init__(self, folder: Path, *, is_removing: bool, filters: Filters | None = None, trace: str = "") -> None:
        self._folder = folder
        self._is_removing = is_removing
        self._traces = _traces_like(folder, filters, trace) if filters is not None else None
        self._undelivered = False
        self._counts: Counter[str] = Counter()
        self._errors: list[str] = []

    def total(self) -> Total:
        """Return the batches' number and bytes on disk."""
        units = size = 0
        for path in _files_in(self._folder):
            # A process may deliver and remove it meanwhile; `units` counts files that can't be opened.
            with suppress(OSError):
                for frame in scan_frames(path):
                    if isinstance(frame, TornFrame):
                        size += frame.length
                    elif self._unit_of(path, frame) is not None:
                        units += 1
                        size += frame.length
        return Total(units, size)

    def units(self) -> Iterator[Unit]:
        """Yield the batches of each file that no process holds."""
        for path in _files_in(self._folder):
            with ExitStack() as held:
                try:
                    is_ours = held.enter_context(exclusive_lock(path)) is not None
                except FileNotFoundError:
                    # Delivered and removed meanwhile.
                    continue
                except OSError as error:
                    self._errors.append(f"can't be opened: {error}")
                    yield Unit.unreadable(str(path), 0, str(error))
                    continue
                if not is_ours:
                    self._counts["held"] += 1
                    continue
                yield from self._units_of(path)

    def settled(self, unit: Unit, *, is_delivered: bool) -> None:
        """Keep the file of a unit that was not delivered."""
        self._undelivered = self._undelivered or not is_delivered

    def notes(self) -> list[str]:
        """Return lines of text on what was left alone and what was missing."""
        everything = "all that can be read in it" if self._counts["torn frame"] else "all in it"
        counts = (
            ("held", "file", "left alone: a running process delivers it itself"),
            ("torn frame", "torn frame", "skipped"),
            ("removed", "file", f"removed: {everything} is delivered"),
            ("foreign", "file", "delivered, but not removed: not named as a spool's, or behind a link"),
        )
        return [
            *([f"no trajectory in {self._folder} matches"] if self._traces == set() else []),
            *(f"{counted(self._counts[key], noun)} {text}" for key, noun, text in counts if self._counts[key]),
            *self._errors,
        ]

    def _units_of(self, path: Path) -> Iterator[Unit]:
        self._undelivered = False
        name = path.relative_to(self._folder)
        torn: TornFrame | None = None
        for frame in scan_frames(path):
            if torn is not None:
                # Frames follow: this is damage, not a write that was cut short.
                yield Unit.unreadable(f"{name} {torn.offset}", torn.length, f"{path} is damaged at byte {torn.offset}")
            torn = frame if isinstance(frame, TornFrame) else None
            if not isinstance(frame, TornFrame) and (unit := self._unit_of(path, frame)) is not None:
                yield unit
        self._counts["torn frame"] += torn is not None
        if self._is_removing and not self._undelivered:
            self._remove(path, name)

    def _unit_of(self, path: Path, frame: FrameExtent) -> Unit | None:
        """Return a batch, or the part of it that filters let through, decoded already; None if they let nothing."""
        token = f"{path.relative_to(self._folder)} {frame.offset} {frame.length}"
        whole = Unit(token, frame.length, lambda: _decode(path, frame))
        if self._traces is None:
            return whole
        if not self._traces:
            return None
        try:
            everything = whole.read()
        except UnreadableError:
            return whole
        spans = [span for span in everything if span.context and span.context.trace_id in self._traces]
        if not spans:
            return None
        if len(spans) < len(everything):
            ids = b"".join(span.context.span_id.to_bytes(8, "big") for span in spans if span.context)
            token += f" part {hashlib.blake2b(ids, digest_size=8).hexdigest()}"
        return Unit(token, frame.length, lambda: spans)

    def _remove(self, path: Path, name: Path) -> None:
        """Remove a file, unless otel-rollout did not write it, by its name, or it is behind a link."""
        if not is_frame_file(path.name) or path.resolve() != self._folder.resolve() / name:
            self._counts["foreign"] += 1
            return
        try:
            path.unlink()
            self._counts["removed"] += 1
        except OSError as error:
            self._errors.append(f"delivered, but not removed: {error}")


def _files_in(folder: Path) -> list[Path]:
    try:
        return [file.path for file in find_trace_files(folder)]
    except NoTracesError:
        return []


def _traces_like(folder: Path, filters: Filters, trace: str) -> set[int]:
    """Return the trace ids that filters let through, and that begin so."""
    try:
        # `units` counts what can't be read, batch by batch.
        return {
            int(trajectory.trace_id, 16)
            for trajectory in read_trajectories(folder, **filters, on_problem=lambda problem: None)
            if trajectory.trace_id.startswith(trace)
        }
    except NoTracesError:
        return set()


def _decode(path: Path, frame: FrameExtent) -> list[ReadableSpan]:
    try:
        return decode_spans(read_frame(path, frame.offset, frame.length))
    except (OSError, ValueError) as error:
        raise UnreadableError(str(error)) from error
