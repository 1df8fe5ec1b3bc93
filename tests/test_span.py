"""`RolloutSpan`: a valid OpenTelemetry span, whoever finds it as the current one."""

from __future__ import annotations

import copy
import sys
import time
from typing import Any

import pytest
from opentelemetry import context as context_api
from opentelemetry import trace
from opentelemetry.trace import SpanContext, Status, StatusCode, TraceFlags

import otel_rollout
from otel_rollout import rollout_trace_attr, rollout_trace_op
from otel_rollout.record import Frame, RolloutSpan, Snapshot, SpanBounds, leave, take_snapshot, with_frame
from otel_rollout.testing import InMemorySpanExporter

pytestmark = pytest.mark.every_python

IDS = SpanContext(1, 2, is_remote=False, trace_flags=TraceFlags(TraceFlags.SAMPLED))


def make_span(ended: list[RolloutSpan] | None = None) -> RolloutSpan:
    """Return a span that appends itself to `ended` at its end."""
    return RolloutSpan("span", IDS, None, {}, None, (), (ended if ended is not None else []).append)


class TestCurrentSpan:
    """Calls of other instrumentations on the current span."""

    def test_everything_the_api_offers(self, rollout_spans: InMemorySpanExporter) -> None:
        """Name, attributes, events, exceptions and links that are set through the API arrive in the exporters."""
        other = SpanContext(7, 8, is_remote=True)

        @rollout_trace_op
        def op() -> None:
            span = trace.get_current_span()
            assert span.is_recording()
            assert span.get_span_context().is_valid
            span.update_name("chat gpt")
            span.set_attribute("gen_ai.request.temperature", 0.5)
            span.set_attributes({"stop": ["a", "b"], "nested": {"a": [1]}})
            span.add_event("first token", {"index": 0}, timestamp=77)
            span.record_exception(KeyError("seen"), timestamp=78)
            span.add_link(other)
            span.set_status(Status(StatusCode.ERROR, "half done"))

        op()
        assert otel_rollout.flush(60)
        (span,) = rollout_spans.as_dicts()
        assert span == {
            "name": "chat gpt",
            "trace_id": 1,
            "span_id": 1,
            "parent_id": None,
            "start_time": 1,
            "end_time": 2,
            "status": "ERROR",
            "description": "half done",
            "attributes": {
                "openinference.span.kind": "CHAIN",
                "rollout.outside_trajectory": True,
                "input.value": {},
                "input.mime_type": "application/json",
                "output.value": None,
                "output.mime_type": "application/json",
                "gen_ai.request.temperature": 0.5,
                "stop": ("a", "b"),
                "nested": '{"a":[1]}',
            },
            "events": [
                {"name": "first token", "index": 0},
                {
                    "name": "exception",
                    "exception.type": "KeyError",
                    "exception.message": "'seen'",
                    "exception.stacktrace": "KeyError: 'seen'\n",
                    "exception.escaped": "False",
                },
            ],
            "links": [8],
        }

    def test_current_span_inside_a_trajectory(self, rollout_spans: InMemorySpanExporter) -> None:
        """The root is current inside a trajectory, an op's span inside the op, and neither afterwards."""
        seen: list[Any] = []

        @rollout_trace_op
        def op() -> None:
            seen.append(trace.get_current_span().get_span_context().span_id)

        with rollout_trace_attr(1):
            op()
            seen.append(trace.get_current_span().get_span_context().span_id)
        seen.append(trace.get_current_span().get_span_context().is_valid)
        assert seen == [2, 1, False]

    def test_parent_of_an_sdk_span(self) -> None:
        """An SDK tracer takes one of ours as the parent of its span."""
        from opentelemetry.sdk.trace import TracerProvider

        ours = make_span()
        inside = with_frame(otel_context(), Frame(None, ours))
        token = context_api.attach(inside)
        try:
            theirs: Any = TracerProvider().get_tracer("http").start_span("GET")
        finally:
            leave(token, inside)
        assert (theirs.context.trace_id, theirs.parent.span_id) == (1, 2)


def otel_context() -> Any:
    """Return the current OpenTelemetry context."""
    from opentelemetry import context

    return context.get_current()


class TestEnd:
    """Calls on an ended span."""

    def test_ends_once(self) -> None:
        """A span is handed over at its first end only."""
        ended: list[RolloutSpan] = []
        span = make_span(ended)
        span.end(5)
        span.end(6)
        assert (ended, span.end_time, span.is_recording()) == ([span], 5, False)

    def test_nothing_changes_afterwards(self) -> None:
        """After its end, a span ignores all calls."""
        span = make_span()
        span.end()
        span.set_attribute("late", 1)
        span.set_attributes({"late": 1})
        span.add_event("late")
        span.record_exception(ValueError("late"))
        span.add_link(IDS)
        span.update_name("late")
        span.set_status(StatusCode.ERROR, "late")
        assert (span.attributes, span.events, span.links, span.name) == ({}, None, None, "span")
        assert span.status_code is StatusCode.UNSET


