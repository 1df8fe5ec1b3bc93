"""OpenTelemetry's span limits: what a span keeps, what is counted as dropped, and JSON that is cut and stays valid."""

from __future__ import annotations

import logging
from typing import Any

import orjson
import pytest
from opentelemetry.sdk.trace import ReadableSpan, SpanLimits, TracerProvider
from opentelemetry.trace import SpanContext, get_current_span

import otel_rollout
from otel_rollout import annotate, rollout_trace_attr, rollout_trace_op, semconv
from otel_rollout.finish import PayloadFinisher
from otel_rollout.record import environment_limits
from otel_rollout.testing import InMemorySpanExporter
from tests.payload_values import read_payload

pytestmark = pytest.mark.every_python

PAYLOAD = (semconv.INPUT_VALUE, semconv.OUTPUT_VALUE)
TAGS = {"rollout.step": 2, "rollout.sample_index": 1, "rollout.rollout_n": 3, "rollout.validate": False}

LIMIT_VARIABLES = [
    "OTEL_ATTRIBUTE_COUNT_LIMIT",
    "OTEL_ATTRIBUTE_VALUE_LENGTH_LIMIT",
    "OTEL_SPAN_ATTRIBUTE_COUNT_LIMIT",
    "OTEL_SPAN_ATTRIBUTE_VALUE_LENGTH_LIMIT",
    "OTEL_SPAN_EVENT_COUNT_LIMIT",
    "OTEL_SPAN_LINK_COUNT_LIMIT",
    "OTEL_EVENT_ATTRIBUTE_COUNT_LIMIT",
    "OTEL_LINK_ATTRIBUTE_COUNT_LIMIT",
]


def spans_of(provider: TracerProvider | None = None) -> list[ReadableSpan]:
    """Return a large span of an op and its trajectory's root, exported under the environment's limits."""
    exporter = InMemorySpanExporter()
    otel_rollout.init("p", "e", exporter, tracer_provider=provider)

    @rollout_trace_op
    def op(text: str) -> dict[str, Any]:
        span = get_current_span()
        for number in range(10):
            span.set_attribute(f"key {number}", "y" * 100)
            span.add_event(f"event {number}", {"a": "z" * 100, "b": 2, "c": 3})
            span.add_link(SpanContext(1, number + 1, is_remote=False), {"a": "z" * 100, "b": 2, "c": 3})
        return {"answer": "漢字" * 500, "list": [1, 2, 3]}

    with rollout_trace_attr(sample_index=1, step=2, rollout_n=3):
        op("x" * 1000)
        annotate(reward=0.5)
    assert otel_rollout.flush(10)
    return exporter.spans


