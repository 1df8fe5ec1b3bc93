"""The bounds of one exporter's queue."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["QueueLimits"]


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
