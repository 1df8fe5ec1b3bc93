"""What the `otlp` exporters add to spans: events of rewards, arguments and results of tool calls."""

from __future__ import annotations

import json
from typing import Any

import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.sdk.trace import Event, ReadableSpan
from opentelemetry.trace import SpanContext

from otel_rollout import flush, rollout_trace_op
from otel_rollout.export import additions_of
from otel_rollout.otlp import encode_spans
from otel_rollout.testing import InMemorySpanExporter

END = 1_700_000_001_000_000_000
PARTS = {"correct": True, "verdict": "good", "judge": {"value": 0.5, "explanation": "half right"}}


def make_span(attributes: dict[str, Any], *events: Event) -> ReadableSpan:
    """Return a finished span."""
    context = SpanContext(1, 2, is_remote=False)
    return ReadableSpan("root", context, attributes=attributes, events=events, start_time=END - 5, end_time=END)


def evaluation_events(span: ReadableSpan) -> list[Event]:
    """Return the events that are added to a span."""
    return additions_of(span)[1]


class TestEvaluationEvents:
    """A reward and its parts."""

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

    def test_reason_of_a_fate(self) -> None:
        """The reason of a fate is its explanation, and measures of training are no events."""
        attributes = {"rollout.fate": "stale", "rollout.fate_reason": "5 versions", "rollout.entropy": 0.5}
        [found] = evaluation_events(make_span(attributes))
        assert found.attributes is not None
        assert found.attributes["gen_ai.evaluation.score.label"] == "stale"
        assert found.attributes["gen_ai.evaluation.explanation"] == "5 versions"

    def test_other_spans_have_none(self) -> None:
        """A span without a reward gets no event."""
        assert evaluation_events(make_span({"rollout.step": 1})) == []


class TestToolCalls:
    """The arguments and the result of an op of the kind TOOL."""

    def test_they_are_its_input_and_output(self, rollout_spans: InMemorySpanExporter) -> None:
        """They are JSON or a text as the payload is; other spans get none."""

        @rollout_trace_op(kind="TOOL")
        def search(query: str, limit: int) -> str:
            return f"{limit} pages on {query}"

        @rollout_trace_op
        def other(query: str) -> str:
            return search(query, 3)

        other("bees")
        flush()

        tool, chain = rollout_spans.spans
        assert additions_of(chain)[0] == {}
        assert additions_of(tool)[0] == {
            "gen_ai.tool.call.arguments": '{"query":"bees","limit":3}',
            "gen_ai.tool.call.result": "3 pages on bees",
        }
        attributes = dict(tool.attributes or {})
        assert (attributes["gen_ai.tool.name"], attributes["gen_ai.tool.type"]) == (search.__qualname__, "function")

    @pytest.mark.parametrize("options", [{"capture_inputs": False}, {"capture_output": False}])
    def test_a_side_that_is_not_recorded(self, rollout_spans: InMemorySpanExporter, options: dict[str, Any]) -> None:
        """What isn't captured isn't there."""

        @rollout_trace_op(kind="TOOL", **options)
        def search(query: str) -> str:
            return query

        search("bees")
        flush()

        (span,) = rollout_spans.spans
        left = "result" if "capture_inputs" in options else "arguments"
        assert list(additions_of(span)[0]) == [f"gen_ai.tool.call.{left}"]

    def test_secrets_and_long_payloads(self, rollout_spans: InMemorySpanExporter) -> None:
        """They are redacted as the payload is, and cut to 64 KiB: JSON stays valid, and the payload whole."""

        @rollout_trace_op(kind="TOOL")
        def read(path: str, password: str) -> list[str]:
            return ["x" * 1000] * 200

        read("notes", "hunter2")
        flush()

        (span,) = rollout_spans.spans
        added = additions_of(span)[0]
        assert "hunter2" not in added["gen_ai.tool.call.arguments"]
        assert len(added["gen_ai.tool.call.result"]) <= 64 * 1024 < len((span.attributes or {})["output.value"])  # type: ignore[arg-type]
        assert json.loads(added["gen_ai.tool.call.result"])[0].startswith("xxx")

    def test_a_long_text(self) -> None:
        """A text that is no JSON loses its middle."""
        given = {
            "gen_ai.operation.name": "execute_tool",
            "output.value": "ä" * 100_000,
            "output.mime_type": "text/plain",
        }
        added = additions_of(make_span(given))[0]
        assert len(added["gen_ai.tool.call.result"]) < 65 * 1024
        assert added["gen_ai.tool.call.result"].endswith("ä")

    def test_a_span_that_has_them(self) -> None:
        """A span of another instrumentation, or one that is passed on, keeps its own."""
        given = {"gen_ai.operation.name": "execute_tool", "input.value": "mine", "gen_ai.tool.call.arguments": "{}"}
        assert additions_of(make_span(given))[0] == {}


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
    """What is added, in a request."""

    @pytest.mark.parametrize("more", [None, additions_of])
    def test_events_beside_the_spans_own(self, more: Any) -> None:
        """They stand behind the span's own events; the span itself stays as it is."""
        span = make_span({"rollout.reward": 0.5}, Event("mine", {}, END - 1))
        request = ExportTraceServiceRequest.FromString(encode_spans([span, make_span({})], more))
        [first, second] = request.resource_spans[0].scope_spans[0].spans
        assert [event.name for event in first.events] == ["mine", *(["gen_ai.evaluation.result"] if more else [])]
        assert list(second.events) == []
        assert [event.name for event in span.events] == ["mine"]

    def test_attributes_beside_the_spans_own(self) -> None:
        """They stand behind the span's own attributes."""
        given = {"gen_ai.operation.name": "execute_tool", "output.value": "x" * 50_000}
        request = ExportTraceServiceRequest.FromString(encode_spans([make_span(given)], additions_of))
        (span,) = request.resource_spans[0].scope_spans[0].spans
        assert {pair.key: pair.value.string_value for pair in span.attributes} == {
            **given,
            "gen_ai.tool.call.result": given["output.value"],
        }
