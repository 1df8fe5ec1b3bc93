"""One exporter's queue and thread, bounded in bytes; a slow or failing exporter harms no other, and no caller."""

from __future__ import annotations

import logging
import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from opentelemetry import context as context_api
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export import SpanExporter, SpanExportResult

from otel_rollout.delivery.batch_sender import RetryPolicy, send_batch
from otel_rollout.delivery.outcome import DELIVERED, Outcome, Verdict
from otel_rollout.delivery.readable import SpanReader
from otel_rollout.delivery.size import readable_size
from otel_rollout.span import BASE_BYTES, RolloutSpan
from otel_rollout.stats import ExporterStats

__all__ = ["ExporterQueue", "QueueLimits"]

_logger = logging.getLogger("otel_rollout")

PAYLOAD_SHARE: Final = 0.90
"""Up to this part of the bound spans are taken whole; then their payload is given up."""
CHILD_SHARE: Final = 0.97
"""Up to this part children are taken, without payload; the rest is for roots."""


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


class _Item(NamedTuple):
    span: RolloutSpan | ReadableSpan
    size: int
    without_payload: bool


class ExporterQueue:
    """Takes finished spans from any thread and brings them to one exporter, in order.

    Args:
        name: The exporter's name, for logs and statistics.
        exporter: Any `SpanExporter`; one with a `send` method (see `OutcomeSpanExporter`) can say why it failed.
        reader: Turns light spans into standard ones.
        limits: The bounds.
        policy: How failed attempts are repeated.
    """

    def __init__(
        self,
        name: str,
        exporter: SpanExporter,
        reader: SpanReader,
        limits: QueueLimits | None = None,
        policy: RetryPolicy | None = None,
    ) -> None:
        self.name = name
        self.exporter = exporter
        self._reader = reader
        self._limits = limits or QueueLimits()
        self._batch_bytes = min(self._limits.batch_bytes, getattr(exporter, "max_batch_bytes", 2**62))
        self._policy = policy or RetryPolicy()
        self._send_once: Callable[[Sequence[ReadableSpan]], Outcome] | None = getattr(exporter, "send", None)
        self._reset()

    def _reset(self) -> None:
        self._items: deque[_Item] = deque()
        self._carried: tuple[ReadableSpan, _Item] | None = None
        self._lock = threading.Lock()
        self._settled_change = threading.Condition(self._lock)
        self._wake = threading.Event()
        self._hurry = threading.Event()
        self._thread: threading.Thread | None = None
        self._is_closed = False
        self._deadline: float | None = None
        self._bytes = 0
        self._taken = 0
        self._settled = 0
        self._recorded = 0
        self._delivered = 0
        self._payloads_dropped = 0
        self._payloads_shrunk = 0
        self._lost: Counter[str] = Counter()
        self._lost_at_flush = 0
        self._last_trouble = ""
        self._logged: dict[str, float] = {}

    # --- from any thread

    def put(self, span: RolloutSpan | ReadableSpan) -> None:
        """Take a finished span; never waits for the exporter, never raises.

        When the queue is near its bound, payloads are given up before spans and children before roots.
        """
        is_ours = isinstance(span, RolloutSpan)
        size = span.size if isinstance(span, RolloutSpan) else readable_size(span)
        limits = self._limits
        without_payload = False
        with self._lock:
            self._recorded += 1
            reason = None
            if self._is_closed:
                reason = "after_shutdown"
            else:
                if self._bytes + size > limits.max_bytes * PAYLOAD_SHARE:
                    without_payload = True
                    size = BASE_BYTES
                share = 1.0 if span.parent is None else CHILD_SHARE
                waiting = self._taken - self._settled
                if self._bytes + size > limits.max_bytes * share or (
                    limits.max_spans is not None and waiting >= max(1, limits.max_spans * share)
                ):
                    reason = "queue_full"
            if reason is None:
                if without_payload:
                    self._payloads_dropped += 1
                self._items.append(_Item(span, size, without_payload))
                self._bytes += size
                self._taken += 1
                must_wake = self._bytes >= self._batch_bytes or len(self._items) >= limits.batch_spans
            else:
                self._lost[reason] += 1
        if reason is not None:
            if is_ours and span.trajectory is not None:  # type: ignore[union-attr]  # is_ours
                span.trajectory.add_dropped_span(self.name)  # type: ignore[union-attr]
            self._log(f"lost: {reason}", "%s: spans are being lost (%s); otel_rollout.stats() counts them", reason)
            return
        if without_payload:
            self._log("payload", "%s: the queue is full (%s bytes): payloads are left out", f"{limits.max_bytes:,}")
        if self._thread is None:
            self.start()
        if must_wake:
            self._wake.set()

    def start(self) -> None:
        """Start the thread; without effect where it runs, or can't be started any more at interpreter exit."""
        with self._lock:
            if self._thread is not None:
                return
            thread = threading.Thread(target=self._run, name=f"otel-rollout-{self.name}", daemon=True)
            try:
                thread.start()
            except RuntimeError:
                return
            self._thread = thread

    def flush(self, timeout: float) -> bool:
        """Wait until all that was put before is settled.

        Args:
            timeout: Seconds to wait at most.

        Returns:
            Whether the backend has every span put since the last flush.
        """
        deadline = time.monotonic() + timeout
        with self._settled_change:
            target = self._taken
            self._hurry.set()
            self._wake.set()
            while self._settled < target:
                left = deadline - time.monotonic()
                if left <= 0 or not self._settled_change.wait(left):
                    if self._settled < target:
                        return False
                    break
            lost = sum(self._lost.values())
            is_whole, self._lost_at_flush = lost == self._lost_at_flush, lost
            return is_whole

    def shutdown(self, deadline: float) -> None:
        """Ask the thread to deliver what it holds and end; `join` waits for it.

        Args:
            deadline: When it must have ended, in seconds of `time.monotonic`.
        """
        with self._lock:
            if self._is_closed:
                return
            self._is_closed = True
            self._deadline = deadline
            must_drain_here = self._thread is None and bool(self._items)
        self._hurry.set()
        self._wake.set()
        if must_drain_here:
            # No thread could be started: the interpreter is exiting.
            self._run()

    def join(self) -> bool:
        """Wait for the thread until the deadline given to `shutdown`; whether the backend has every span."""
        thread, deadline = self._thread, self._deadline or time.monotonic()
        if thread is not None and thread is not threading.current_thread():
            thread.join(max(0.0, deadline - time.monotonic()))
        with self._lock:
            left = self._taken - self._settled
            if left:
                # The thread hangs in the exporter; whatever comes of that is not counted twice.
                self._lost["shutdown"] += left
                self._settled = self._taken
                self._items.clear()
            return not self._lost

    def after_fork(self) -> None:
        """Start empty in a forked child: what the parent holds is the parent's to deliver."""
        self._reset()
        reopen = getattr(self.exporter, "after_fork", None)
        if reopen is not None:
            reopen()

    def stats(self) -> ExporterStats:
        """Return the counts so far."""
        with self._lock:
            return ExporterStats(
                recorded=self._recorded,
                delivered=self._delivered,
                queued=self._taken - self._settled,
                queued_bytes=self._bytes,
                lost=dict(self._lost),
                payloads_dropped=self._payloads_dropped,
                payloads_shrunk=self._payloads_shrunk,
                last_trouble=self._last_trouble,
            )

    # --- on the queue's own thread

    def _run(self) -> None:
        # What the exporter does over the network is not to be traced itself.
        context = context_api.set_value(context_api._SUPPRESS_INSTRUMENTATION_KEY, True, context_api.Context())  # noqa: SLF001 - opentelemetry-instrumentation imports it too
        token = context_api.attach(context)
        try:
            while True:
                is_closed = self._is_closed
                if not is_closed and not self._is_batch_full() and not self._hurry.is_set():
                    self._wake.wait(self._limits.delay)
                self._wake.clear()
                self._hurry.clear()
                while self._items or self._carried:
                    self._deliver_batch()
                if is_closed:
                    break
        finally:
            context_api.detach(token)
            try:
                self.exporter.shutdown()
            except Exception:
                _logger.exception("%s: the exporter failed to shut down", self.name)

    def _is_batch_full(self) -> bool:
        return self._bytes >= self._batch_bytes or len(self._items) >= self._limits.batch_spans

    def _deliver_batch(self) -> None:
        items, spans = self._take_batch()
        try:
            report = send_batch(
                self._attempt, spans, wait=self._wait, on_trouble=self._note_trouble, policy=self._policy
            )
            delivered, lost, lost_spans, shrunk = (
                report.delivered,
                report.lost,
                report.lost_spans,
                report.shrunk,
            )
        except Exception:
            _logger.exception("%s: internal error while delivering a batch", self.name)
            delivered, lost, lost_spans, shrunk = 0, Counter(internal_error=len(spans)), list(spans), 0
        if lost_spans:
            gone = {span.context.span_id for span in lost_spans if span.context is not None}
            for item in items:
                span = item.span
                if isinstance(span, RolloutSpan) and span.trajectory and span.context.span_id in gone:
                    span.trajectory.add_dropped_span(self.name)
        with self._settled_change:
            self._bytes -= sum(item.size for item in items)
            if self._settled < self._taken:
                self._settled += len(items)
                self._delivered += delivered
                self._payloads_shrunk += shrunk
                self._lost.update(lost)
            self._settled_change.notify_all()

    def _take_batch(self) -> tuple[list[_Item], list[ReadableSpan]]:
        items: list[_Item] = []
        spans: list[ReadableSpan] = []
        total = 0
        while len(items) < self._limits.batch_spans:
            if self._carried is not None:
                readable, item = self._carried
                self._carried = None
            elif self._items:
                item = self._items.popleft()
                readable = self._read(item)
            else:
                break
            size = readable_size(readable)
            if items and total + size > self._batch_bytes:
                self._carried = (readable, item)
                break
            items.append(item)
            spans.append(readable)
            total += size
        return items, spans

    def _read(self, item: _Item) -> ReadableSpan:
        return self._reader.read(item.span, self.name, without_payload=item.without_payload)

    def _attempt(self, spans: Sequence[ReadableSpan]) -> Outcome:
        if self._send_once is not None:
            return self._send_once(spans)
        result: Any = self.exporter.export(spans)
        if result is SpanExportResult.SUCCESS:
            return DELIVERED
        return Outcome(Verdict.UNEXPLAINED, f"export() returned {result}")

    def _wait(self, seconds: float) -> bool:
        """Wait to try again; a flush cuts the wait short, a shutdown ends it when its deadline would pass."""
        if self._deadline is not None:
            if time.monotonic() + seconds >= self._deadline:
                return False
            time.sleep(seconds)
            return True
        if self._hurry.wait(seconds):
            self._hurry.clear()
        return True

    def _note_trouble(self, outcome: Outcome) -> None:
        self._last_trouble = f"{outcome.verdict.value}: {outcome.reason}"
        what = {
            Verdict.RETRY: "not reached, trying again",
            Verdict.TOO_LARGE: "a batch is too large, sending it in parts",
            Verdict.REFUSED: "a batch was refused, looking for the span at fault",
            Verdict.DENIED: "turned away: nothing is delivered until this is mended; spans are kept within the bound",
            Verdict.UNEXPLAINED: "failed, trying again",
            Verdict.DELIVERED: "the backend did not keep all spans",
        }[outcome.verdict]
        self._log(outcome.verdict.value, f"%s: {what} (%s)", outcome.reason)

    def _log(self, kind: str, message: str, detail: str) -> None:
        now = time.monotonic()
        last = self._logged.get(kind)
        if last is None or now - last > 60.0:
            self._logged[kind] = now
            _logger.warning(message, self.name, detail)
