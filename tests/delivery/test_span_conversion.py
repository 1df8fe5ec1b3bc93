"""A recording span in its standard form: the delivery thread's work on it."""

from __future__ import annotations

import enum
import json
from typing import Any

import orjson
import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.util.instrumentation import InstrumentationScope
from opentelemetry.trace import SpanContext, StatusCode, TraceFlags

from otel_rollout import semconv
from otel_rollout.finish import PayloadFinisher, Redactor, SpanReader
from otel_rollout.otlp import encode_spans
from otel_rollout.record import RolloutSpan, TrajectoryState, encoded_size, readable_size, take_snapshot, to_json
from tests.sdk import COPIES

pytestmark = pytest.mark.every_python

SAMPLED = TraceFlags(TraceFlags.SAMPLED)
CONTEXT = SpanContext(1, 2, False, SAMPLED)
PARENT = SpanContext(1, 1, False, SAMPLED)


class Level(enum.IntEnum):
    """An integer of a subclass."""

    HIGH = 3


def recording(name: str = "op", *, parent: SpanContext | None = PARENT, **options: Any) -> RolloutSpan:
    """Return a recording span that has not ended."""
    trajectory = options.pop("trajectory", None)
    return RolloutSpan(name, CONTEXT, parent, options, trajectory, (), on_end=lambda span: None)


def read(span: RolloutSpan, max_bytes: int = 2**20, redactor: Redactor | None = None) -> ReadableSpan:
    """Return the span in its standard form."""
    span.end(20)
    finisher = PayloadFinisher(max_bytes, redactor)
    return SpanReader(Resource({"service.name": "s"}), InstrumentationScope("scope"), finisher).read(span, "test")


def attribute(value: Any) -> Any:
    """Return an attribute as exporters see it."""
    span = recording()
    span.set_attribute("key", value)
    return dict(read(span).attributes or {}).get("key")


