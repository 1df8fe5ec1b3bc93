"""The folder of a receiver, and the journals in it of others that were killed, or stopped while traces were open."""

from __future__ import annotations

import os
from collections.abc import Container, Generator, Iterable, Iterator
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Final

from otel_rollout.errors import ConfigurationError
from otel_rollout.files.file_lock import exclusive_lock
from otel_rollout.folder import layout
from otel_rollout.folder.folder_writer import FolderWriter, Policy
from otel_rollout.folder.frames import require_zstandard, scan_frames
from otel_rollout.folder.known_traces import KnownTrace
from otel_rollout.folder.reader import without_summary
from otel_rollout.folder.stored_file import LineCache, Part, ReadProblem, StoredFile
from otel_rollout.folder.trace_files import TraceFile, find_trace_files
from otel_rollout.guard.log_once import warn_once
from otel_rollout.otlp import EncodedSpan, split_request
from otel_rollout.otlp.reading import MAX_FIELDS

ROLE: Final = "receive-"
"""The begin of the names of our files: only what an ended receiver has left is adopted."""
GRACE_SECONDS: Final = 10.0
"""Senders keep ended spans for some seconds, the SDK's for five, before they send them."""
IDLE_SECONDS: Final = 900.0
POLICY: Final = Policy(
    GRACE_SECONDS, IDLE_SECONDS, max_open_bytes=2**32, max_open_memory=2**29, max_written_memory=2**26
)
MAX_AGE_SECONDS: Final = 86_400.0
"""A frame of a journal that is in a frame as well was received at most so long before the journal's last."""


def open_folder(
    folder: str | os.PathLike[str],
    *,
    idle_seconds: float = IDLE_SECONDS,
    max_bytes: int | None = None,
    max_open: int = POLICY.max_open,
    max_written_memory: int = POLICY.max_written_memory,
) -> FolderWriter:
    """Return a writer of the spans that are received.

    Args:
        folder: The folder, created with its first span if it is missing.
        idle_seconds: A trace without a new span for so long is written without its root.
        max_bytes: The bound on the folder's size, above which the oldest files are removed; None for no bound.
        max_open: The bound on open traces; beyond it the idlest is written.
        max_written_memory: The bound on the memory of written traces, whose spans are known if they come again.

    Raises:
        MissingExtraError: zstandard isn't installed.
        ConfigurationError: It is no folder, or this process can't write into it.
    """
    require_zstandard()
    path = Path(folder).absolute()
    existing = next(each for each in (path, *path.parents) if each.exists())
    if not existing.is_dir():
        raise ConfigurationError(f"{existing} is a file: name a folder")
    if not os.access(existing, os.W_OK | os.X_OK):
        raise ConfigurationError(f"this process can't write into the folder {existing}")
    grace_seconds = min(GRACE_SECONDS, idle_seconds)
    policy = POLICY._replace(
        grace_seconds=grace_seconds,
        idle_seconds=idle_seconds,
        max_open=max_open,
        max_written_memory=max_written_memory,
    )
    return FolderWriter(path, max_bytes=max_bytes, policy=policy, role=ROLE)


def adopt(folder: FolderWriter) -> Generator[int, None, None]:
    """Take the spans of journals that no process writes any more, a frame at a time.

    Args:
        folder: The folder that takes them; whatever of them is in a frame already is left out.

    Yields:
        0 once the folder has the list of what is in frames, so that it may take other spans; then the number of spans
        of each frame.

    Raises:
        OSError: The disk failed; the journals stay, and may be adopted again.
    """
    with ExitStack() as locks:
        journals: list[Path] = []
        for path in sorted((folder.folder / layout.OPEN).glob(f"{ROLE}*{layout.FRAMES}")):
            if layout.is_frame_file(path.name) and layout.worker_of(path) != folder.worker:
                with suppress(FileNotFoundError):
                    if locks.enter_context(exclusive_lock(path)) is not None:
                        journals.append(path)
        traces = {span.trace_id for path in journals for each in _requests_of(path) for span in _spans_of(each, path)}
        if traces:
            oldest = min(path.stat().st_mtime for path in journals) - MAX_AGE_SECONDS
            files = [file for file in find_trace_files(folder.folder) if _is_receivers(file, oldest)]
            StoredSpans(folder, files, {trace_id.hex() for trace_id in traces}).note(traces)
        yield 0
        for path in journals:
            state = _state_of(path)
            for request in _requests_of(path):
                yield folder.take(_spans_of(request, path))[0]
            # Without locks, a receiver that was quiet for long may go on; its journal has spans that are not read.
            if _state_of(path) == state:
                path.unlink()


def _is_receivers(file: TraceFile, oldest: float) -> bool:
    """Return True if a file may have what a receiver's journal still has."""
    if not file.worker.startswith(ROLE) or not file.has_frames or file.is_journal:
        return False
    with suppress(OSError):
        return file.path.stat().st_mtime >= oldest
    return False


def _state_of(path: Path) -> tuple[int, int]:
    status = path.stat()
    return status.st_size, status.st_mtime_ns


def _spans_of(request: bytes, path: Path) -> list[EncodedSpan]:
    def refuse(reason: str) -> None:
        warn_once("adopted journal", "%s has damaged frames: some traces miss spans: %s", path, reason)

    try:
        return list(split_request(request, refuse, MAX_FIELDS))
    except ValueError as error:
        # An error would leave the journal, and all after it, to the next attempt, which would fail too.
        refuse(str(error))
        return []


def _requests_of(path: Path) -> Iterator[bytes]:
    for frame in scan_frames(path):
        if frame.request is not None:
            yield frame.request
        elif not frame.is_cut_off:
            # The last one is torn if its writer was killed meanwhile: nobody was told that it is stored.
            warn_once("adopted journal", "%s has damaged frames: some traces miss spans", path)


class StoredSpans:
    """The spans in files of a folder; a trace's are noted in its writer, which leaves them out if they come again.

    Args:
        folder: The folder.
        files: The files.
        only: The traces to look for, in hexadecimal; None for all, of which each takes some hundred bytes.
    """

    def __init__(self, folder: FolderWriter, files: Iterable[TraceFile], only: Container[str] | None = None) -> None:
        self._folder = folder
        self._parts: dict[bytes, list[Part]] = {}
        cache = LineCache()
        for file in files:
            for stored, row in StoredFile(file, cache, _ignore).parts():
                if only is None or row.trace_id in only:
                    self._parts.setdefault(bytes.fromhex(row.trace_id), []).append((stored, without_summary(row)))

    def note(self, trace_ids: Iterable[bytes]) -> None:
        """Note what the files have of some traces."""
        traces = self._folder.traces
        for trace_id in trace_ids:
            for stored, row in self._parts.pop(trace_id, ()):
                # A span that can't be read is damaged, and comes again.
                with suppress(OSError, ValueError):
                    ids = stored.read_ids(row)
                    trace = traces.get(trace_id) or KnownTrace()
                    trace.add_ids(ids)
                    if not trace.parts:
                        trace.has_ended = trace.has_ended or row.has_root
                        trace.step, trace.validate = row.step, row.validate is True
                        traces.close(trace_id, trace)


def _ignore(problem: ReadProblem) -> None:
    """Readers report it."""
