"""Keeps received spans in the journal of a trace folder until their trace is complete, then writes it as a frame.

`FolderWriter` ends a trace with its root, since a process ends its root last. Here spans come from many processes, in
any order and more than once: a trace ends a while after its root, or when nothing has come for long.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Final, NamedTuple

from opentelemetry.sdk.trace import ReadableSpan

from otel_rollout.errors import ConfigurationError
from otel_rollout.facts.builder import SummaryBuilder
from otel_rollout.folder import layout
from otel_rollout.folder.folder_writer import MAX_LINE_BYTES
from otel_rollout.folder.frames import require_zstandard
from otel_rollout.folder.journal import Journal, JournalPart
from otel_rollout.folder.step_files import StepFiles
from otel_rollout.guard.clock import monotonic
from otel_rollout.guard.log_once import internal_error, warn_once
from otel_rollout.otlp import EncodedSpan, decode_spans, join_spans
from otel_rollout.receive.open_trace import (
    MAX_TRACE_ID_BYTES,
    OpenTrace,
    OpenTraces,
    WrittenTrace,
    WrittenTraces,
    finder,
)

__all__ = ["ROLE", "ReceivedFolder", "Taken"]

ROLE: Final = "receive-"
"""The begin of the names of our files: only what an ended receiver has left is adopted."""
GRACE_SECONDS: Final = 10.0
"""Senders keep ended spans for some seconds, the SDK's for five, before they send them."""
IDLE_SECONDS: Final = 900.0
MAX_OPEN: Final = 100_000
MAX_OPEN_BYTES: Final = 4 * 2**30
MAX_OPEN_PARTS: Final = 500_000
FILE_MAX_BYTES: Final = 2**30
PART_BYTES: Final = 2**23
MIN_WORK_SECONDS: Final = 0.05
WORK_RATIO: Final = 2.0
"""Writing a trace takes twice the time of taking its spans at most."""


class Taken(NamedTuple):
    """The spans of a request: those that were new, and those that the folder had."""

    new: int
    doubles: int