class TestSpan:
    """The whole span."""

    def test_every_field(self):
        """Name, ids, times, status, links, resource, scope, tags and payload arrive."""
        span = recording("op", trajectory=TrajectoryState({semconv.STEP: 3}), **{semconv.SPAN_KIND: "LLM"})
        span.start_time = 10
        span.input, span.output = take_snapshot({"a": 1}), take_snapshot("b")
        span.add_link(SpanContext(7, 8, True, SAMPLED))
        span.set_status(StatusCode.ERROR, "why")
        span.add_event("event", {"n": 1}, 15)

        seen = read(span)

        assert seen.name == "op"
        assert (seen.context, seen.parent, seen.start_time, seen.end_time) == (CONTEXT, PARENT, 10, 20)
        assert (seen.status.status_code, seen.status.description) == (StatusCode.ERROR, "why")
        assert [(link.context.trace_id, link.context.span_id) for link in seen.links] == [(7, 8)]
        assert [(event.name, dict(event.attributes), event.timestamp) for event in seen.events] == [
            ("event", {"n": 1}, 15)
        ]
        assert seen.resource.attributes["service.name"] == "s"
        assert seen.instrumentation_scope.name == "scope"
        assert dict(seen.attributes) == {
            semconv.INPUT_VALUE: '{"a":1}',
            semconv.INPUT_MIME_TYPE: "application/json",
            semconv.OUTPUT_VALUE: "b",
            semconv.OUTPUT_MIME_TYPE: "text/plain",
            semconv.SPAN_KIND: "LLM",
            semconv.STEP: 3,
        }

    def test_payload_finished_once(self):
        """Several exporters get the same finished payload, each in a span of its own."""
        span = recording()
        span.input = take_snapshot("x" * 1000)
        span.add_event("seen", {"n": 1})
        span.end()
        finisher = PayloadFinisher(100, None)
        reader = SpanReader(Resource({}), InstrumentationScope("s"), finisher)

        first, second = reader.read(span, "a"), reader.read(span, "b")
        first._attributes["mine"] = first.events[0]._attributes["mine"] = True

        assert reader.truncated_bytes == 902
        assert dict(first.attributes) == {**second.attributes, "mine": True}
        assert dict(second.events[0].attributes) == {"n": 1}

    def test_a_name_that_stands_twice(self):
        """A tag or payload that the program sets itself is exported once: tags win, payloads don't."""
        span = recording(trajectory=TrajectoryState({semconv.STEP: 3}))
        span.input = take_snapshot("ours")
        span.set_attributes({semconv.STEP: 7, semconv.INPUT_VALUE: "theirs", "other": 1})

        seen = read(span)

        assert seen.attributes == {
            semconv.INPUT_VALUE: "theirs",
            semconv.INPUT_MIME_TYPE: "text/plain",
            semconv.STEP: 3,
            "other": 1,
        }
        (resource_spans,) = ExportTraceServiceRequest.FromString(encode_spans([seen])).resource_spans
        keys = [pair.key for pair in resource_spans.scope_spans[0].spans[0].attributes]
        assert sorted(keys) == sorted(seen.attributes)

    def test_as_the_sdk_writes_it(self):
        """The SDK's `to_json` of the span has everything."""
        span = recording(trajectory=TrajectoryState({semconv.STEP: 3}))
        span.output = take_snapshot({"a": "語"})
        span.set_status(StatusCode.ERROR, "broken")
        span.add_event("seen", {"key": 1})

        shown = json.loads(read(span).to_json())

        assert shown["attributes"] == {
            semconv.OUTPUT_VALUE: '{"a":"語"}',
            semconv.OUTPUT_MIME_TYPE: "application/json",
            semconv.STEP: 3,
        }
        assert shown["status"] == {"status_code": "ERROR", "description": "broken"}
        assert [event["name"] for event in shown["events"]] == ["seen"]

    def test_what_exporters_do_to_the_sdks_spans(self):
        """Private fields and shallow and deep copies are those of an SDK span."""
        span = recording(trajectory=TrajectoryState({semconv.STEP: 3}))
        span.output = take_snapshot("out")
        seen = read(span)

        assert seen._attributes == dict(seen.attributes)
        assert not hasattr(seen, "_nothing_of_this_name")
        for made in [way(seen) for way in COPIES]:
            assert made.to_json() == seen.to_json()
            assert made.context == CONTEXT

    def test_root_says_what_was_cut_and_lost(self):
        """The root has the bytes cut from its trajectory, and the spans that this exporter lost."""
        trajectory = TrajectoryState({})
        child = recording(trajectory=trajectory)
        child.input = take_snapshot("x" * 1000)
        read(child, max_bytes=102)
        trajectory.add_dropped_span("test")

        seen = dict(read(recording(parent=None, trajectory=trajectory)).attributes)

        assert seen == {semconv.TRUNCATED_BYTES: 900, semconv.DROPPED_SPANS: 1}


class TestPayloadFinisher:
    """The steps on a payload, in their order."""

    def test_all_of_it(self):
        """Media goes, integers are narrowed, secrets replaced, and then the rest is cut to the limit."""
        value = {
            "image": "data:image/png;base64," + "A" * 5000,
            "big": 2**64 - 1,
            "api_key": "c0ffee-77",
            "text": "x" * 5000,
        }
        finisher = PayloadFinisher(300, Redactor())

        clean, redacted = finisher.clean(to_json(take_snapshot(value)))
        finished, cut = finisher.cut(clean)

        assert orjson.loads(finished) == {
            "image": "data:image/png;base64,[5022 bytes cut]",
            "big": str(2**64 - 1),
            "api_key": "[redacted]",
            "text": orjson.loads(finished)["text"],
        }
        assert b"characters cut]" in finished
        assert len(finished) <= 300
        assert cut > 4700
        assert redacted == 1

    def test_fault(self, monkeypatch):
        """A payload that can't be finished doesn't leave; the span does."""
        monkeypatch.delenv("OTEL_ROLLOUT_RAISE_INTERNAL_ERRORS")
        monkeypatch.setattr(Redactor, "__call__", lambda *_: 1 / 0)
        span = recording(trajectory=TrajectoryState({"tag": "password=hunter2x9", "step": 1}))
        span.input = take_snapshot({"image": f"data:image/png;base64,{'A' * 4000}", "password": "secret"})

        finished = read(span, redactor=Redactor())
        assert finished.attributes[semconv.INPUT_VALUE] == "…[the payload could not be read]"
        assert (finished.name, "tag" in finished.attributes, finished.attributes["step"]) == ("…", False, 1)


