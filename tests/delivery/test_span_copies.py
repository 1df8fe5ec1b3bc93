"""A refused span made small."""

from __future__ import annotations

import orjson
import pytest
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import Event, ReadableSpan, SpanLimits, TracerProvider
from opentelemetry.trace import Link, SpanContext, Status, StatusCode

from otel_rollout import semconv
from otel_rollout.finish import copy_span, shrunk_copy
from otel_rollout.record import readable_size

pytestmark = pytest.mark.every_python

CONTEXT = SpanContext(1, 2, False)
PARENT = SpanContext(1, 1, False)


def big_span() -> ReadableSpan:
    """Return a span with large values everywhere."""
    return ReadableSpan(
        name="n" * 5000,
        context=CONTEXT,
        parent=PARENT,
        resource=Resource({"service.name": "s"}),
        attributes={
            semconv.INPUT_VALUE: orjson.dumps({"id": "short", "text": "x" * 10**6}).decode(),
            semconv.OUTPUT_VALUE: orjson.dumps("y" * 10**6).decode(),
            semconv.METADATA: orjson.dumps({"step": 1, "note": "z" * 10**5}).decode(),
            semconv.STEP: 1,
            semconv.REWARD: 0.5,
            semconv.VALIDATE: False,
            "long": "w" * 10**5,
            "list": tuple(range(10**4)),
        },
        events=(Event("exception", {"exception.stacktrace": "s" * 10**5}),),
        links=(Link(SpanContext(9, 9, True)),),
        status=Status(StatusCode.ERROR, "d" * 10**5),
        start_time=1,
        end_time=2,
    )


class TestShrunkCopy:
    """A copy of a few kilobytes."""

    def test_small(self):
        """It takes a few kilobytes."""
        assert readable_size(shrunk_copy(big_span())) < 16 * 1024

    def test_structure_stays(self):
        """Ids, times, status, resource and scalar attributes are the span's own; events and links are gone."""
        seen = shrunk_copy(big_span())

        assert (seen.context, seen.parent, seen.start_time, seen.end_time) == (CONTEXT, PARENT, 1, 2)
        assert seen.status.status_code is StatusCode.ERROR
        assert len(seen.status.description) == 1024
        assert seen.resource.attributes["service.name"] == "s"
        assert (seen.events, seen.links) == ((), ())
        assert (seen.dropped_attributes, seen.dropped_events, seen.dropped_links) == (0, 1, 1)
        assert (seen.attributes[semconv.STEP], seen.attributes[semconv.REWARD]) == (1, 0.5)
        assert seen.attributes[semconv.VALIDATE] is False

    def test_json_stays_valid(self):
        """Payload and metadata are still JSON, and keep their short values."""
        attributes = shrunk_copy(big_span()).attributes

        assert orjson.loads(attributes[semconv.INPUT_VALUE])["id"] == "short"
        assert "characters cut]" in orjson.loads(attributes[semconv.OUTPUT_VALUE])
        assert orjson.loads(attributes[semconv.METADATA])["step"] == 1

    def test_lone_surrogates(self):
        """A foreign span's broken text does no harm."""
        span = copy_span(big_span(), {semconv.INPUT_VALUE: '"\ud800' + "x" * 10_000 + '"'})

        assert orjson.loads(shrunk_copy(span).attributes[semconv.INPUT_VALUE])


class TestCopySpan:
    """A copy with other attributes."""

    def test_all_else_is_kept(self):
        """Everything but the attributes is the span's own."""
        span = big_span()

        seen = copy_span(span, {"a": 1})

        assert dict(seen.attributes) == {"a": 1}
        assert (seen.name, seen.context, seen.parent, seen.status) == (span.name, CONTEXT, PARENT, span.status)
        assert (seen.events, seen.links, seen.resource) == (span.events, span.links, span.resource)

    def test_what_the_limits_dropped_is_still_counted(self):
        """The copy of an SDK span keeps its dropped counts."""
        provider = TracerProvider(span_limits=SpanLimits(max_span_attributes=1, max_events=1, max_links=1))
        span = provider.get_tracer("t").start_span("op", links=[Link(CONTEXT), Link(PARENT)])
        span.set_attributes({"a": 1, "b": 2, "c": 3})
        for _ in range(4):
            span.add_event("event")
        span.end()

        seen = copy_span(span, {"a": 1})

        assert (seen.dropped_attributes, seen.dropped_events, seen.dropped_links) == (2, 3, 1)
