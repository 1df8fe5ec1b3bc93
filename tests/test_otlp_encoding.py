"""Our OTLP encoding says what the SDK's own says, and copies no payload on the way."""

from __future__ import annotations

import tracemalloc
from types import SimpleNamespace

import pytest
from opentelemetry.exporter.otlp.proto.common.trace_encoder import encode_spans as stock_encode_spans
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.common.v1.common_pb2 import AnyValue
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan, SpanLimits, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.sdk.util.instrumentation import InstrumentationScope
from opentelemetry.trace import (
    Link,
    NonRecordingSpan,
    SpanContext,
    SpanKind,
    StatusCode,
    TraceFlags,
    TraceState,
    get_current_span,
    set_span_in_context,
)

from otel_rollout.otlp import encode_spans

RESOURCE = Resource({"service.name": "test", "numbers": (1, 2)}, schema_url="https://schema.example/1")
SCOPE = InstrumentationScope("scope", "1", "https://schema.example/2")
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


def finished(attributes, scope=None):
    """Return a span that has these attributes, unchecked by the SDK."""
    return ReadableSpan(
        "op",
        SpanContext(1, 2, False, TraceFlags(1)),
        resource=RESOURCE,
        attributes=attributes,
        start_time=1,
        end_time=2,
        instrumentation_scope=scope,
    )


class TestEquality:
    """The same message as the SDK's encoder makes."""

    @pytest.mark.parametrize("kind", list(SpanKind))
    @pytest.mark.parametrize("status", list(StatusCode))
    def test_kinds_and_statuses(self, tracing, kind, status):
        """Every kind and status is numbered as OTLP numbers it."""
        with tracing.tracer.start_as_current_span("op", kind=kind) as span:
            span.set_status(status, "why" if status is StatusCode.ERROR else None)
        spans = tracing.exporter.get_finished_spans()
        assert as_ours(spans) == as_stock(spans)

    @pytest.mark.parametrize(
        "value",
        [
            "text",
            "",
            "漢字 é 🙂",
            "x" * 300,
            True,
            False,
            0,
            1,
            -1,
            300,
            2**40,
            2**63 - 1,
            -(2**63),
            0.0,
            -1.5,
            float("inf"),
            b"bytes \x00\xff",
            ("a",),
            ("漢字",),
            ("x" * 300,),
            ("a", "b"),
            (),
            (True, False),
            (1, 2),
            (1.5, 2.5),
            {"key": "value", "nested": {"list": [1, "a"]}},
            [[1, 2], ["a"]],
            {},
        ],
        ids=repr,
    )
    def test_every_type_of_attribute(self, value):
        """Every value that an attribute may have is written as the SDK writes it."""
        spans = [finished({"key": value, "other": 1}, SCOPE)]
        assert as_ours(spans) == as_stock(spans)

    def test_events_links_parents_and_dropped_counts(self, tracing):
        """Events, links, a remote parent with its trace state, exceptions, and what the limits dropped."""
        context = set_span_in_context(NonRecordingSpan(REMOTE))
        links = [Link(REMOTE, {"why": "because"}), Link(SpanContext(1, 2, False))]
        with tracing.tracer.start_as_current_span("parent", context, links=links) as span:
            span.set_attributes({f"key{number}": number for number in range(30)})
            span.add_event("happened", {"a": 1, "b": ("x", "y")}, timestamp=123)
            span.record_exception(ValueError("no"))
            with tracing.tracer.start_as_current_span("child"):
                pass
        spans = tracing.exporter.get_finished_spans()
        assert spans[-1].dropped_attributes == 10
        assert as_ours(spans) == as_stock(spans)

    def test_the_trace_state_of_a_link(self, tracing):
        """A link has the trace state of the span that it refers to, which the SDK's encoder leaves out."""
        state = TraceState([("vendor", "value")])
        linked = SpanContext(7, 8, is_remote=True, trace_state=state)
        with tracing.tracer.start_as_current_span("op", links=[Link(linked)]):
            pass
        request = ExportTraceServiceRequest.FromString(encode_spans(tracing.exporter.get_finished_spans()))
        [span] = request.resource_spans[0].scope_spans[0].spans
        assert [link.trace_state for link in span.links] == ["vendor=value"]

    def test_what_our_spans_drop_beyond_their_limits_is_counted(self, rollout_spans):
        """A receiver learns how many attributes, events and links a span had beside those that it shows."""
        import otel_rollout

        @otel_rollout.rollout_trace_op
        def op():
            span = get_current_span()
            span.set_attributes({f"key{number}": number for number in range(150)})
            for number in range(1, 131):
                span.add_event("event")
                span.add_link(SpanContext(1, number, False))

        op()
        assert otel_rollout.flush(10)
        (span,) = parsed(rollout_spans.spans).resource_spans[0].scope_spans[0].spans
        assert (len(span.events), len(span.links)) == (128, 128)
        assert (span.dropped_events_count, span.dropped_links_count) == (2, 2)
        # 128, of which two are the op's own, and four input and output.
        assert (len(span.attributes), span.dropped_attributes_count) == (128, 150 - 122)

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

    def test_resources_and_scopes_are_grouped(self, tracing):
        """Spans of several resources and scopes stand under theirs, in their order."""
        other = TracerProvider(resource=Resource({"service.name": "other"}), shutdown_on_exit=False)
        other.add_span_processor(SimpleSpanProcessor(tracing.exporter))
        tracers = [
            tracing.tracer,
            tracing.provider.get_tracer("second", "2", "https://schema.example/2", {"scope": "attribute"}),
            other.get_tracer("third"),
        ]
        for number in range(9):
            tracers[number % 3].start_span(f"op{number}").end()
        spans = tracing.exporter.get_finished_spans()
        ours = as_ours(spans)
        assert [each.name for _, _, each in _placed(ours)] == [span.name for span in spans]
        assert sorted(_placed(ours), key=str) == sorted(_placed(as_stock(spans)), key=str)
        other.shutdown()

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

    def test_an_empty_batch(self):
        """No spans make an empty request."""
        assert as_ours([]) == as_stock([])


