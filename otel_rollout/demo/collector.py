"""An exporter of the demo's own: keeps the spans of one step in memory, to show a trajectory at the end."""

from __future__ import annotations

import threading
from collections.abc import Sequence

from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export import SpanExporter, SpanExportResult

from otel_rollout import semconv

__all__ = ["StepCollector"]


class StepCollector(SpanExporter):
    """Keeps the spans of the training trajectories of one step.

    Args:
        step: The step.
        max_spans: How many spans are kept; later ones are let go.
    """

    def __init__(self, step: int = 1, max_spans: int = 20_000) -> None:
        self._step = step
        self._max_spans = max_spans
        self._spans: list[ReadableSpan] = []
        self._lock = threading.Lock()

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        """Keep those spans of the batch that belong to the step."""
        with self._lock:
            room = self._max_spans - len(self._spans)
            self._spans += [span for span in spans if self._is_wanted(span)][: max(0, room)]
        return SpanExportResult.SUCCESS

    def trajectory(self, sample_index: int, rollout_n: int) -> list[ReadableSpan]:
        """Return the spans of one trajectory, in the order in which they began."""
        with self._lock:
            spans = [span for span in self._spans if _ids(span) == (sample_index, rollout_n)]
        return sorted(spans, key=lambda span: span.start_time or 0)

    def _is_wanted(self, span: ReadableSpan) -> bool:
        attributes = span.attributes or {}
        return attributes.get(semconv.STEP) == self._step and not attributes.get(semconv.VALIDATE)


def _ids(span: ReadableSpan) -> tuple[object, object]:
    attributes = span.attributes or {}
    return attributes.get(semconv.SAMPLE_INDEX), attributes.get(semconv.ROLLOUT_N)
