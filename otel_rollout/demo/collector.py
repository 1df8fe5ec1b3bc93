"""The demo's own exporter: keeps the spans of one step in memory."""

from __future__ import annotations

from collections.abc import Sequence

from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export import SpanExportResult

from otel_rollout import semconv
from otel_rollout.testing import InMemorySpanExporter

__all__ = ["StepCollector"]


class StepCollector(InMemorySpanExporter):
    """Keeps the spans of the training trajectories of one step.

    Args:
        step: The step.
        max_spans: The most spans that are kept; later ones are dropped.
    """

    def __init__(self, step: int = 1, max_spans: int = 20_000) -> None:
        super().__init__()
        self._step = step
        self._max_spans = max_spans

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        """Keep those spans of the batch that belong to the step."""
        wanted = [span for span in spans if _values(span, semconv.STEP, semconv.VALIDATE) == [self._step, False]]
        return super().export(wanted[: self._max_spans - len(self.spans)])

    def trajectory(self, sample_index: int, rollout_n: int) -> list[ReadableSpan]:
        """Return the spans of one trajectory in the order of start."""
        ids = [sample_index, rollout_n]
        spans = [span for span in self.spans if _values(span, semconv.SAMPLE_INDEX, semconv.ROLLOUT_N) == ids]
        return sorted(spans, key=lambda span: span.start_time or 0)


def _values(span: ReadableSpan, *keys: str) -> list[object]:
    return [(span.attributes or {}).get(key) for key in keys]
