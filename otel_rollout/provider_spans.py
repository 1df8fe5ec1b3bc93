"""What is known of our spans on a provider that is not ours, from their start until our queues take them."""

from __future__ import annotations

from typing import Any

from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.trace import Span

from otel_rollout.span import RolloutSpan
from otel_rollout.trajectory_state import TrajectoryState

__all__ = ["ProviderSpans"]


class ProviderSpans:
    """The trajectories and tokenizers of spans that are the SDK's: these can't carry them."""

    def __init__(self) -> None:
        self._trajectories: dict[int, TrajectoryState | None] = {}
        self._tokenizers: dict[int, Any] = {}

    def started(self, span: Span, trajectory: TrajectoryState | None) -> None:
        """Remember whose span this is, until it has ended."""
        self._trajectories[span.get_span_context().span_id] = trajectory

    def note_tokenizer(self, span: Span, tokenizer: Any) -> None:
        """Remember what decodes the token ids of this span's output."""
        self._tokenizers[span.get_span_context().span_id] = tokenizer

    def ended(self, span: ReadableSpan) -> RolloutSpan | ReadableSpan:
        """Return what is queued: the span with what was known of it, or as it is where it is none of ours.

        Args:
            span: A span of the provider that has ended.
        """
        context = span.context
        if context is None or context.span_id not in self._trajectories:
            return span
        ours = RolloutSpan(
            span.name, context, span.parent, {}, self._trajectories.pop(context.span_id), (), lambda ended: None
        )
        ours.readable = span
        ours.tokenizer = self._tokenizers.pop(context.span_id, None)
        ours.end_time = span.end_time
        return ours
