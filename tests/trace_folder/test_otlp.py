"""Spans as OTLP requests, and back; the JSON of other programs."""

from __future__ import annotations

import base64
import math
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier

import pytest
from google.protobuf import json_format
from hypothesis import given, settings
from hypothesis import strategies as st
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.trace.v1.trace_pb2 import TracesData
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import Event, ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.sdk.util.instrumentation import InstrumentationScope
from opentelemetry.trace import (
    Link,
    SpanContext,
    SpanKind,
    Status,
    StatusCode,
    TraceFlags,
    TraceState,
)

from otel_rollout import read_trajectories
from otel_rollout.otlp import StoredSpan, decode_spans, encode_spans, json_of_request, lazy_spans, request_of_json
from tests.sdk import COPIES
from tests.trace_folder.recordings import make_trajectory, write_folder

RESOURCE = Resource({"service.name": "test", "numbers": (1, 2)}, "https://example.org/resource")
SCOPE = InstrumentationScope("scope", "1.0", "https://example.org/scope", {"a": True})

texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=80)
scalars = st.one_of(
    texts,
    st.booleans(),
    st.integers(-(2**63), 2**63 - 1),
    st.floats(),
    st.binary(max_size=20),
)
values = st.recursive(
    scalars,
    lambda inner: st.one_of(
        st.lists(st.one_of(inner, st.none()), max_size=4).map(tuple), st.dictionaries(texts, inner, max_size=4)
    ),
    max_leaves=8,
)
attributes = st.dictionaries(texts.filter(bool), values, max_size=6)
trace_states = st.sampled_from([None, TraceState([("vendor", "a=b"), ("x", "1")])])
flags = st.integers(0, 255).map(TraceFlags)
times = st.integers(1, 2**63 - 1)
trace_ids = st.integers(1, 2**128 - 1)
span_ids = st.integers(1, 2**64 - 1)
scopes = st.one_of(
    st.none(),
    st.builds(InstrumentationScope, texts, texts, st.sampled_from([None, "https://x"])),
)


@st.composite
def spans(draw):
    """A span with anything in it that a span can have."""
    trace_id, trace_flags, state = draw(trace_ids), draw(flags), draw(trace_states)
    parent = draw(st.none() | st.tuples(span_ids, st.booleans()))
    return ReadableSpan(
        name=draw(texts),
        context=SpanContext(trace_id, draw(span_ids), False, trace_flags, state),
        parent=SpanContext(trace_id, *parent, trace_flags, state) if parent else None,
        resource=Resource(draw(st.dictionaries(texts.filter(bool), texts, max_size=3)), draw(st.just("") | texts)),
        attributes=draw(attributes),
        events=[Event(*event) for event in draw(st.lists(st.tuples(texts, attributes, times), max_size=2))],
        links=[
            Link(SpanContext(*link), draw(attributes))
            for link in draw(st.lists(st.tuples(trace_ids, span_ids, st.booleans(), flags, trace_states), max_size=2))
        ],
        kind=draw(st.sampled_from(SpanKind)),
        status=draw(
            st.sampled_from([Status(StatusCode.UNSET), Status(StatusCode.OK), Status(StatusCode.ERROR)])
            | texts.filter(bool).map(lambda text: Status(StatusCode.ERROR, text))
        ),
        start_time=draw(times),
        end_time=draw(st.none() | times),
        instrumentation_scope=draw(scopes),
    )


def comparable(value):
    """A value with its types, in which NaN equals itself, and 1, 1.0 and True do not equal each other."""
    if isinstance(value, float):
        return "float", "NaN" if math.isnan(value) else (value, math.copysign(1, value))
    if isinstance(value, dict):
        return "mapping", [(key, comparable(item)) for key, item in value.items()]
    if isinstance(value, tuple):
        return "sequence", [comparable(item) for item in value]
    return type(value).__name__, value


def whole(span):
    """Everything that a span says."""
    context = lambda each: each and (each.trace_id, each.span_id, each.is_remote, each.trace_flags, each.trace_state)  # noqa: E731
    pairs = lambda each: [(key, comparable(value)) for key, value in (each or {}).items()]  # noqa: E731
    scope = span.instrumentation_scope
    return {
        "name": span.name,
        "context": context(span.context),
        "parent": context(span.parent),
        "kind": span.kind,
        "times": (span.start_time, span.end_time),
        "status": (span.status.status_code, span.status.description),
        "attributes": pairs(span.attributes),
        "events": [
            (each.name, each.timestamp, pairs(each.attributes), each.dropped_attributes) for each in span.events
        ],
        "links": [(context(each.context), pairs(each.attributes), each.dropped_attributes) for each in span.links],
        "dropped": (span.dropped_attributes, span.dropped_events, span.dropped_links),
        "resource": (pairs(span.resource.attributes), span.resource.schema_url),
        "scope": scope and (scope.name, scope.version, scope.schema_url, pairs(scope.attributes)),
    }


