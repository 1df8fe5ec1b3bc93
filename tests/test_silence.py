"""`trace=False`: nothing inside is traced, by us or by any other instrumentation."""

from __future__ import annotations

from typing import Any

import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor

from otel_rollout import annotate, rollout_trace_attr, rollout_trace_op
from otel_rollout.testing import InMemorySpanExporter
from tests.ops import recorded


@rollout_trace_op(name="op")
def op(value: int = 0) -> int:
    """Return the value."""
    return value


class TestSilence:
    """`trace=False`."""

    def test_everything_inside(self, rollout_spans: InMemorySpanExporter) -> None:
        """`trace=False` silences ops, generators, trajectories inside and annotations, and nothing after it."""

        @rollout_trace_op
        def generate() -> Any:
            yield op()

        with rollout_trace_attr(1, trace=False):
            op()
            assert list(generate()) == [0]
            with rollout_trace_attr(2, name="inner"):
                op()
                annotate(reward=1.0)
            annotate(reward=1.0)
        op(7)
        (span,) = recorded(rollout_spans)
        assert span["attributes"]["input.value"] == {"value": 7}

    def test_inside_a_trajectory(self, rollout_spans: InMemorySpanExporter) -> None:
        """`trace=False` inside a trajectory silences that stretch of it only."""
        with rollout_trace_attr(1):
            with rollout_trace_attr(1, trace=False):
                op(1)
            op(2)
        inside, _ = recorded(rollout_spans)
        assert inside["attributes"]["input.value"] == {"value": 2}

    def test_spans_of_others(self, rollout_spans: InMemorySpanExporter) -> None:
        """An SDK tracer records nothing inside `trace=False`, and goes on after it."""
        exporter = InMemorySpanExporter()
        provider = TracerProvider()
        provider.add_span_processor(SimpleSpanProcessor(exporter))
        tracer = provider.get_tracer("openai")
        with tracer.start_as_current_span("before"):
            with rollout_trace_attr(1, trace=False), tracer.start_as_current_span("inside"):
                assert not trace.get_current_span().is_recording()
            with tracer.start_as_current_span("after"):
                pass
        assert [span.name for span in exporter.spans] == ["after", "before"]

    def test_instrumentations_are_told(self, rollout_spans: InMemorySpanExporter) -> None:
        """`trace=False` sets the key that OpenTelemetry's instrumentations look at."""
        instrumentor_utils = pytest.importorskip("opentelemetry.instrumentation.utils")
        assert instrumentor_utils.is_instrumentation_enabled()
        with rollout_trace_attr(1, trace=False):
            assert not instrumentor_utils.is_instrumentation_enabled()
        assert instrumentor_utils.is_instrumentation_enabled()

    def test_off_is_not_silence(self) -> None:
        """While tracing is off, a trajectory leaves other instrumentations alone."""
        tracer = TracerProvider().get_tracer("openai")
        with rollout_trace_attr(1, trace=False), tracer.start_as_current_span("inside") as span:
            assert span.is_recording()
