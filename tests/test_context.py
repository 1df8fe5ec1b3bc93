"""Our part of the OpenTelemetry context."""

from __future__ import annotations

import contextvars

from opentelemetry import baggage, trace
from opentelemetry import context as context_api

import otel_rollout
from otel_rollout import rollout_trace_attr, rollout_trace_op
from otel_rollout.testing import InMemorySpanExporter, span_tree


class TestForeignContexts:
    """Other code attaches contexts too."""

    def test_attached_inside_a_trajectory(self, rollout_spans: InMemorySpanExporter) -> None:
        """A context that other code attaches inside a trajectory leaves the trajectory in place."""

        @rollout_trace_op(name="op")
        def op() -> None:
            return None

        with rollout_trace_attr(1, name="root"):
            token = context_api.attach(baggage.set_baggage("user", "7"))
            op()
            context_api.detach(token)
        assert otel_rollout.flush(60)
        assert span_tree(rollout_spans.spans) == [["root", ["op"]]]

    def test_left_attached_by_an_op(self, rollout_spans: InMemorySpanExporter) -> None:
        """A context that an op attaches and leaves stays current, as it does untraced, without the op's span."""

        @rollout_trace_op(name="careless")
        def careless() -> None:
            context_api.attach(baggage.set_baggage("user", "7"))

        @rollout_trace_op(name="op")
        def op() -> None:
            return None

        def run() -> None:
            with rollout_trace_attr(1, name="root"):
                careless()
                op()
                assert baggage.get_baggage("user") == "7"
            assert baggage.get_baggage("user") == "7"
            assert not trace.get_current_span().get_span_context().is_valid

        contextvars.copy_context().run(run)
        assert otel_rollout.flush(60)
        assert span_tree(rollout_spans.spans) == [["root", ["careless"], ["op"]]]
