"""Odd values on our current span: none raises or loses the span."""

from __future__ import annotations

import enum
from collections import OrderedDict
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

import orjson
import pytest
from opentelemetry.attributes import BoundedAttributes
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.trace import SpanContext, StatusCode, TraceFlags, get_current_span

import otel_rollout
from otel_rollout.otlp import encode_spans, json_of_request
from otel_rollout.record import RolloutSpan
from otel_rollout.testing import InMemorySpanExporter

OTHER = SpanContext(7, 8, is_remote=False, trace_flags=TraceFlags(1))


class Text(str):
    """A text of a subclass."""


class Whole(int):
    """An integer of a subclass."""


class Level(enum.Enum):
    """An enum of texts, which is no text."""

    HIGH = "high"


class OwnMapping(Mapping[str, Any]):
    """A mapping that is no dict, and asks a database."""

    def __getitem__(self, key: str) -> Any:
        raise ConnectionError

    __iter__ = __len__ = __getitem__


ODD: dict[str, Any] = {
    "text": Text("text"),
    "int": Whole(7),
    "list": ["a"],
    "dict": {"a": 1, 3: object()},
    "object": object(),
    "class": object,
    "mapping": OwnMapping(),
    "enum": Level.HIGH,
    "none": None,
    "bytes": b"\xff",
    "surrogate": "a\ud800",
    "nan": float("nan"),
    "wide": 2**70,
    "unhashable": ["a"],
    "huge text": "x" * (2**20 + 1),
    "huge list": list(range(100_000)),
    "huge dict": {f"key {number}": number for number in range(20_000)},
    "empty": "",
    "error": ValueError("a"),
}
CALLS: dict[str, Callable[[Any, Any], object]] = {
    "set_attribute key": lambda span, value: span.set_attribute(value, "v"),
    "set_attribute value": lambda span, value: span.set_attribute("k", value),
    "set_attributes": lambda span, value: span.set_attributes(value),
    "set_attributes key": lambda span, value: span.set_attributes({"a": 1, "k": value}),
    "add_event name": lambda span, value: span.add_event(value),
    "add_event attributes": lambda span, value: span.add_event("e", value),
    "add_event value": lambda span, value: span.add_event("e", {"k": value}),
    "add_event timestamp": lambda span, value: span.add_event("e", None, value),
    "add_link context": lambda span, value: span.add_link(value),
    "add_link attributes": lambda span, value: span.add_link(OTHER, value),
    "add_link value": lambda span, value: span.add_link(OTHER, {"k": value}),
    "update_name": lambda span, value: span.update_name(value),
    "set_status": lambda span, value: span.set_status(value),
    "set_status description": lambda span, value: span.set_status(StatusCode.ERROR, value),
    "record_exception": lambda span, value: span.record_exception(value),
    "record_exception attributes": lambda span, value: span.record_exception(ValueError("a"), value),
    "record_exception value": lambda span, value: span.record_exception(ValueError("a"), {"k": value}),
    "record_exception timestamp": lambda span, value: span.record_exception(ValueError("a"), None, value),
    "record_exception escaped": lambda span, value: span.record_exception(ValueError("a"), None, None, value),
    "record_exception argument": lambda span, value: span.record_exception(ValueError(value)),
    "end": lambda span, value: span.end(value),
}
"""Every method of a span that takes something."""


@pytest.fixture
def record(rollout_spans: InMemorySpanExporter) -> Callable[..., Any]:
    """Runs a function on the current span inside an op, and returns the exported span."""

    def run(change: Callable[[Any], object]) -> Any:
        @otel_rollout.rollout_trace_op(name="op")
        def op() -> None:
            change(get_current_span())

        op()
        assert otel_rollout.flush(60)
        (span,) = rollout_spans.spans
        return span

    return run


class TestEveryMethod:
    """Each argument of each method."""

    @pytest.mark.parametrize("call", CALLS)
    def test_takes_anything(self, rollout_spans, call):
        """With any argument, a method raises nothing, and the span arrives whole."""

        @otel_rollout.rollout_trace_op(name="op")
        def op(case: str) -> None:
            CALLS[call](get_current_span(), ODD[case])

        for case in ODD:
            op(case)
        assert otel_rollout.flush(60)
        assert len(rollout_spans.spans) == len(ODD)
        assert encode_spans(rollout_spans.spans)
        assert orjson.loads(json_of_request(encode_spans(rollout_spans.spans)))
        assert otel_rollout.stats().internal_errors == {}

    def test_covers_the_api(self):
        """The calls above are all the methods that the API has."""
        api = {name for name in vars(RolloutSpan.__mro__[1]) if not name.startswith("_")}

        assert api - {call.partition(" ")[0] for call in CALLS} == {"get_span_context", "is_recording"}


