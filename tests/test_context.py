"""Our part of the OpenTelemetry context."""

from __future__ import annotations

import contextvars
import logging

import pytest
from opentelemetry import baggage, trace
from opentelemetry import context as context_api
from opentelemetry.trace import NonRecordingSpan, SpanContext

import otel_rollout
from otel_rollout import rollout_trace_attr, rollout_trace_op
from otel_rollout.record import SILENCE, Frame, current_frame, in_silence, leave, with_frame
from otel_rollout.testing import InMemorySpanExporter, span_tree

SPAN = NonRecordingSpan(SpanContext(1, 2, is_remote=False))


class TestFrames:
    """Entering and leaving."""

    def test_enter_and_leave(self) -> None:
        """A frame and its span are current until the token undoes it; what else is in the context stays."""
        before = baggage.set_baggage("user", "7")
        frame = Frame(None, SPAN)
        inside = with_frame(before, frame)
        token = context_api.attach(inside)
        assert current_frame(inside) is frame
        assert trace.get_current_span() is SPAN
        assert baggage.get_baggage("user") == "7"
        leave(token, inside)
        assert current_frame(context_api.get_current()) is None
        assert not trace.get_current_span().get_span_context().is_valid

    def test_leave_in_another_context(self, caplog: pytest.LogCaptureFixture) -> None:
        """Leaving from another context than was entered does nothing, and logs nothing."""
        with caplog.at_level(logging.DEBUG):
            inside = with_frame(context_api.get_current(), Frame(None, SPAN))
            leave(contextvars.copy_context().run(context_api.attach, inside), inside)
        assert current_frame(context_api.get_current()) is None
        assert caplog.records == []

    def test_silence(self) -> None:
        """In silence the current span is not sampled, with ids of its own each time, and the frame says so."""
        seen = []
        for _ in range(2):
            inside = in_silence(context_api.get_current())
            token = context_api.attach(inside)
            assert current_frame(context_api.get_current()) is SILENCE
            span = trace.get_current_span().get_span_context()
            assert (span.is_valid, span.trace_flags.sampled) == (True, False)
            seen.append(span.trace_id)
            leave(token, inside)
        assert seen[0] != seen[1]
        assert current_frame(context_api.get_current()) is None


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
        assert otel_rollout.flush(10.0)
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
        assert otel_rollout.flush(10.0)
        assert span_tree(rollout_spans.spans) == [["root", ["careless"], ["op"]]]
