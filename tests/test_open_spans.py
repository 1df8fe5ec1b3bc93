"""Our data about spans on an application's provider."""

from __future__ import annotations

import pytest
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider

from otel_rollout.record import ProviderSpans, RolloutSpan, TrajectoryState

pytestmark = pytest.mark.every_python


class TestProviderSpans:
    """From a span's start to its end."""

    def test_a_span_of_ours_ends_with_its_trajectory(self) -> None:
        """Data that the SDK's span can't carry is returned once."""
        spans, trajectory = ProviderSpans(), TrajectoryState({})
        span = TracerProvider().get_tracer("test").start_span("op")
        spans.started(span, trajectory)
        assert isinstance(span, ReadableSpan)

        ended = spans.ended(span)

        assert isinstance(ended, RolloutSpan)
        assert ended.trajectory is trajectory
        assert ended.readable is span
        assert spans.ended(span) is span

    def test_spans_that_never_end_are_forgotten(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Memory is bounded if the program leaves spans open; forgotten spans are exported as they are."""
        monkeypatch.setattr(ProviderSpans, "max_spans", 2)
        spans, tracer = ProviderSpans(), TracerProvider().get_tracer("test")
        started = [tracer.start_span(str(number)) for number in range(3)]
        for span in started:
            spans.started(span, None)

        ended = [spans.ended(span) for span in started if isinstance(span, ReadableSpan)]

        assert [isinstance(span, RolloutSpan) for span in ended] == [False, True, True]
        assert not spans._trajectories
