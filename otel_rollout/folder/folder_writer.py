"""Writes spans into a trace folder: a trajectory whose root has ended as a frame, others into the journal."""

from __future__ import annotations

import os
import threading
from collections import OrderedDict
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from opentelemetry.sdk.trace import ReadableSpan

from otel_rollout import otlp
from otel_rollout.facts.builder import SummaryBuilder
from otel_rollout.folder import frames, layout
from otel_rollout.folder.frames import require_zstandard
from otel_rollout.folder.journal import Journal, JournalPart
from otel_rollout.folder.step_files import StepFiles
from otel_rollout.guard.log_once import warn_once
from otel_rollout.otlp import encode_spans

__all__ = ["FolderWriter"]

MAX_LINE_BYTES: Final = 16 * 2**20
"""A larger trajectory is written in several lines, since receivers take bodies up to 20 MiB; bounds memory, too."""
MAX_BATCH_LINE_BYTES: Final = frames.MAX_LINE_BYTES - MAX_LINE_BYTES
"""The bound on a trace's part of one batch; together with its earlier spans it fits into a line."""
MAX_OPEN_BYTES: Final = 2**30
MAX_OPEN_PARTS: Final = 100_000
MAX_SUMMARY_BYTES: Final = 2**27
"""Beyond these bounds, the trajectories that have been open longest are written without their root."""
MAX_CLOSED: Final = 16_384
"""The number of ended trajectories that are remembered, so that a late span doesn't begin a new one."""
MAX_STORED: Final = 100_000


@dataclass(slots=True)
class _OpenTrace:
    """A trace whose root has not ended yet."""

    summary: SummaryBuilder
    parts: list[JournalPart] = field(default_factory=list)
    bytes: int = 0
    summary_bytes: int = 0


