"""Spans that wait in memory, and the batches in which they leave."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias

from opentelemetry.sdk.trace import ReadableSpan

from otel_rollout.export.batch_sender import BatchReport
from otel_rollout.finish.span_conversion import SpanReader
from otel_rollout.finish.span_copies import copy_with_losses
from otel_rollout.guard.gil import GilYielder
from otel_rollout.guard.safe_logger import SafeLogger
from otel_rollout.record.finished_span import encoded_size
from otel_rollout.record.recording_span import RolloutSpan

_logger = SafeLogger()

QueuedSpan: TypeAlias = "tuple[RolloutSpan | ReadableSpan, int]"
"""A span and the bytes that it takes in the queue."""


@dataclass(frozen=True)
class QueueLimits:
    """The bounds of a queue and of its batches.

    Args:
        max_bytes: Bytes held, waiting and in flight.
        max_spans: Spans held, where a count is asked for (`OTEL_BSP_MAX_QUEUE_SIZE`).
        batch_bytes: Bytes of a batch; a single larger span goes alone.
        batch_spans: Spans of a batch.
        delay: Seconds that a span waits at most for others to fill a batch.
    """

    max_bytes: int = 256 * 1024 * 1024
    max_spans: int | None = None
    batch_bytes: int = 4 * 1024 * 1024
    batch_spans: int = 512
    delay: float = 1.0


class Batch:
    """Spans in their standard form, with the trajectories that they belong to.

    Args:
        exporter: The exporter's name, under which a trajectory counts its dropped spans.
        is_from_disk: True if the spans were read from the spool.
    """

    def __init__(self, exporter: str, *, is_from_disk: bool = False) -> None:
        self._exporter = exporter
        self.is_from_disk = is_from_disk
        self.spans: list[ReadableSpan] = []
        self.queued: list[QueuedSpan] = []
        self.queued_bytes = 0
        self._recording_spans: dict[int, RolloutSpan] | None = None
        self._has_losses = False

    @property
    def unreadable(self) -> int:
        """The number of spans that could not be converted."""
        return len(self.queued) - len(self.spans)

    def add(self, span: RolloutSpan | ReadableSpan, queued_bytes: int, readable: ReadableSpan | None) -> None:
        """Add a queued span with its size and its standard form, None if the conversion failed."""
        self.queued.append((span, queued_bytes))
        self.queued_bytes += queued_bytes
        if readable is not None:
            self.spans.append(readable)

    def note_lost(self, spans: Sequence[ReadableSpan]) -> None:
        """Count spans as dropped on their trajectories."""
        for span in spans:
            recording = self._recording_span(span)
            if recording is not None and recording.trajectory is not None:
                recording.trajectory.add_dropped_span(self._exporter)
                self._has_losses = True

    def with_losses(self, spans: Sequence[ReadableSpan]) -> Sequence[ReadableSpan]:
        """Return `spans` with copies of the roots whose count of dropped spans has changed since they were read."""
        if not self._has_losses:
            return spans
        return [copy_with_losses(span, self._recording_span(span), self._exporter) for span in spans]

    def _recording_span(self, span: ReadableSpan) -> RolloutSpan | None:
        if self._recording_spans is None:
            self._recording_spans = {
                queued.context.span_id: queued
                for queued, _ in self.queued
                if isinstance(queued, RolloutSpan) and queued.trajectory is not None
            }
        return self._recording_spans.get(span.context.span_id) if span.context is not None else None


class MemoryStore:
    """The spans of one exporter that wait in memory; `SpooledStore` has the same methods, and a disk.

    Args:
        exporter: The exporter's name.
        reader: Converts recording spans.
        batch_bytes: Bytes of a batch; a single larger span goes alone.
        batch_spans: Spans of a batch.
    """

    keeps_unsent = False
    """If True, `settle` keeps the spans that there was no time to send; they are lost otherwise."""
    spill_bytes: float = math.inf
    """Above this many bytes in memory, `make_room` is called."""

    def __init__(self, exporter: str, reader: SpanReader, batch_bytes: int, batch_spans: int) -> None:
        self.exporter = exporter
        self.reader = reader
        self.spans: deque[QueuedSpan] = deque()
        self._batch_bytes = batch_bytes
        self._batch_spans = batch_spans

    def take(self) -> Batch:
        """Remove the oldest spans, up to a full batch, and convert them."""
        batch = Batch(self.exporter)
        yielder = GilYielder()
        total = 0
        while len(batch.queued) < self._batch_spans:
            try:
                span, queued_bytes = self.spans.popleft()
            except IndexError:
                break
            try:
                readable = self.reader.read(span, self.exporter)
                size = encoded_size(span, readable)
            except Exception:
                _logger.exception("%s: internal error while reading the span %r", self.exporter, span.name)
                batch.add(span, queued_bytes, None)
                continue
            if batch.spans and total + size > self._batch_bytes:
                self.spans.appendleft((span, queued_bytes))
                break
            batch.add(span, queued_bytes, readable)
            total += size
            yielder.worked(size)
        return batch

    def settle(self, batch: Batch, report: BatchReport) -> bool:
        """Store the unsent spans of a batch again; False if the batch was settled before, when time was up."""
        return True

    def clear(self) -> None:
        """Drop all spans."""
        while True:
            # One by one: the delivery thread may be taking some.
            try:
                span, _ = self.spans.popleft()
            except IndexError:
                return
            self.reader.release(span)

    def start(self) -> None:
        """Start the store's thread, if it has one; this and the next three are called with the account's lock held."""

    def make_room(self) -> None:
        """Called when memory holds more than `spill_bytes`."""

    def note_trouble(self) -> None:
        """Called when the backend is away, or refuses us."""

    def begin_shutdown(self, deadline: float) -> float:
        """Return the deadline for attempts, which leaves the store its time until the `deadline` of all."""
        return deadline

    def spill_all(self) -> None:
        """Move all spans to disk, if there is one, as far as time and room allow; called by the delivery thread."""

    def await_spill(self) -> None:
        """Wait until all spans are on disk, a hanging attempt's too; called by the joining thread."""

    def close(self, deadline: float) -> None:
        """Close the files, at most until `deadline`."""
