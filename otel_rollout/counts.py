"""The counts of spans recorded, delivered and lost."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

lost_annotations: Counter[str] = Counter()
"""Calls of `annotate` whose values could not be recorded, by reason."""
repeated_annotations: Counter[str] = Counter()
"""Values that `annotate` got twice from this process, by argument."""
unread_answers: Counter[str] = Counter()
"""Results of LLM ops in which no answer was recognised, by op."""
unread_usage: Counter[str] = Counter()
"""Results of LLM ops in which no number of tokens was recognised, by op."""


class Loss(NamedTuple):
    """The step that lost spans are of, and why they were lost."""

    reason: str
    step: int | None = None
    validate: bool = False
    experiment_name: str | None = None


@dataclass(frozen=True)
class FollowUpStats:
    """The counts of requests about stored spans, of one kind: links, rewards.

    Args:
        done: Requests that the backend accepted.
        waiting: Requests that wait.
        lost: Requests that were dropped, by reason.
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
        queued_bytes: An estimate of their memory.
        spooled: Spans that wait on disk.
        lost: Spans that were dropped, by reason; `unknown` are spans of a request without an answer at the end, which
            the backend may have.
        payloads_dropped: Spans that arrive without payload, because the queue was full.
        payloads_shrunk: Spans that arrive with their payload cut, because the backend refused them whole.
        joined: Spans without a step that the trace folder has with their trajectory, whose step was known.
        orphaned: Spans without a step or a root that it has in `no-step/`; readers join them by their trace.
        last_error: The backend's last answer to a batch that it refused.
        preparing: Work that comes before the first span, such as creating tables.
        follow_up_requests: Requests besides spans (links, rewards), by kind; not counted among the spans.
    """

    recorded: int = 0
    delivered: int = 0
    queued: int = 0
    queued_bytes: int = 0
    spooled: int = 0
    lost: Mapping[str, int] = field(default_factory=dict)
    payloads_dropped: int = 0
    payloads_shrunk: int = 0
    joined: int = 0
    orphaned: int = 0
    last_error: str = ""
    preparing: str = ""
    follow_up_requests: Mapping[str, FollowUpStats] = field(default_factory=dict)

    def __str__(self) -> str:
        parts = [f"{self.delivered:,} of {self.recorded:,} spans delivered", *_lost("", self.lost)]
        parts += _said(
            ("{:,} queued", self.queued),
            ("{:,} on disk", self.spooled),
            ("{:,} without payload", self.payloads_dropped),
            ("{:,} with payload cut by the backend's limits", self.payloads_shrunk),
            ("{:,} joined with their trajectory", self.joined),
            ("{:,} without a trajectory", self.orphaned),
        )
        for kind, work in self.follow_up_requests.items():
            parts += _said((f"{{:,}} {kind} waiting", work.waiting)) + _lost(f"{kind} ", work.lost)
        return ", ".join([*parts, *([self.preparing] if self.preparing else [])])


@dataclass(frozen=True, repr=False)
class Stats:
    """The counts of the process.

    Args:
        exporters: The counts of each exporter by its name.
        truncated_bytes: Bytes of payloads, attributes and names that the limits cut.
        redacted: Secrets that were replaced.
        internal_errors: Faults of otel-rollout itself, and of `transforms`, by the work that failed.
        lost_annotations: Values given to `annotate` for a trajectory that couldn't be recorded, by reason.
        repeated_annotations: Values that this process gave twice to one trajectory after its end, by argument; they are
            recorded again.
        unread_answers: Results of LLM ops in which no answer was recognised, by op.
        unread_usage: Results of LLM ops in which no number of tokens was recognised, by op.
        open_spans: Spans that have started and not ended; among them those that never end, such as the span of a
            coroutine that nobody awaits.
        has_external_exporters: True if only the exporters of the application's provider get spans, which count nothing.
    """

    exporters: Mapping[str, ExporterStats] = field(default_factory=dict)
    truncated_bytes: int = 0
    redacted: int = 0
    internal_errors: Mapping[str, int] = field(default_factory=dict)
    lost_annotations: Mapping[str, int] = field(default_factory=lambda: dict(lost_annotations))
    repeated_annotations: Mapping[str, int] = field(default_factory=lambda: dict(repeated_annotations))
    unread_answers: Mapping[str, int] = field(default_factory=lambda: dict(unread_answers))
    unread_usage: Mapping[str, int] = field(default_factory=lambda: dict(unread_usage))
    open_spans: int = 0
    has_external_exporters: bool = False

    @property
    def lost(self) -> int:
        """Spans lost, summed over the exporters; without those that the backend may have."""
        lost = sum((Counter(exporter.lost) for exporter in self.exporters.values()), Counter())
        return lost.total() - lost["unknown"]

    def __repr__(self) -> str:
        return f"<Stats {self}>"

    def _repr_html_(self) -> str:
        from otel_rollout.text.html_table import html_table

        header = ("exporter", "recorded", "delivered", "queued", "on disk", "lost", "last error")
        rows = [
            (name, each.recorded, each.delivered, each.queued, each.spooled, sum(each.lost.values()), each.last_error)
            for name, each in self.exporters.items()
        ]
        return html_table(header, rows, str(self))

    def __str__(self) -> str:
        parts = [
            "traced by the application's tracer provider, whose exporters are not counted here"
        ] * self.has_external_exporters
        parts += [f"{name}: {exporter}" for name, exporter in self.exporters.items()]
        parts += _said(
            ("open spans: {:,}", self.open_spans),
            ("{:,} payload bytes cut", self.truncated_bytes),
            ("{:,} secrets replaced", self.redacted),
            ("{:,} internal errors", sum(self.internal_errors.values())),
        )
        parts += _lost("annotations ", self.lost_annotations)
        parts += _said(
            ("{:,} annotations given twice", sum(self.repeated_annotations.values())),
            ("{:,} answers not recognised", sum(self.unread_answers.values())),
            ("{:,} results without a number of tokens", sum(self.unread_usage.values())),
        )
        return "; ".join(parts) or "tracing is off"


def _said(*counts: tuple[str, int]) -> list[str]:
    return [text.format(count) for text, count in counts if count]


def _lost(noun: str, reasons: Mapping[str, int]) -> list[str]:
    known = {reason: count for reason, count in reasons.items() if count and reason != "unknown"}
    listed = ", ".join(f"{reason} {count:,}" for reason, count in known.items())
    parts = [f"{sum(known.values()):,} {noun}lost ({listed})"] if known else []
    return parts + _said((f"{{:,}} {noun}unknown (a request without an answer)", reasons.get("unknown", 0)))