class TestBeyondTheSdk:
    """Values that the SDK's encoder drops or fails on."""

    @pytest.mark.parametrize("flags", [0, 1, 3])
    def test_the_trace_flags_are_sent(self, flags):
        """The low byte of the flags is that of the W3C trace context, as trace.proto says."""
        span = ReadableSpan("op", SpanContext(1, 2, False, TraceFlags(flags)), resource=RESOURCE)
        message = parsed([span]).resource_spans[0].scope_spans[0].spans[0]
        assert message.flags == 0x100 | flags

    @pytest.mark.parametrize("key", ["key", "\ud800"])
    def test_lone_surrogates_become_question_marks(self, key):
        """Text that UTF-8 can't hold arrives with a mark in its place, in every field."""
        span = finished({key: "a\udfffb"})
        span._name = "op\ud800"
        message = parsed([span]).resource_spans[0].scope_spans[0].spans[0]
        assert message.name == "op?"
        assert message.attributes[0].key == key.replace("\ud800", "?")
        assert message.attributes[0].value.string_value == "a?b"

    def test_a_value_of_no_known_type_becomes_text(self):
        """Anything else arrives as its text."""
        message = parsed([finished({"key": 1j})]).resource_spans[0].scope_spans[0].spans[0]
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
        message = parsed([finished({"key": value})]).resource_spans[0].scope_spans[0].spans[0]
        assert message.attributes[0].value == AnyValue(**expected)

    def test_keys_that_are_no_texts_become_texts(self):
        """A number as a key inside a value arrives as its text."""
        message = parsed([finished({"key": {1: "a"}})]).resource_spans[0].scope_spans[0].spans[0]
        assert message.attributes[0].value.kvlist_value.values[0].key == "1"

    def test_a_span_without_a_scope_is_encoded(self):
        """A span that no scope claims stands in a group without one."""
        span = finished({})
        assert span.instrumentation_scope is None
        assert parsed([span]).resource_spans[0].scope_spans[0].scope.name == ""

    def test_a_scope_that_is_replaced_is_not_mixed_up(self):
        """Scopes are told apart even where one is made after another is gone."""
        names = []
        for name in ("first", "second", "third"):
            span = finished({}, InstrumentationScope(name))
            names.append(parsed([span]).resource_spans[0].scope_spans[0].scope.name)
            del span
        assert names == ["first", "second", "third"]


class TestInPlace:
    """A payload is copied as bytes and into the request, and nowhere else."""

    def test_encoding_takes_no_more_memory_than_two_copies(self):
        """The peak while a payload is encoded stays near two copies of it."""
        span = finished({"input.value": "x" * 4_000_000})
        encode_spans([span])
        tracemalloc.start()
        try:
            request = encode_spans([span])
            peak = tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()
        assert len(request) > 4_000_000
        assert peak < 9_000_000
