"""Our OTLP encoding says what the SDK's own says, and copies no payload on the way."""

from __future__ import annotations

import tracemalloc
from types import SimpleNamespace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from opentelemetry.exporter.otlp.proto.common.trace_encoder import encode_spans as stock_encode_spans
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.common.v1.common_pb2 import AnyValue
from opentelemetry.sdk.trace import SpanLimits, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.sdk.util.instrumentation import InstrumentationScope
from opentelemetry.trace import (
    Link,
    SpanContext,
    TraceFlags,
    TraceState,
)

from otel_rollout.otlp import encode_spans
from tests.trace_folder.test_otlp import RESOURCE, make_span, spans

REMOTE = SpanContext(2**127 + 5, 2**63 + 7, True, TraceFlags(1), TraceState([("vendor", "value")]))


def as_stock(spans):
    """Return the request as the SDK's encoder makes it, through bytes."""
    return ExportTraceServiceRequest.FromString(stock_encode_spans(spans).SerializeToString())


def parsed(spans):
    """Return the request as a receiver reads it."""
    return ExportTraceServiceRequest.FromString(encode_spans(spans))


def as_ours(spans):
    """Return the request as ours makes it, through bytes, without the W3C trace flags, which the SDK leaves out."""
    request = ExportTraceServiceRequest.FromString(encode_spans(spans))
    for resource_spans in request.resource_spans:
        for scope_spans in resource_spans.scope_spans:
            for span in scope_spans.spans:
                for flagged in (span, *span.links):
                    flagged.flags &= ~0xFF
                for link in span.links:
                    # The SDK leaves it out.
                    link.trace_state = ""
    return request


def _placed(request):
    """Return each span of a request with its resource and scope."""
    return [
        ((resource.resource, resource.schema_url), (scope.scope, scope.schema_url), span)
        for resource in request.resource_spans
        for scope in resource.scope_spans
        for span in scope.spans
    ]


@pytest.fixture
def tracing():
    """A provider of the SDK that keeps its spans in memory."""
    exporter = InMemorySpanExporter()
    provider = TracerProvider(resource=RESOURCE, span_limits=SpanLimits(max_attributes=20), shutdown_on_exit=False)
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    yield SimpleNamespace(provider=provider, tracer=provider.get_tracer("scope", "1.0"), exporter=exporter)
    provider.shutdown()


class TestEquality:
    """The same message as the SDK's encoder makes."""

    @settings(max_examples=200)
    @given(st.lists(spans(), max_size=3))
    def test_any_spans(self, batch):
        """Each span has the same fields, under its resource and its scope, which stand once, in their order."""
        ours = as_ours(batch)
        assert [each.name for _, _, each in _placed(ours)] == [span.name for span in batch]
        assert sorted(map(str, _placed(ours))) == sorted(map(str, _placed(as_stock(batch))))

    def test_counts_of_what_is_not_there_at_all(self, tracing):
        """If a limit leaves no event and no link, their counts are sent anyway; a link's own count too."""
        limits = SpanLimits(max_events=0, max_links=0)
        provider = TracerProvider(span_limits=limits, shutdown_on_exit=False)
        provider.add_span_processor(SimpleSpanProcessor(tracing.exporter))
        span = provider.get_tracer("none").start_span("op", links=[Link(REMOTE)])
        span.add_event("event")
        span.end()
        provider = TracerProvider(span_limits=SpanLimits(max_link_attributes=1), shutdown_on_exit=False)
        provider.add_span_processor(SimpleSpanProcessor(tracing.exporter))
        provider.get_tracer("one").start_span("op", links=[Link(REMOTE, {"a": 1, "b": 2})]).end()

        spans = [
            parsed([each]).resource_spans[0].scope_spans[0].spans[0] for each in tracing.exporter.get_finished_spans()
        ]

        assert [(each.dropped_events_count, each.dropped_links_count) for each in spans] == [(1, 1), (0, 0)]
        assert [link.dropped_attributes_count for link in spans[1].links] == [1]

    def test_a_large_batch_of_trajectories(self, rollout_spans):
        """Our own spans are encoded as the same message."""
        import otel_rollout

        @otel_rollout.rollout_trace_op(kind="LLM")
        def generate(prompt, ids):
            if prompt == "fail":
                raise ValueError("漢字")
            return {"text": prompt, "ids": ids}

        for number in range(30):
            with otel_rollout.rollout_trace_attr(number, 1, number % 4):
                generate("a" * 100, list(range(50)))
                with pytest.raises(ValueError, match="漢字"):
                    generate("fail", [])
                otel_rollout.annotate(reward=0.5)
        assert otel_rollout.flush(10)
        assert len(rollout_spans.spans) == 90
        assert as_ours(rollout_spans.spans) == as_stock(rollout_spans.spans)


class TestBeyondTheSdk:
    """Values that the SDK's encoder drops or fails on."""

    @pytest.mark.parametrize("key", ["key", "\ud800"])
    def test_lone_surrogates_become_question_marks(self, key):
        """Text that UTF-8 can't hold arrives with a mark in its place, in every field."""
        span = make_span({key: "a\udfffb"})
        span._name = "op\ud800"
        message = parsed([span]).resource_spans[0].scope_spans[0].spans[0]
        assert message.name == "op?"
        assert message.attributes[0].key == key.replace("\ud800", "?")
        assert message.attributes[0].value.string_value == "a?b"

    def test_a_value_of_no_known_type_becomes_text(self):
        """Anything else arrives as its text."""
        message = parsed([make_span({"key": 1j})]).resource_spans[0].scope_spans[0].spans[0]
        assert message.attributes[0].value.string_value == "1j"

    @pytest.mark.parametrize(
        ("value", "expected"),
        [
            (("a", None), {"array_value": {"values": [{"string_value": "a"}, {}]}}),
            ({"none": None}, {"kvlist_value": {"values": [{"key": "none", "value": {}}]}}),
            ([[None]], {"array_value": {"values": [{"array_value": {"values": [{}]}}]}}),
        ],
        ids=repr,
    )
    def test_nothing_inside_a_value_is_an_empty_value(self, value, expected):
        """None in a list or a mapping keeps its place; the encoder of older SDKs drops the whole attribute."""
        message = parsed([make_span({"key": value})]).resource_spans[0].scope_spans[0].spans[0]
        assert message.attributes[0].value == AnyValue(**expected)

    def test_keys_that_are_no_texts_become_texts(self):
        """A number as a key inside a value arrives as its text."""
        message = parsed([make_span({"key": {1: "a"}})]).resource_spans[0].scope_spans[0].spans[0]
        assert message.attributes[0].value.kvlist_value.values[0].key == "1"

    def test_a_scope_that_is_replaced_is_not_mixed_up(self):
        """Scopes are told apart even where one is made after another is gone."""
        names = []
        for name in ("first", "second", "third"):
            span = make_span({}, scope=InstrumentationScope(name))
            names.append(parsed([span]).resource_spans[0].scope_spans[0].scope.name)
            del span
        assert names == ["first", "second", "third"]


class TestInPlace:
    """A payload is copied as bytes and into the request, and nowhere else."""

    def test_encoding_takes_no_more_memory_than_two_copies(self):
        """The peak while a payload is encoded stays near two copies of it."""
        span = make_span({"input.value": "x" * 4_000_000})
        encode_spans([span])
        tracemalloc.start()
        try:
            request = encode_spans([span])
            peak = tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()
        assert len(request) > 4_000_000
        assert peak < 9_000_000