def make_span(attributes=None, *, name="op", span_id=1, resource=RESOURCE, scope=SCOPE, **options):
    return ReadableSpan(
        name,
        SpanContext(2**100 + 1, span_id, False, TraceFlags(1)),
        resource=resource,
        instrumentation_scope=scope,
        attributes=attributes,
        start_time=1_700_000_000_000_000_001,
        end_time=1_700_000_001_000_000_002,
        **options,
    )


def line_of(batch):
    """Spans as a line of OTLP JSON."""
    return json_of_request(encode_spans(batch))


class TestRoundTrip:
    """encode_spans, then decode_spans."""

    @given(st.lists(st.lists(spans(), max_size=2), max_size=3))
    def test_nothing_is_lost(self, parts):
        """Of any spans in any groups, joined from parts or not, all is as it was, in order."""
        found = decode_spans(b"".join(map(encode_spans, parts)))
        assert [whole(span) for span in found] == [whole(span) for part in parts for span in part]

    @settings(max_examples=50)
    @given(st.lists(spans(), max_size=3))
    def test_nothing_is_lost_in_json(self, batch):
        """What is printed as JSON is read as the same spans, except for times of zero, which JSON doesn't have."""
        request = TracesData.FromString(encode_spans(batch)).SerializeToString()
        line = json_of_request(request)
        assert b"\n" not in line
        found = decode_spans(request_of_json(line))
        assert [whole(span) for span in found] == [whole(span) for span in decode_spans(request)]

    def test_what_the_sdk_dropped_is_still_counted(self):
        """The counts of dropped attributes, events and links survive, on a span of the SDK that had too many."""
        from opentelemetry.sdk.trace import SpanLimits

        memory = InMemorySpanExporter()
        limits = SpanLimits(max_attributes=2, max_events=1, max_links=1, max_event_attributes=1, max_link_attributes=1)
        provider = TracerProvider(span_limits=limits, shutdown_on_exit=False)
        provider.add_span_processor(SimpleSpanProcessor(memory))
        other = SpanContext(7, 8, True, TraceFlags(1))
        links = [Link(other, {"a": 1, "b": 2}), Link(other)]
        with provider.get_tracer("test").start_as_current_span("op", links=links) as span:
            span.set_attributes({"a": 1, "b": 2, "c": 3})
            span.add_event("first", {"a": 1, "b": 2})
            span.add_event("second", {"a": 1, "b": 2})
        [span] = memory.get_finished_spans()
        [read] = decode_spans(encode_spans([span]))
        assert whole(read) == whole(span)
        assert (read.dropped_attributes, read.dropped_events, read.dropped_links) == (1, 1, 1)
        assert read.events[0].dropped_attributes == 1
        assert read.links[0].dropped_attributes == span.links[0].dropped_attributes

    def test_spans_of_one_process_share_their_resource(self):
        """Exporters know a resource by its identity, so the same one is one object, in all lines."""
        first, second = (decode_spans(encode_spans([make_span(span_id=number)]))[0] for number in (1, 2))
        assert first.resource is second.resource
        assert first.instrumentation_scope is second.instrumentation_scope

    @pytest.mark.parametrize("value", [2**63 - 1, 2**63, 2**64 - 1, 2**64, -(2**63), -(2**63) - 1])
    def test_an_integer_beyond_64_bits_is_a_text(self, value):
        """OTLP's integers have a sign: half of what JSON's writer takes is beyond them."""
        [read] = decode_spans(encode_spans([make_span({"tag": 1, "big": value})]))
        assert read.attributes == {"tag": 1, "big": value if -(2**63) <= value < 2**63 else str(value)}

    def test_numbers_that_are_equal_keep_their_types(self):
        """1 and True are the same key in a dictionary, and different values on a span."""
        read = decode_spans(encode_spans([make_span({"a": 1}), make_span({"a": True}), make_span({"a": 1.0})]))
        assert [type(span.attributes["a"]) for span in read] == [int, bool, float]


