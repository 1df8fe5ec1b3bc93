"""What the process has traced, delivered and lost so far."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

__all__ = ["ExporterStats", "SideWorkStats", "Stats"]


@dataclass(frozen=True)
class SideWorkStats:
    """The counts of requests about stored spans, of one kind: links, rewards.

    Args:
        done: Requests that the backend has carried out.
        waiting: Requests that are still to be made.
        lost: Requests that were given up, by reason.
    """

    done: int = 0
    waiting: int = 0
    lost: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True)
class ExporterStats:
    """The counts of one exporter; `recorded` = `delivered` + `queued` + `spooled` + the sum of `lost`.

    Args:
        recorded: Spans that ended.
        delivered: Spans that the backend has.
        queued: Spans that wait or are in flight.
        queued_bytes: What they take in memory, about.
        spooled: Spans that wait on disk.
        lost: Spans that are gone, by reason.
        payloads_dropped: Spans that arrive without payload, because the queue was full.
        payloads_shrunk: Spans that arrive with their payload cut, because the backend refused them whole.
        last_trouble: What the backend said last when it did not take a batch.
        side_work: What goes beside the spans (links, rewards), by kind; no part of the spans' account.
    """

    recorded: int = 0
    delivered: int = 0
    queued: int = 0
    queued_bytes: int = 0
    spooled: int = 0
    lost: Mapping[str, int] = field(default_factory=dict)
    payloads_dropped: int = 0
    payloads_shrunk: int = 0
    last_trouble: str = ""
    side_work: Mapping[str, SideWorkStats] = field(default_factory=dict)


@dataclass(frozen=True)
class Stats:
    """The counts of the process.

    Args:
        exporters: The counts of each exporter by its name.
        truncated_bytes: Bytes of payloads, attributes and names that were cut to keep to the limits.
        redacted: Secrets that were replaced.
        internal_errors: Faults of otel-rollout itself, by what it was doing.
        open_spans: Spans that have started and not ended; those that nobody ever ends, such as the span of a coroutine
            that nobody awaits, stay among them.
        is_uncounted: Whether spans go to the exporters of the application's provider alone, which count nothing here.
    """

    exporters: Mapping[str, ExporterStats] = field(default_factory=dict)
    truncated_bytes: int = 0
    redacted: int = 0
    internal_errors: Mapping[str, int] = field(default_factory=dict)
    open_spans: int = 0
    is_uncounted: bool = False

    @property
    def lost(self) -> int:
        """Spans that some exporter lost."""
        return sum(sum(exporter.lost.values()) for exporter in self.exporters.values())

    def __str__(self) -> str:
        parts = []
        if self.is_uncounted:
            parts.append("traced by the application's tracer provider, whose exporters are not counted here")
        for name, exporter in self.exporters.items():
            lost = sum(exporter.lost.values())
            text = f"{name}: {exporter.delivered:,} of {exporter.recorded:,} spans delivered"
            if lost:
                text += f", {lost:,} lost ({', '.join(f'{reason} {n:,}' for reason, n in exporter.lost.items())})"
            if exporter.queued:
                text += f", {exporter.queued:,} queued"
            if exporter.spooled:
                text += f", {exporter.spooled:,} on disk"
            if exporter.payloads_dropped:
                text += f", {exporter.payloads_dropped:,} without payload"
            if exporter.payloads_shrunk:
                text += f", {exporter.payloads_shrunk:,} with payload cut by the backend's limits"
            for kind, work in exporter.side_work.items():
                if work.waiting:
                    text += f", {work.waiting:,} {kind} waiting"
                if work.lost:
                    reasons = ", ".join(f"{reason} {n:,}" for reason, n in work.lost.items())
                    text += f", {sum(work.lost.values()):,} {kind} lost ({reasons})"
            parts.append(text)
        if self.open_spans:
            parts.append(f"open spans: {self.open_spans:,}")
        if self.truncated_bytes:
            parts.append(f"{self.truncated_bytes:,} payload bytes cut")
        if self.redacted:
            parts.append(f"{self.redacted:,} secrets replaced")
        if self.internal_errors:
            parts.append(f"{sum(self.internal_errors.values()):,} internal errors")
        return "; ".join(parts) or "tracing is off"