class TestAttributes:
    """Attributes other than the payload."""

    @pytest.mark.parametrize(
        ("value", "expected"),
        [
            ("text", "text"),
            (True, True),
            (0.5, 0.5),
            (7, 7),
            (Level.HIGH, 3),
            (2**70, str(2**70)),
            (2**63, str(2**63)),
            ("a\ud800", "a?"),
            (("a", "b\udfff"), ("a", "b?")),
            ((1, 2), (1, 2)),
            ((2**70,), f'["{2**70}"]'),
            ((True, 1), "[true,1]"),
            ((), "[]"),
            ({"a": {1}}, '{"a":[1]}'),
            (b"\x00", '{"type":"bytes","length":1,"head":"00"}'),
            (None, None),
        ],
        ids=repr,
    )
    def test_values(self, value, expected):
        """Each comes out as what OTLP and every backend accept: a scalar, scalars of one kind, else a JSON text."""
        seen = attribute(value)

        assert seen == expected
        assert type(seen) is type(expected)

    def test_numpy_scalar(self):
        """A number of numpy is a number."""
        np = pytest.importorskip("numpy")

        assert attribute(np.float32(0.5)) == 0.5
        assert attribute(np.int64(5)) == 5

    def test_everything_hostile_can_be_encoded(self):
        """Lone surrogates and giant integers anywhere on a span don't keep it from being encoded."""
        span = recording("name\ud800", parent=None)
        span.set_attribute("key\ud800", "value\ud800")
        span.set_attribute("n", 2**70)
        span.add_event("event\ud800", {"k\ud800": "v\ud800", "n": 2**70})
        span.set_status(StatusCode.ERROR, "why\ud800")
        span.record_exception(ValueError("m\ud800"))

        assert encode_spans([read(span)])


class TestException:
    """The exception event."""

    def test_attributes(self):
        """Type, message and stack trace are texts; the stack names the line."""
        span = recording()
        try:
            raise ValueError("no \ud800 good")
        except ValueError as error:
            span.record_exception(error)

        (event,) = read(span).events

        assert event.name == "exception"
        assert event.attributes["exception.type"] == "ValueError"
        assert event.attributes["exception.message"] == "no ? good"
        assert 'raise ValueError("no' in event.attributes["exception.stacktrace"]

    def test_long_message(self):
        """A long message is cut; of a long stack the innermost part stays."""
        span = recording()
        span.record_exception(ValueError("x" * 10**6))

        (event,) = read(span).events

        assert all(len(value) < 64 * 1024 + 100 for value in event.attributes.values())


class TestSize:
    """The encoded bytes of a span."""

    @pytest.mark.parametrize(
        "value", ["", "x" * 10_000, "é" * 10_000, "語" * 10_000, "😀" * 10_000, ("word",) * 500, (1,) * 500, 7]
    )
    def test_never_less_than_the_encoding(self, value):
        """The estimate is at least what OTLP takes, and not much more."""
        span = recording()
        span.set_attribute("key", value)
        standard = read(span)

        encoded = len(encode_spans([standard]))

        assert encoded <= readable_size(standard) <= 4 * encoded + 1000
        assert encoded <= encoded_size(span, standard) <= 4 * encoded + 1000