class TestAttributes:
    """The limits of a span."""

    def test_values_are_copied(self) -> None:
        """A list or a dict that changes after it was set does not change the span."""
        span = make_span()
        items, table = ["a"], {"a": 1}
        span.set_attribute("list", items)
        span.set_attribute("dict", table)
        items.append("b")
        table["b"] = 2
        taken = span.attributes.pop("dict")
        assert type(taken) is Snapshot
        assert (taken.load(), span.attributes) == ({"a": 1}, {"list": ("a",)})

    def test_bounded(self) -> None:
        """Beyond the limits, attributes, events and links are dropped and counted; known attributes still change."""
        bounds = SpanBounds(attributes=3, events=2, links=1, event_attributes=2, link_attributes=1)
        span = RolloutSpan("span", IDS, None, {}, None, (), lambda ended: None, bounds)
        for i in range(8):
            span.set_attribute(f"key {i}", i)
            span.add_event(f"event {i}", {"a": 1, "b": 2, "c": 3})
            span.add_link(IDS, {"a": 1, "b": 2, "c": 3})
        span.set_attributes({"key 0": "new", "key 9": 9})
        assert (span.attributes, span.dropped_attributes) == ({"key 0": "new", "key 1": 1, "key 2": 2}, 6)
        assert [(event.name, event.attributes, event.dropped_attributes) for event in span.events or ()] == [
            ("event 0", {"a": 1, "b": 2}, 1),
            ("event 1", {"a": 1, "b": 2}, 1),
        ]
        assert [(link.attributes, link.dropped_attributes) for link in span.links or ()] == [({"a": 1}, 2)]
        assert (span.dropped_events, span.dropped_links) == (6, 7)

    def test_bounded_in_bytes(self) -> None:
        """Above 16 MiB, attributes of a span are dropped and counted; setting one again counts once."""
        span = make_span()
        for i in range(100):
            span.set_attribute("same", "x" * 1_000_000)
            span.set_attribute(f"key {i}", f"{i}" + "x" * 1_000_000)
            span.add_event("event", {"text": "x" * 1_000_000})
        assert 16 * 2**20 < span.size < 20 * 2**20
        assert span.dropped_attributes + span.dropped_events > 250

    def test_size(self) -> None:
        """The size of a span grows with its payload, attributes and events: the queue is bounded by it."""
        span = make_span()
        empty = span.size
        span.input, span.output = take_snapshot("x" * 1000), take_snapshot("y" * 2000)
        span.set_attribute("text", "z" * 500)
        span.record_exception(ValueError())
        assert span.size >= empty + 3500


class TestStatus:
    """The status follows the specification."""

    def test_ok_is_final(self) -> None:
        """Once a span is OK, no error changes that."""
        span = make_span()
        span.set_status(StatusCode.ERROR, "first")
        span.set_status(StatusCode.OK, "ignored")
        span.set_status(StatusCode.ERROR, "second")
        assert (span.status_code, span.status_description) == (StatusCode.OK, None)


class TestClock:
    """The system's clock is set while a trajectory runs."""

    @pytest.mark.parametrize("hours", [-1, 1])
    def test_is_set(self, rollout_spans: InMemorySpanExporter, monkeypatch: pytest.MonkeyPatch, hours: int) -> None:
        """Spans and events keep their order and their durations; times that the program gives stay as they are."""

        @rollout_trace_op
        def op() -> None:
            set_to = time.time_ns() + hours * 3600 * 10**9
            monkeypatch.setattr(time, "time_ns", lambda: set_to)
            trace.get_current_span().add_event("set")
            inner()

        @rollout_trace_op
        def inner() -> None:
            trace.get_current_span().add_event("given", timestamp=7)

        with rollout_trace_attr(step=1) as trajectory:
            op()
            trajectory.record("done")
            trajectory.record("given", start_time=5, end_time=6)
        assert otel_rollout.flush(60)
        spans = {span.name: span for span in rollout_spans.spans}
        root, outer, done, given = (spans[name] for name in ("rollout_trace", op.__qualname__, "done", "given"))
        nested = spans[inner.__qualname__]
        (of_outer,), (of_nested,) = outer.events, nested.events
        moments = [root.start_time, outer.start_time, of_outer.timestamp, nested.start_time, nested.end_time]
        moments += [outer.end_time, done.start_time, done.end_time, root.end_time]
        assert moments == sorted(moments)
        assert moments[-1] - moments[0] < 60 * 10**9
        assert (given.start_time, given.end_time, of_nested.timestamp) == (5, 6, 7)


class TestHeldBytes:
    """The estimated memory of a span, by which the queue is bounded."""

    @pytest.mark.parametrize(
        "change",
        [
            lambda span: span.set_attribute("ids", tuple(range(300_000))),
            lambda span: span.set_attribute("texts", ["x" * 1000] * 1000),
            lambda span: span.add_event("event", {"text": "x" * 1_000_000}),
        ],
        ids=["tuple", "texts in a list", "event"],
    )
    def test_large_values_count(self, change):
        """Each large part counts with its size."""
        span = RolloutSpan("op", 1, SpanContext(1, 2, False), {}, None, (), lambda span: None)
        change(span)

        assert span.size > 100_000

    @pytest.mark.parametrize("value", [0.25, 10**6, "x" * 50, "語" * 50, (1.5, 2.5)], ids=type)
    def test_small_attributes_count(self, value):
        """Keys, numbers and texts count with the memory that they take, as attributes and in events."""
        attributes = {f"score.{number}": copy.copy(value) for number in range(100)}
        taken = sum(sys.getsizeof(key) + sys.getsizeof(value) for key in attributes) + sys.getsizeof(attributes)
        span = RolloutSpan("op", 1, SpanContext(1, 2, False), {}, None, (), lambda span: None)
        empty = span.size
        span.set_attributes(attributes)
        with_attributes = span.size
        span.add_event("event", attributes)

        assert with_attributes - empty >= taken
        assert span.size - with_attributes >= taken

    def test_a_replaced_attribute_counts_once(self):
        """An attribute that is set again counts as its last value."""
        span = RolloutSpan("op", 1, SpanContext(1, 2, False), {}, None, (), lambda span: None)
        span.set_attribute("text", "short")
        short = span.size
        span.set_attribute("text", "x" * 1000)
        span.set_attribute("text", "other")

        assert span.size == short