class TestCounts:
    """The number of attributes, events and links."""

    def test_every_limit(self, monkeypatch):
        """Each variable is honoured; what is beyond it is dropped and counted on the span, the event and the link."""
        monkeypatch.setenv("OTEL_SPAN_ATTRIBUTE_COUNT_LIMIT", "12")
        monkeypatch.setenv("OTEL_SPAN_EVENT_COUNT_LIMIT", "2")
        monkeypatch.setenv("OTEL_SPAN_LINK_COUNT_LIMIT", "3")
        monkeypatch.setenv("OTEL_EVENT_ATTRIBUTE_COUNT_LIMIT", "1")
        monkeypatch.setenv("OTEL_LINK_ATTRIBUTE_COUNT_LIMIT", "2")

        span, _ = spans_of()

        # Five tags, input and output with their types, the kind, and the first two that were set.
        assert (len(span.attributes), span.dropped_attributes) == (12, 8)
        assert {"key 0", "key 1", *TAGS, *PAYLOAD} <= set(span.attributes)
        assert [event.name for event in span.events] == ["event 0", "event 1"]
        assert {(len(event.attributes), event.dropped_attributes) for event in span.events} == {(1, 2)}
        assert {(len(link.attributes), link.dropped_attributes) for link in span.links} == {(2, 1)}
        assert (span.dropped_events, span.dropped_links) == (8, 7)

    @pytest.mark.parametrize("limit", [0, 1, 3, 6, 8, 9])
    def test_tags_then_payload_stay(self, monkeypatch, limit):
        """Under a limit for all, tags stay before the input, the input before the output, and each with its type."""
        monkeypatch.setenv("OTEL_ATTRIBUTE_COUNT_LIMIT", str(limit))

        span, _ = spans_of()

        assert len(span.attributes) <= limit
        assert len(span.attributes) + span.dropped_attributes == 20
        kept = [key in span.attributes for key in (*TAGS, *PAYLOAD)]
        assert kept == sorted(kept, reverse=True)
        assert (semconv.INPUT_MIME_TYPE in span.attributes) == (semconv.INPUT_VALUE in span.attributes)

    def test_an_exceptions_own_attributes_stay(self, monkeypatch):
        """An exception's event keeps the type and the message before added attributes."""
        monkeypatch.setenv("OTEL_EVENT_ATTRIBUTE_COUNT_LIMIT", "2")
        exporter = InMemorySpanExporter()
        otel_rollout.init("p", "e", exporter)

        @rollout_trace_op
        def op() -> None:
            get_current_span().record_exception(ValueError("why"), {"a": 1, "b": 2})

        op()
        assert otel_rollout.flush(10)

        (event,) = exporter.spans[0].events
        assert dict(event.attributes) == {"exception.type": "ValueError", "exception.message": "why"}
        assert event.dropped_attributes == 4


class TestCharacters:
    """The length of a text."""

    def test_every_text(self, monkeypatch):
        """No attribute of a span, an event, a link or a tag is longer; payloads stay JSON; what was cut is counted."""
        monkeypatch.setenv("OTEL_ATTRIBUTE_VALUE_LENGTH_LIMIT", "20")

        span, root = spans_of()

        holders = [span, root, *span.events, *span.links]
        texts = [value for each in holders for value in each.attributes.values() if isinstance(value, str)]
        assert max(map(len, texts)) == 20
        assert span.attributes["key 0"] == "y" * 20
        for key in PAYLOAD:
            assert read_payload(span, key)
        assert orjson.loads(root.attributes[semconv.METADATA])
        # Ten attributes, events and links lose 80 characters each, input and output their thousand.
        assert otel_rollout.stats().truncated_bytes > 30 * 80 + 2 * 900
        assert root.attributes[semconv.TRUNCATED_BYTES] > 30 * 80

    def test_spans_alone(self, monkeypatch):
        """The limit of spans wins over the one of all for spans, and does not touch events and links."""
        monkeypatch.setenv("OTEL_ATTRIBUTE_VALUE_LENGTH_LIMIT", "50")
        monkeypatch.setenv("OTEL_SPAN_ATTRIBUTE_VALUE_LENGTH_LIMIT", "30")

        span, _ = spans_of()

        assert len(span.attributes["key 0"]) == 30
        assert len(span.events[0].attributes["a"]) == len(span.links[0].attributes["a"]) == 50

    def test_a_text_within_the_limit_is_whole(self, monkeypatch):
        """Characters count, not bytes: what takes more bytes than the limit has characters is not cut."""
        monkeypatch.setenv("OTEL_ATTRIBUTE_VALUE_LENGTH_LIMIT", "1100")

        span, _ = spans_of()

        assert orjson.loads(span.attributes[semconv.OUTPUT_VALUE]) == {"answer": "漢字" * 500, "list": [1, 2, 3]}
        assert otel_rollout.stats().truncated_bytes == 0

    @pytest.mark.parametrize(
        "text", ['"' + "漢字" * 500 + '"', '["' + "😀a" * 300 + '"]', '{"key":"' + "x" * 800 + '"}']
    )
    def test_json_of_any_length(self, text):
        """Cut to any number of characters, JSON is no longer than that and valid; of none nothing is left."""
        for characters in [*range(1, 60), 100, 500, len(text) - 1]:
            cut = PayloadFinisher(2**20, None, characters).cut(text.encode())[0].decode()
            assert 0 < len(cut) <= characters
            orjson.loads(cut)
        assert len(PayloadFinisher(2**20, None, 500).cut(text.encode())[0].decode()) > 150
        assert PayloadFinisher(2**20, None, 0).cut(text.encode()) == (b"", len(text.encode()))