class FolderWriter:
    """Writes spans into a trace folder; other processes may do so at the same time.

    Args:
        folder: The folder, created if it is missing.
        file_max_bytes: A file of this size is followed by a new one.
        max_bytes: The bound on the folder's size, above which the oldest files are removed; None for no bound.
    """

    def __init__(
        self, folder: str | os.PathLike[str], *, file_max_bytes: int = 2**30, max_bytes: int | None = None
    ) -> None:
        self.folder = Path(folder).absolute()
        self._file_max_bytes = file_max_bytes
        self._max_bytes = max_bytes
        self._reset()

    def _reset(self) -> None:
        self._process = os.getpid()
        self._lock = threading.Lock()
        self.worker = layout.new_worker()
        self._files = StepFiles(self.folder, self.worker, self._file_max_bytes, self._max_bytes)
        self._journal = Journal(layout.journal_path(self.folder, self.worker), self.folder)
        self._open: OrderedDict[int, _OpenTrace] = OrderedDict()
        self._open_parts = 0
        self._summary_bytes = 0
        self._closed: OrderedDict[int, None] = OrderedDict()
        # The spans of a failed batch that are on disk already, and will come again.
        self._stored: set[tuple[int, int]] = set()

    def write(self, spans: Sequence[ReadableSpan]) -> None:
        """Write spans; when this returns all of them are in files, and survive the death of the process.

        Args:
            spans: Finished spans, of any number of traces.

        Raises:
            OSError: Not all were written; those that were are not written again when the batch is repeated.
            TypeError: A span can't be encoded.
            ValueError: A trace has more bytes in this batch than readers take.
            OverflowError: An id is too long for OTLP.
            MissingExtraError: zstandard isn't installed.
        """
        self.after_fork()
        # First: the journal works without it, and nobody would notice.
        require_zstandard()
        with self._lock:
            known = {key for key in map(_key, spans) if key in self._stored} if self._stored else set()
            stored: list[Sequence[ReadableSpan]] = []
            try:
                ended, running = self._sort(spans, known)
                self._write_running(running)
                stored += running.values()
                for trace_id, batch in ended.items():
                    self._write_ended(trace_id, batch)
                    stored.append(batch)
            except BaseException:
                if len(self._stored) > MAX_STORED:
                    self._stored = known
                self._stored.update(_key(span) for batch in stored for span in batch)
                raise
            self._stored -= known
            with suppress(OSError):
                # All spans are stored; what fails here is repeated with the next batch.
                self._make_room(running)
                self._journal.compact(self._live_parts())

    def close(self) -> None:
        """Write the open trajectories without their root, and close all files."""
        self.after_fork()
        with self._lock:
            with suppress(OSError):
                # Trajectories that can't be written stay in the journal, where readers find them.
                while self._open:
                    self._write_open(next(iter(self._open)))
            self._journal.close()
            self._files.close()

    def after_fork(self) -> None:
        """Start empty if this is a forked child: files and open trajectories are the parent's."""
        if self._process == os.getpid():
            return
        self._journal.forget()
        self._files.forget()
        self._reset()

    def _sort(
        self, spans: Sequence[ReadableSpan], known: set[tuple[int, int]]
    ) -> tuple[dict[int, list[ReadableSpan]], dict[int, list[ReadableSpan]]]:
        """Split spans into traces that go into frames now, and those that go into the journal; the root comes last."""
        traces: dict[int, list[ReadableSpan]] = {}
        roots: dict[int, ReadableSpan] = {}
        for span in spans:
            context = span.context
            if context is None or (known and (context.trace_id, context.span_id) in known):
                continue
            trace_id, parent = context.trace_id, span.parent
            if parent is None or parent.is_remote:
                roots[trace_id] = span
            traces.setdefault(trace_id, []).append(span)
        ended: dict[int, list[ReadableSpan]] = {}
        running: dict[int, list[ReadableSpan]] = {}
        for trace_id, batch in traces.items():
            root = roots.get(trace_id)
            if root is not None and batch[-1] is not root:
                batch = [*(span for span in batch if span is not root), root]  # noqa: PLW2901
            is_late = trace_id in self._closed and trace_id not in self._open
            (ended if root is not None or is_late else running)[trace_id] = batch
        return ended, running

    def _write_running(self, traces: dict[int, list[ReadableSpan]]) -> None:
        if not traces:
            return
        lines = [_line(batch) for batch in traces.values()]
        parts = self._journal.append(lines, self._live_parts())
        for (trace_id, batch), part in zip(traces.items(), parts, strict=True):
            trace = self._open.get(trace_id)
            if trace is None:
                trace = self._open[trace_id] = _OpenTrace(SummaryBuilder(trace_id))
            trace.summary.add(batch)
            self._summary_bytes += trace.summary.size - trace.summary_bytes
            trace.summary_bytes = trace.summary.size
            trace.parts.append(part)
            trace.bytes += part.length
            self._open_parts += 1

    def _write_ended(self, trace_id: int, batch: list[ReadableSpan]) -> None:
        line = _line(batch)
        trace = self._open.get(trace_id)
        if trace is not None and trace.bytes + len(line) > MAX_LINE_BYTES:
            self._write_open(trace_id)
        lines, summary = self._read_open(trace_id)
        summary.add(batch)
        self._files.append([*lines, line], summary)
        self._forget(trace_id)
        self._closed[trace_id] = None
        if len(self._closed) > MAX_CLOSED:
            self._closed.popitem(last=False)

    def _write_open(self, trace_id: int) -> None:
        """Write an open trajectory without its root."""
        lines, summary = self._read_open(trace_id)
        if lines:
            self._files.append(lines, summary)
        self._forget(trace_id)

    def _read_open(self, trace_id: int) -> tuple[list[bytes], SummaryBuilder]:
        """Return a trajectory's lines in the journal, and a copy of its summary, since a failed write is repeated."""
        trace = self._open.get(trace_id)
        if trace is None:
            return [], SummaryBuilder(trace_id)
        lines = self._journal.read(trace.parts)
        if len(lines) == len(trace.parts):
            return lines, trace.summary.copy()
        # An error would hold up all later spans.
        warn_once("journal", "%s was changed by another process: running trajectories miss spans", self._journal.path)
        summary = SummaryBuilder(trace_id)
        for line in lines:
            summary.add(otlp.decode_spans(line))
        return lines, summary

    def _forget(self, trace_id: int) -> None:
        trace = self._open.pop(trace_id, None)
        if trace is not None:
            self._journal.release(trace.parts)
            self._open_parts -= len(trace.parts)
            self._summary_bytes -= trace.summary_bytes

    def _make_room(self, changed: Iterable[int]) -> None:
        for trace_id in changed:
            if self._open[trace_id].bytes > MAX_LINE_BYTES:
                self._write_open(trace_id)
        while (
            self._journal.live_bytes > MAX_OPEN_BYTES
            or self._open_parts > MAX_OPEN_PARTS
            or self._summary_bytes > MAX_SUMMARY_BYTES
        ):
            self._write_open(next(iter(self._open)))

    def _live_parts(self) -> Iterator[JournalPart]:
        return (part for trace in self._open.values() for part in trace.parts)


def _line(batch: Sequence[ReadableSpan]) -> bytes:
    line = encode_spans(batch)
    if len(line) > MAX_BATCH_LINE_BYTES:
        raise ValueError(f"{len(line):,} bytes of one trace in a batch: the limit is {MAX_BATCH_LINE_BYTES:,}")
    return line


def _key(span: ReadableSpan) -> tuple[int, int]:
    context = span.context
    return (context.trace_id, context.span_id) if context is not None else (0, 0)