class TestKeys:
    """Keys and names that are not texts."""

    @pytest.mark.parametrize("case", ["none", "int", "enum", "unhashable", "empty", "object", "bytes", "huge text"])
    def test_an_odd_key_is_dropped_with_a_count(self, record, case):
        """The attribute is dropped and counted, the others stay, as on the SDK's spans."""
        span = record(lambda span: (span.set_attribute(ODD[case], "odd"), span.set_attribute("sound", 2)))

        assert span.attributes["sound"] == 2
        assert "odd" not in span.attributes.values()
        assert span.dropped_attributes == 1

    def test_a_text_of_a_subclass_is_a_text(self, record):
        """Keys, values and names of subclasses become plain ones, by the functions of Python's own types."""
        span = record(
            lambda span: (
                span.update_name(Text("name")),
                span.set_attribute(Text("key"), Text("value")),
                span.set_attributes({"int": Whole(7), "float": 0.5, "list": ["a"]}),
                span.add_event(Text("event"), {"a": Whole(1)}, Whole(5)),
            )
        )

        assert (type(span.name), span.name) == (str, "name")
        assert {key: span.attributes[key] for key in ("key", "int", "float", "list")} == {
            "key": "value",
            "int": 7,
            "float": 0.5,
            "list": ("a",),
        }
        (event,) = span.events
        assert (event.name, dict(event.attributes), event.timestamp) == ("event", {"a": 1}, 5)

    def test_the_mappings_of_python_and_the_sdk(self, record):
        """Attributes in a dict's subclass, a read-only view of one, or the SDK's container are read."""
        span = record(
            lambda span: (
                span.set_attributes(OrderedDict(a=1)),
                span.set_attributes(MappingProxyType({"b": 2})),
                span.set_attributes(BoundedAttributes(attributes={"c": 3})),
                span.set_attributes(MappingProxyType(BoundedAttributes(attributes={"d": 4}))),
                span.set_attributes(OwnMapping()),
            )
        )

        assert {key: span.attributes[key] for key in "abcd"} == {"a": 1, "b": 2, "c": 3, "d": 4}
        assert span.dropped_attributes == 1

    @pytest.mark.parametrize(
        ("case", "expected"),
        [("none", "op"), ("unhashable", "list"), ("enum", "high"), ("text", "text"), ("int", "7")],
    )
    def test_a_name_that_is_no_text(self, record, case, expected):
        """The span keeps its name, or gets what can be said of the one that it was given."""
        span = record(lambda span: span.update_name(ODD[case]))

        assert (type(span.name), span.name) == (str, expected)

    def test_a_long_name_is_cut_and_counted(self, record):
        """A name of 20,000 characters keeps its beginning; the cut is counted."""
        span = record(lambda span: span.update_name("n" * 20_000))

        assert span.name == "n" * 255 + "…"
        assert otel_rollout.stats().truncated_bytes == 20_000 - 256


class TestSpansOfTheSdk:
    """Spans that other instrumentations make, on a provider whose spans reach our exporters."""

    @pytest.mark.parametrize("odd", [5, None, ["a"], Level.HIGH], ids=["int", "none", "list", "enum"])
    def test_names_and_times_that_are_none(self, odd):
        """The SDK takes anything as a name or a time; such a span arrives, and so do the others of its batch."""
        exporter, provider = InMemorySpanExporter(), TracerProvider(shutdown_on_exit=False)
        otel_rollout.init("p", "e", exporter, tracer_provider=provider)
        tracer: Any = provider.get_tracer("theirs")
        span = tracer.start_span("their own", start_time=odd)
        span.update_name(odd)
        span.add_event(odd, {"a": 1}, timestamp=odd)
        span.end(odd)
        tracer.start_span("sound").end()
        assert otel_rollout.flush(60)

        first, second = exporter.spans
        assert (type(first.name), second.name) == (str, "sound")
        assert dict(first.events[0].attributes) == {"a": 1}
        assert encode_spans(exporter.spans)
        assert orjson.loads(json_of_request(encode_spans(exporter.spans)))


class TestLinks:
    """Ids of other spans."""

    def test_what_is_no_context_is_dropped_with_a_count(self, record):
        """A link to what are no ids is dropped and counted, the others stay."""
        span = record(lambda span: [span.add_link(ODD[case]) for case in ("object", "none")])

        assert (list(span.links), span.dropped_links) == ([], 2)


class TestExceptions:
    """record_exception."""

    def test_its_attributes_are_the_events(self, record):
        """The event has the attributes, which may override those of the exception, and `escaped`."""
        more = {"retry": 3, "exception.message": "hidden"}
        span = record(lambda span: span.record_exception(ValueError("secret"), more, escaped=True))

        (event,) = span.events
        assert "retry" not in span.attributes
        assert {key: value for key, value in event.attributes.items() if key != "exception.stacktrace"} == {
            "exception.type": "ValueError",
            "exception.message": "hidden",
            "exception.escaped": "True",
            "retry": 3,
        }

    def test_a_span_as_a_context_manager(self, record):
        """An exception that leaves a span's block is recorded and passes, as with the SDK's spans."""

        def leave(span: Any) -> None:
            with pytest.raises(KeyError), span:
                raise KeyError("k")

        span = record(leave)

        assert span.status.status_code is StatusCode.ERROR
        assert [event.attributes["exception.escaped"] for event in span.events] == ["True"]


class TestStatus:
    """set_status."""

    def test_a_description_of_a_subclass(self, record):
        """It becomes plain text."""
        span = record(lambda span: span.set_status(StatusCode.ERROR, Text("why")))

        assert (type(span.status.description), span.status.description) == (str, "why")
