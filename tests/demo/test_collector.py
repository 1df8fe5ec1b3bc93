"""The demo's own exporter keeps what it is there to show."""

from opentelemetry.sdk.trace.export import SpanExportResult

from otel_rollout import semconv
from otel_rollout.demo.session import StepCollector

from .spans import make_span, make_trajectory


class TestStepCollector:
    """The exporter that keeps one step."""

    def test_gives_one_trajectory_in_the_order_in_which_its_spans_began(self):
        """However batches arrive, the root comes first."""
        spans = make_trajectory()
        collector = StepCollector()
        assert collector.export(spans[3:]) is SpanExportResult.SUCCESS
        collector.export(spans[:3])
        collector.export([make_span(9, "other", "AGENT", (0, 1), parent=None, **{semconv.ROLLOUT_N: 3})])
        assert collector.trajectory(7, 2) == spans

    def test_keeps_one_step_and_no_validation(self):
        """Other steps and the validation pass are let go, so that a long run takes no memory."""
        collector = StepCollector(step=1)
        collector.export([make_span(1, "a", "AGENT", (0, 1), parent=None, **{semconv.STEP: 2})])
        collector.export([make_span(1, "a", "AGENT", (0, 1), parent=None, **{semconv.VALIDATE: True})])
        assert collector.trajectory(7, 2) == []

    def test_keeps_no_more_than_it_may(self):
        """A huge step does not fill the memory."""
        collector = StepCollector(max_spans=4)
        for span in make_trajectory():
            collector.export([span])
        assert len(collector.trajectory(7, 2)) == 4
