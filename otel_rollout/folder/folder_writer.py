"""Writes spans into a trace folder: a trace that has ended as a frame, others into the journal until they have.

The `file` exporter and `receive` differ only in their policy: a process ends its root last, while a receiver gets the
spans of many processes, in any order and more than once.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterable, Sequence
from contextlib import suppress
from operator import attrgetter
from pathlib import Path
from typing import Final, NamedTuple, TypeVar

from opentelemetry.sdk.trace import ReadableSpan

from otel_rollout import otlp
from otel_rollout.facts.builder import SummaryBuilder
from otel_rollout.folder import frames, layout
from otel_rollout.folder.frames import require_zstandard
from otel_rollout.folder.journal import Journal, JournalPart
from otel_rollout.folder.known_traces import KnownTrace, KnownTraces, known_ids
from otel_rollout.folder.step_files import StepFiles
from otel_rollout.guard.clock import monotonic
from otel_rollout.guard.log_once import warn_once
from otel_rollout.otlp import EncodedSpan, encode_each, join_spans

MAX_LINE_BYTES: Final = 16 * 2**20
"""A larger trajectory is written in several lines, since receivers take bodies up to 20 MiB; bounds memory, too."""
MAX_SPAN_LINE_BYTES: Final = frames.MAX_LINE_BYTES - MAX_LINE_BYTES
"""The bound on a line of one span, which is all that a larger line may have."""
NEVER: Final = float("inf")
_Item = TypeVar("_Item")


class Policy(NamedTuple):
    """When a trace is written, and how much waits for that.

    Args:
        grace_seconds: The seconds for which more spans of a trace are awaited after its end. With 0 it doesn't go
            through the journal.
        idle_seconds: A trace without a new span for so long is written without its end.
        max_open: The bound on open traces; beyond it, and the others, the idlest is written.
        max_open_bytes: The bound on their bytes in the journal.
        max_open_memory: The bound on the memory that they take.
        max_written_memory: The bound on the memory of those that were written: of those that are not forgotten, late
            spans go to their step, and spans that come again are left out.
    """

    grace_seconds: float = 0.0
    idle_seconds: float = NEVER
    max_open: int = 100_000
    max_open_bytes: int = 2**30
    max_open_memory: int = 2**27
    max_written_memory: int = 2**23


class _Line(NamedTuple):
    """New spans of one trace, its root last, and their request, of this many bytes."""

    spans: Sequence[EncodedSpan]
    request: bytes
    size: int


class FolderWriter:
    """Writes spans into a trace folder; other processes may do so at the same time.

    Args:
        folder: The folder, created if it is missing.
        file_max_bytes: A file of this size is followed by a new one.
        max_bytes: The bound on the folder's size, above which the oldest files are removed; None for no bound.
        policy: When a trace is written; the default is for the spans of this process.
        role: Precedes the names of its files.
    """

    def __init__(
        self,
        folder: str | os.PathLike[str],
        *,
        file_max_bytes: int = 2**30,
        max_bytes: int | None = None,
        policy: Policy | None = None,
        role: str = "",
    ) -> None:
        self.folder = Path(folder).absolute()
        self.policy = policy or Policy()
        self._file_max_bytes = file_max_bytes
        self._max_bytes = max_bytes
        self._role = role
        self._reset()

    def _reset(self) -> None:
        self._process = os.getpid()
        self._lock = threading.RLock()
        self.worker = layout.new_worker(self._role)
        self.written = self.joined = self.orphaned = 0
        """The counts of traces that were written, of spans whose trace had the step, and of spans without any."""
        self.traces = KnownTraces(self.policy.max_written_memory)
        self._files = StepFiles(self.folder, self.worker, self._file_max_bytes, self._max_bytes)
        self._journal = Journal(layout.data_path(self.folder / layout.OPEN, self.worker, 1), self.folder)

    def write(self, spans: Iterable[ReadableSpan]) -> None:
        """Write spans of this process, as `take` does.

        Raises:
            OSError: Not all were written; those that were are left out when the batch is repeated.
            TypeError: A span can't be encoded.
            ValueError: A span has more bytes than readers take.
            OverflowError: An id is too long for OTLP.
            MissingExtraError: zstandard isn't installed.
        """
        self.take([*encode_each(spans)])

    def take(self, spans: Iterable[EncodedSpan]) -> tuple[int, int]:
        """Write encoded spans; when this returns all of them are in files, and survive the death of the process.

        Args:
            spans: Spans of any number of traces; those that are known already are left out.

        Returns:
            The counts of new spans and of known ones.

        Raises:
            OSError: Not all were written; those that were are left out when the batch is repeated.
            MissingExtraError: zstandard isn't installed.
        """
        self.after_fork()
        # Before any file is created.
        require_zstandard()
        with self._lock:
            traces, doubles = self._sort_out(spans)
            waiting, ending = dict[bytes, list[EncodedSpan]](), dict[bytes, list[EncodedSpan]]()
            for trace_id, new in traces.items():
                known = self.traces.get(trace_id)
                ends = new[-1].is_root or (known is not None and known.has_ended)
                (ending if ends and not self.policy.grace_seconds else waiting)[trace_id] = new
            self._keep([line for new in waiting.values() for line in _lines_of(new)])
            for trace_id, new in ending.items():
                self._write(trace_id, _lines_of(new))
            with suppress(OSError):
                # All spans are stored; what fails here is repeated.
                self._make_room(waiting)
                if not self.policy.grace_seconds:
                    self.write_due()
            return sum(map(len, traces.values())), doubles

    def write_due(self, until: float = NEVER) -> bool:
        """Write traces that nothing more is awaited for, and free disk space; True if more of them wait.

        Args:
            until: The time at which it stops, on the monotonic clock.

        Raises:
            OSError: The disk failed; nothing is lost.
        """
        grace, idle = self.policy.grace_seconds, self.policy.idle_seconds
        with self._lock:
            try:
                while (trace_id := self.traces.overdue(grace, idle)) is not None:
                    if monotonic() > until:
                        return True
                    self._write(trace_id)
            finally:
                self._journal.compact(self.traces.live_parts())
            return False

    def close(self, *, keeps_running: bool = False) -> None:
        """Write the open traces, and close all files.

        Args:
            keeps_running: Leave traces that haven't ended in the journal.

        Raises:
            OSError: The disk failed; what could not be written stays in the journal, where readers find it.
        """
        self.after_fork()
        with self._lock:
            self._files.is_closing = True
            try:
                for trace_id in self.traces.open_ids(only_ended=keeps_running):
                    self._write(trace_id)
            finally:
                self._journal.close()
                self._files.close()
                self._files.is_closing = False

    def after_fork(self) -> None:
        """Start empty if this is a forked child: files and open traces are the parent's."""
        if self._process == os.getpid():
            return
        self._journal.forget()
        self._files.forget()
        self._reset()

    def _sort_out(self, spans: Iterable[EncodedSpan]) -> tuple[dict[bytes, list[EncodedSpan]], int]:
        """Return the new spans by trace, its end last, and the number of the others."""
        by_trace: dict[bytes, dict[bytes, EncodedSpan]] = {}
        doubles = 0
        for span in spans:
            batch = by_trace.setdefault(span.trace_id, {})
            doubles += span.span_id in batch
            batch.setdefault(span.span_id, span)
        traces: dict[bytes, list[EncodedSpan]] = {}
        for trace_id, batch in by_trace.items():
            new = list(batch.values())
            if (known := self.traces.get(trace_id)) is not None:
                stored = known_ids(known.ids, batch.keys())
                new = [span for span in new if span.span_id not in stored]
                doubles += len(batch) - len(new)
            if new:
                traces[trace_id] = sorted(new, key=attrgetter("is_root"))
        return traces, doubles

    def _keep(self, lines: list[_Line]) -> None:
        """Write lines into the journal."""
        parts = self._journal.append([line.request for line in lines], self.traces.live_parts()) if lines else []
        for line, part in zip(lines, parts, strict=True):
            trace_id = line.spans[0].trace_id
            trace = self.traces.get(trace_id) or KnownTrace()
            if not trace.parts:
                trace.summary = _summary_of(trace_id, [])
            trace.add_part(part, ends=line.spans[-1].is_root)
            trace.add_ids([span.span_id for span in line.spans])
            if trace.summary is not None:
                trace.summary.add([span.readable for span in line.spans])
            self.traces.open(trace_id, trace)

    def _make_room(self, changed: Iterable[bytes]) -> None:
        for trace_id in changed:
            trace = self.traces.get(trace_id)
            if trace is None:
                continue
            has_place = trace.step is not None or (trace.summary is not None and trace.summary.step is not None)
            if trace.size > (MAX_LINE_BYTES if has_place else self.policy.max_open_bytes // 8):
                self._write_parts(trace_id, trace)
                self.traces.open(trace_id, trace)
        policy = self.policy
        while (
            len(self.traces) > policy.max_open
            or self._journal.live_bytes > policy.max_open_bytes
            or self.traces.memory > policy.max_open_memory
        ):
            self._write(self.traces.idlest())

    def _write(self, trace_id: bytes, more: Sequence[_Line] = ()) -> None:
        """Write a trace, and close it."""
        trace = self.traces.get(trace_id) or KnownTrace()
        self._write_parts(trace_id, trace, more)
        for line in more:
            trace.add_ids([span.span_id for span in line.spans])
            trace.has_ended = True
        self.traces.close(trace_id, trace)
        self.written += 1

    def _write_parts(self, trace_id: bytes, trace: KnownTrace, more: Sequence[_Line] = ()) -> None:
        """Write the spans of a trace that are in the journal, and more."""
        pending: list[JournalPart | _Line] = [*trace.parts, *more]
        groups = _by_size(pending, [each.size for each in pending])
        summary = trace.summary if trace.parts else _summary_of(trace_id, [])
        if more and summary is not None:
            # A failed write is repeated.
            summary = summary.copy()
            summary.add([span.readable for line in more for span in line.spans])
        if len(groups) > 1:
            if summary is not None and trace.step is None:
                trace.step, trace.validate = summary.step, summary.validate
            summary = trace.summary = None
        for group in groups:
            parts = [each for each in group if isinstance(each, JournalPart)]
            requests = self._journal.read(parts)
            if len(requests) < len(parts):
                # An error would hold up all later spans.
                warn_once("journal", "%s was changed by another process: traces miss spans", self._journal.path)
                summary = None
            requests += [each.request for each in group if isinstance(each, _Line)]
            if requests:
                written = summary or _summary_of(trace_id, requests)
                if written.step is None and not written.has_root:
                    self.joined += written.spans if trace.step is not None else 0
                    self.orphaned += written.spans if trace.step is None else 0
                written.set_place(trace.step, validate=trace.validate)
                self._files.append(requests, written)
                trace.step, trace.validate = written.step, written.validate
            self._journal.release(parts)
            trace.size -= sum(part.size for part in parts)
            del trace.parts[: len(parts)]
        trace.summary = None


def _summary_of(trace_id: bytes, requests: Iterable[bytes]) -> SummaryBuilder:
    summary = SummaryBuilder(int.from_bytes(trace_id, "big"))
    for request in requests:
        try:
            summary.add(otlp.decode_spans(request))
        except ValueError:  # noqa: PERF203 - of a damaged journal alone
            # An error would hold up all later spans; readers report the line.
            summary.give_up()
    return summary


def _lines_of(spans: list[EncodedSpan]) -> list[_Line]:
    lines = []
    for group in _by_size(spans, [len(span.data) for span in spans]):
        request = join_spans(group)
        if len(request) > MAX_SPAN_LINE_BYTES:
            raise ValueError(f"a span of {len(request):,} bytes: the limit is {MAX_SPAN_LINE_BYTES:,}")
        lines.append(_Line(group, request, len(request)))
    return lines


def _by_size(items: list[_Item], sizes: list[int]) -> list[list[_Item]]:
    """Return items in groups that fit into a line; a larger one is a group of its own."""
    groups: list[list[_Item]] = []
    room = -1
    for item, size in zip(items, sizes, strict=True):
        if size > room:
            groups.append([])
            room = MAX_LINE_BYTES
        groups[-1].append(item)
        room -= size
    return groups