class ReceivedFolder:
    """A trace folder that takes encoded spans; other processes may write into it at the same time. Not thread-safe.

    Args:
        folder: The folder, created if it is missing.
        idle_seconds: A trace without a new span for so long is written without its root.
        max_bytes: The bound on the folder's size, above which the oldest files are removed; None for no bound.
        max_open: The bound on open traces; beyond it the idlest is written.
        max_open_bytes: The bound on the bytes of open traces.

    Raises:
        MissingExtraError: zstandard isn't installed.
        ConfigurationError: It is no folder, or this process can't write into it.
    """

    def __init__(
        self,
        folder: str | os.PathLike[str],
        *,
        idle_seconds: float = IDLE_SECONDS,
        max_bytes: int | None = None,
        max_open: int = MAX_OPEN,
        max_open_bytes: int = MAX_OPEN_BYTES,
    ) -> None:
        require_zstandard()
        self.folder = Path(folder).absolute()
        _require_writable(self.folder)
        self.worker = layout.new_worker(ROLE)
        self.written = 0
        """The number of traces that were written."""
        self._idle_seconds = idle_seconds
        self._grace_seconds = min(GRACE_SECONDS, idle_seconds)
        self._max_open = max_open
        self._max_open_bytes = max_open_bytes
        self._journal = Journal(layout.journal_path(self.folder, self.worker), self.folder)
        self._files = StepFiles(self.folder, self.worker, FILE_MAX_BYTES, max_bytes)
        self._open = OpenTraces()
        self._known = WrittenTraces()
        self._seconds_of_taking = 0.0

    @property
    def open_traces(self) -> int:
        """The number of open traces."""
        return len(self._open)

    def take(self, spans: Iterable[EncodedSpan]) -> Taken:
        """Store spans; when this returns all of them are in files, and survive the death of the process.

        Args:
            spans: Spans of any number of traces; those that the folder has already are left out.

        Raises:
            OSError: The disk did not take them, and has none of them.
        """
        started = monotonic()
        new, doubles = self._sort_out(spans)
        lines: list[bytes] = []
        places: list[tuple[bytes, bool]] = []
        for trace_id, batch in new.items():
            for group in _groups(batch):
                lines.append(join_spans(group))
                places.append((trace_id, group[-1].is_root))
        if lines:
            parts = self._journal.append(lines, self._open.live_parts())
            for (trace_id, has_root), part in zip(places, parts, strict=True):
                self._add(trace_id, part, has_root=has_root)
            for trace_id, batch in new.items():
                trace = self._open.get(trace_id)
                if trace is not None:
                    trace.ids += b"".join([span.span_id for span in batch])
                    if len(trace.ids) > MAX_TRACE_ID_BYTES:
                        # Each new span is looked up among them.
                        del trace.ids[: len(trace.ids) - MAX_TRACE_ID_BYTES // 2]
                    if trace.summary is not None:
                        _summarise(trace.summary, [span.readable for span in batch])
            with suppress(OSError):
                # All spans are stored; what fails here is repeated.
                self._make_room(new)
        self._seconds_of_taking += monotonic() - started
        return Taken(sum(map(len, new.values())), doubles)

    def write_overdue(self) -> bool:
        """Write traces that nothing more is awaited for; True if more of them wait: spans have their turn first.

        Raises:
            OSError: The disk failed; nothing is lost.
        """
        until = monotonic() + MIN_WORK_SECONDS + WORK_RATIO * self._seconds_of_taking
        self._seconds_of_taking = 0.0
        try:
            while (trace_id := self._open.overdue(self._grace_seconds, self._idle_seconds)) is not None:
                if monotonic() > until:
                    return True
                self._write(trace_id)
        finally:
            self._journal.compact(self._open.live_parts())
        return False

    def write_all(self) -> None:
        """Write all open traces, those without a root too.

        Raises:
            OSError: The disk failed; nothing is lost.
        """
        while self._open:
            self._write(self._open.idlest())

    def note_written(self, trace_id: bytes, ids: bytes, has_root: bool, step: int | None, *, validate: bool) -> None:
        """Note spans of a trace that are in a frame already.

        Args:
            trace_id: The trace.
            ids: The ids of the spans.
            has_root: True if the root is among them.
            step: The training step.
            validate: True for a validation pass.
        """
        if (trace := self._open.get(trace_id)) is not None:
            trace.ids += ids
        elif (known := self._known.get(trace_id)) is not None:
            self._known.add(trace_id, WrittenTrace(known.ids + ids, known.has_root or has_root, step, validate))
        else:
            self._known.add(trace_id, WrittenTrace(ids, has_root, step, validate))

    def close(self) -> None:
        """Write the traces whose root has come, and close all files; the journal keeps the others.

        Raises:
            OSError: The disk failed; what could not be written stays in the journal.
        """
        try:
            for trace_id in self._open.ended():
                self._write(trace_id)
        finally:
            self._journal.close()
            self._files.close()

    def _sort_out(self, spans: Iterable[EncodedSpan]) -> tuple[dict[bytes, list[EncodedSpan]], int]:
        """Return the new spans by trace, the root last, and the number of the others."""
        by_trace: dict[bytes, dict[bytes, EncodedSpan]] = {}
        doubles = 0
        for span in spans:
            batch = by_trace.setdefault(span.trace_id, {})
            doubles += span.span_id in batch
            batch.setdefault(span.span_id, span)
        new: dict[bytes, list[EncodedSpan]] = {}
        for trace_id, batch in by_trace.items():
            known = self._open.get(trace_id) or self._known.get(trace_id)
            fresh = list(batch.values())
            if known is not None:
                is_known = finder(known.ids, len(fresh))
                fresh = [span for span in fresh if not is_known(span.span_id)]
                doubles += len(batch) - len(fresh)
            if fresh:
                new[trace_id] = sorted(fresh, key=_is_root)
        return new, doubles

    def _add(self, trace_id: bytes, part: JournalPart, *, has_root: bool) -> None:
        trace = self._open.get(trace_id)
        if trace is None:
            written = self._known.pop(trace_id)
            trace = OpenTrace(_new_summary(trace_id), bytearray())
            if written is not None:
                ids, knows_root, step, validate = written
                trace = OpenTrace(trace.summary, bytearray(ids), has_root=knows_root, step=step, validate=validate)
        if has_root or not trace.has_root or not trace.parts:
            trace.parts.append(part)
        else:
            trace.parts.insert(len(trace.parts) - 1, part)
        trace.bytes += part.length
        trace.has_root = trace.has_root or has_root
        self._open.parts += 1
        self._open.put(trace_id, trace)

    def _make_room(self, changed: Iterable[bytes]) -> None:
        for trace_id in changed:
            trace = self._open.get(trace_id)
            if trace is not None and trace.bytes > MAX_LINE_BYTES:
                self._write_parts(trace_id, trace)
        while (
            len(self._open) > self._max_open
            or self._journal.live_bytes > self._max_open_bytes
            or self._open.parts > MAX_OPEN_PARTS
        ):
            self._write(self._open.idlest())

    def _write(self, trace_id: bytes) -> None:
        """Write a trace, and close it."""
        trace = self._open.get(trace_id)
        if trace is None:
            return
        self._write_parts(trace_id, trace)
        self._open.remove(trace_id)
        self._known.add(trace_id, WrittenTrace(bytes(trace.ids), trace.has_root, trace.step, trace.validate))
        self.written += 1

    def _write_parts(self, trace_id: bytes, trace: OpenTrace) -> None:
        """Write the spans of an open trace that are in the journal."""
        groups = list(_by_size(trace.parts))
        if len(groups) > 1:
            trace.summary = None
        for parts in groups:
            lines = self._journal.read(parts)
            summary = trace.summary
            if len(lines) < len(parts):
                # An error would hold up all later spans.
                warn_once("journal", "%s was changed by another process: traces miss spans", self._journal.path)
                summary = None
            if summary is None:
                summary = _new_summary(trace_id)
                for line in lines:
                    try:
                        _summarise(summary, decode_spans(line))
                    except ValueError:  # noqa: PERF203 - of a damaged journal alone
                        # An error would hold up all later spans; readers report the line.
                        summary.give_up()
            if lines:
                summary.set_place(trace.step, validate=trace.validate)
                self._files.append(lines, summary)
                trace.step, trace.validate = summary.step, summary.validate
            self._journal.release(parts)
            self._open.parts -= len(parts)
            trace.bytes -= sum(part.length for part in parts)
            del trace.parts[: len(parts)]
        trace.summary = _new_summary(trace_id)


def _require_writable(folder: Path) -> None:
    """Raise ConfigurationError if no disk space would help; the folder itself is made with its first span."""
    existing = next(path for path in (folder, *folder.parents) if path.exists())
    if not existing.is_dir():
        raise ConfigurationError(f"{existing} is a file: name a folder")
    if not os.access(existing, os.W_OK | os.X_OK):
        raise ConfigurationError(f"this process can't write into the folder {existing}")


def _new_summary(trace_id: bytes) -> SummaryBuilder:
    return SummaryBuilder(int.from_bytes(trace_id, "big"))


def _summarise(summary: SummaryBuilder, spans: Iterable[ReadableSpan]) -> None:
    try:
        summary.add(spans)
    except Exception:
        internal_error("summarising spans that were received")


def _is_root(span: EncodedSpan) -> bool:
    return span.is_root


def _groups(spans: list[EncodedSpan]) -> Iterator[list[EncodedSpan]]:
    """Yield spans in groups of at most `PART_BYTES`; a larger span is a group of its own."""
    first, size = 0, 0
    for place, span in enumerate(spans):
        if size and size + len(span.data) > PART_BYTES:
            yield spans[first:place]
            first, size = place, 0
        size += len(span.data)
    yield spans[first:]


def _by_size(parts: list[JournalPart]) -> Iterator[list[JournalPart]]:
    """Yield parts in groups that fit into a line; `parts` may lose what was yielded meanwhile."""
    group: list[JournalPart] = []
    size = 0
    for part in list(parts):
        if group and size + part.length > MAX_LINE_BYTES:
            yield group
            group, size = [], 0
        group.append(part)
        size += part.length
    if group:
        yield group
