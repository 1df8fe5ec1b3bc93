"""Rewards as `gen_ai.evaluation.result` events, which the `otlp` exporters add to spans."""

from __future__ import annotations

import json
from typing import Any

import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.sdk.trace import Event, ReadableSpan
from opentelemetry.trace import SpanContext

from otel_rollout.export.evaluation_events import evaluation_events
from otel_rollout.export.otlp_encoding import encode_spans

END = 1_700_000_001_000_000_000
PARTS = {"correct": True, "verdict": "good", "judge": {"value": 0.5, "explanation": "half right"}}


def make_span(attributes: dict[str, Any], *events: Event) -> ReadableSpan:
    """Return a finished span."""
    context = SpanContext(1, 2, is_remote=False)
    return ReadableSpan("root", context, attributes=attributes, events=events, start_time=END - 5, end_time=END)


class TestEvaluationEvents:
    """`evaluation_events`."""

    def test_reward_and_parts(self) -> None:
        """The reward and each part is one event at the span's end: a score, a label, or both of a boolean."""
        found = evaluation_events(make_span({"rollout.reward": 1.0, "rollout.reward_parts": json.dumps(PARTS)}))
        prefix = "gen_ai.evaluation"
        assert {(event.name, event.timestamp) for event in found} == {("gen_ai.evaluation.result", END)}
        attributes = [dict(event.attributes or {}) for event in found]
        ids = [each.pop("rollout.evaluation_id") for each in attributes]
        assert ids == [f"{1:032x}/{name}" for name in ("reward", *PARTS)]
        assert attributes == [
            {f"{prefix}.name": "reward", f"{prefix}.score.value": 1.0},
            {f"{prefix}.name": "correct", f"{prefix}.score.value": 1.0, f"{prefix}.score.label": "true"},
            {f"{prefix}.name": "verdict", f"{prefix}.score.label": "good"},
            {f"{prefix}.name": "judge", f"{prefix}.score.value": 0.5, f"{prefix}.explanation": "half right"},
        ]

    def test_what_training_made_of_it(self) -> None:
        """Advantage and fate are events of their own."""
        found = evaluation_events(make_span({"rollout.advantage": -0.5, "rollout.fate": "stale"}))
        shown = [
            (each.get("gen_ai.evaluation.score.value"), each.get("gen_ai.evaluation.score.label"))
            for each in (event.attributes or {} for event in found)
        ]
        assert shown == [(-0.5, None), (None, "stale")]

    def test_other_spans_have_none(self) -> None:
        """A span without a reward gets no event."""
        assert evaluation_events(make_span({"rollout.step": 1})) == []


class TestHops:
    """Spans that are passed on."""

    def test_an_event_that_is_there_already(self) -> None:
        """A part whose event came with the span, as in a second hop or a replay, gets no other one."""
        given = make_span({"rollout.reward": 1.0, "rollout.reward_parts": json.dumps({"correct": True})})
        once = evaluation_events(given)
        assert evaluation_events(make_span(dict(given.attributes or {}), *once)) == []
        rest = evaluation_events(make_span(dict(given.attributes or {}), once[0]))
        assert [(event.attributes or {})["gen_ai.evaluation.name"] for event in rest] == ["correct"]


class TestEncoding:
    """The events in a request."""

    @pytest.mark.parametrize("more", [None, evaluation_events])
    def test_events_beside_the_spans_own(self, more: Any) -> None:
        """They stand behind the span's own events; the span itself stays as it is."""
        span = make_span({"rollout.reward": 0.5}, Event("mine", {}, END - 1))
        request = ExportTraceServiceRequest.FromString(encode_spans([span, make_span({})], more))
        [first, second] = [each.scope_spans[0].spans[0] for each in request.resource_spans]
        assert [event.name for event in first.events] == ["mine", *(["gen_ai.evaluation.result"] if more else [])]
        assert list(second.events) == []
        assert [event.name for event in span.events] == ["mine"]