class TestFormat:
    """The line is OTLP JSON as the specification has it."""

    SPAN = make_span(
        {"text": '漢字\n"', "int": 2**62, "double": 1.5, "nan": math.nan, "inf": -math.inf, "bytes": b"\x00\xff"}
        | {"bool": False, "list": (1, 2), "map": {"a": ("b",)}},
        events=[Event("event", {"n": 1}, 5)],
        links=[Link(SpanContext(7, 8, True, TraceFlags(1)), {"l": 1})],
        parent=SpanContext(2**100 + 1, 9, True, TraceFlags(1)),
        kind=SpanKind.CLIENT,
        status=Status(StatusCode.ERROR, "why"),
    )

    def test_protobuf_reads_it_as_what_is_sent_over_the_wire(self):
        """Parsed with protobuf's json_format it is the request that the OTLP exporters send, but for its ids' base."""
        parsed = json_format.Parse(line_of([self.SPAN]), ExportTraceServiceRequest())
        sent = ExportTraceServiceRequest.FromString(encode_spans([self.SPAN]))
        for scope in (sent.resource_spans[0].scope_spans[0],):
            for message in (scope.spans[0], *scope.spans[0].links):
                message.trace_id = base64.b64decode(message.trace_id.hex())
                message.span_id = base64.b64decode(message.span_id.hex())
            scope.spans[0].parent_span_id = base64.b64decode(scope.spans[0].parent_span_id.hex())
        # NaN does not equal itself.
        for request in (parsed, sent):
            pairs = request.resource_spans[0].scope_spans[0].spans[0].attributes
            [nan] = [pair for pair in pairs if pair.key == "nan"]
            assert math.isnan(nan.value.double_value)
            nan.value.double_value = 0
        assert parsed == sent

    def test_a_number_of_numpy(self):
        """The SDK keeps numpy's floats as they are set: they are numbers like others."""
        numpy = pytest.importorskip("numpy")
        [span] = decode_spans(encode_spans([make_span(attributes={"loss": numpy.float64(0.5)})]))
        assert span.attributes == {"loss": 0.5}


class TestLazily:
    """Spans that are decoded on first use."""

    def test_one_span_is_decoded_without_the_others(self, tmp_path):
        """Who reads the root of a recorded trajectory decodes the root."""
        [trajectory] = read_trajectories(write_folder(tmp_path, make_trajectory(7, 1, 2)))
        assert [bool(span.data) for span in trajectory.spans] == [True, True, True]
        root = trajectory.spans[-1]
        assert (root.name, root.attributes["rollout.step"], root.dropped_attributes) == ("rollout", 7, 0)
        assert [bool(span.data) for span in trajectory.spans] == [True, True, False]

    @pytest.mark.parametrize("how", COPIES)
    def test_a_copy_before_first_use(self, how):
        """A copy is a span too, and leaves the first as it was."""
        [span, *_] = lazy_spans(encode_spans(make_trajectory(7, 1, 2)))
        assert whole(how(span)) == whole(span)

    def test_what_a_span_does_not_have(self):
        """Asking for it is the usual error, before and after the first use."""
        [span, *_] = lazy_spans(encode_spans(make_trajectory(7, 1, 2)))
        for _ in range(2):
            with pytest.raises(AttributeError, match="'StoredSpan' object has no attribute 'nonsense'"):
                span.nonsense  # noqa: B018

    def test_a_span_that_is_none(self):
        """What only looks like a span says so, as one error, when the span is read."""
        request = encode_spans(make_trajectory(7, 1, 2)).replace(b"*\x08generate", b"Z\x08generate")
        [span, *others] = lazy_spans(request)
        for _ in range(2):
            with pytest.raises(ValueError, match="not a span of OTLP"):
                span.name  # noqa: B018
        assert [other.name for other in others] == ["look_up", "rollout"]

    def test_threads_that_ask_at_the_same_time(self):
        """Each gets the answer, whoever decodes."""
        request = encode_spans(make_trajectory(7, 1, 2))
        barrier = Barrier(4)

        def names(span: StoredSpan) -> str:
            barrier.wait(120)
            return span.name

        with ThreadPoolExecutor(4) as threads:
            for _ in range(50):
                [span, *_] = lazy_spans(request)
                assert set(threads.map(names, [span] * 4)) == {"generate"}