class TestVariables:
    """The environment, read as the SDK reads it."""

    @pytest.mark.parametrize("variable", LIMIT_VARIABLES)
    @pytest.mark.parametrize("value", ["0", "7", " 7 ", ""])
    def test_the_sdks_limits(self, monkeypatch, variable, value):
        """Values of the variables count as in the SDK, including zero and an empty value."""
        monkeypatch.setenv(variable, value)

        assert vars(environment_limits()) == vars(SpanLimits())

    @pytest.mark.parametrize("variable", LIMIT_VARIABLES)
    @pytest.mark.parametrize("value", ["abc", "-1", "1.5"])
    def test_a_wrong_value_is_ignored(self, monkeypatch, caplog, variable, value):
        """With a value that is no limit, there is one warning, and the defaults count; init does not fail."""
        default = vars(environment_limits())
        monkeypatch.setenv("OTEL_SPAN_LINK_COUNT_LIMIT", "5")
        monkeypatch.setenv(variable, value)

        with caplog.at_level(logging.WARNING):
            otel_rollout.init("p", "e", InMemorySpanExporter())

        assert [record.getMessage() for record in caplog.records] == [
            f"{variable} must be a non-negative integer but got {value}: spans have the default limits"
        ]
        assert vars(environment_limits()) == default


class TestProviderOfTheApplication:
    """Its limits are its own."""

    def test_its_limit_of_characters_leaves_json(self):
        """Payloads are cut to it before its span gets them, so that they stay JSON; ours don't apply."""
        limits = SpanLimits(max_span_attribute_length=40)
        provider = TracerProvider(shutdown_on_exit=False, span_limits=limits)

        span, _ = spans_of(provider)

        for key in PAYLOAD:
            assert len(span.attributes[key]) <= 40
            assert "cut]" in str(orjson.loads(span.attributes[key]))

    def test_the_environments_limit_is_not_its_own(self, monkeypatch):
        """A provider that was made with limits of its own is not cut by the environment's."""
        limits = SpanLimits(max_attribute_length=10_000, max_span_attribute_length=10_000)
        monkeypatch.setenv("OTEL_ATTRIBUTE_VALUE_LENGTH_LIMIT", "20")

        span, _ = spans_of(TracerProvider(shutdown_on_exit=False, span_limits=limits))

        assert orjson.loads(span.attributes[semconv.INPUT_VALUE]) == {"text": "x" * 1000}

    @pytest.mark.parametrize("is_ours", [True, False])
    def test_what_stays_of_many_annotations(self, is_ours):
        """With more annotations than a span takes, tags, payload, status and reward stay, on any provider."""
        exporter = InMemorySpanExporter()
        provider = None if is_ours else TracerProvider(shutdown_on_exit=False)
        otel_rollout.init("p", "e", exporter, tracer_provider=provider)

        with rollout_trace_attr(sample_index=1, step=2, rollout_n=3):
            annotate(reward=0.5, input="question", **{f"key{number}": number for number in range(200)})
        assert otel_rollout.flush(10)

        (root,) = exporter.spans
        expected = {**TAGS, semconv.REWARD: 0.5, semconv.STATUS: "completed", semconv.INPUT_VALUE: "question"}
        assert {key: root.attributes.get(key) for key in expected} == expected
        assert {semconv.SESSION_ID, semconv.CONVERSATION_ID, semconv.METADATA} <= set(root.attributes)
        assert len(root.attributes) == 128
        assert root.dropped_attributes >= 80
