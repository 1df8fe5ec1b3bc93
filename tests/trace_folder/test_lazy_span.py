"""Spans that are parsed on first use."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.util.instrumentation import InstrumentationScope
from opentelemetry.trace import SpanContext

from otel_rollout import read_trajectories
from otel_rollout.folder.folder_writer import FolderWriter
from otel_rollout.otlp import json_reading as otlp_json_reading
from otel_rollout.otlp.json_reading import LazySpan, lazy_spans
from otel_rollout.otlp.json_writing import encode_line, join_lines
from tests.sdk import COPIES

from .recordings import make_span, make_trajectory, trace_id_of
from .test_otlp_json import spans, whole

TRACE_ID = f"{trace_id_of(7, 1, 2):032x}"


def of_one_trace(span: ReadableSpan) -> ReadableSpan:
    """A span as one of trace 1, and its parent too."""
    for context in filter(None, (span.context, span.parent)):
        fields = (1, context.span_id, context.is_remote, span.context.trace_flags, span.context.trace_state)
        if context is span.context:
            span._context = SpanContext(*fields)
        else:
            span._parent = SpanContext(*fields)
    return span


@settings(deadline=None)
@given(st.lists(st.lists(spans(), max_size=2), min_size=1, max_size=3).filter(any))
def test_they_say_what_was_written(parts):
    """Of any spans in any groups, joined from parts or not: the very same as when the line is parsed whole."""
    parts = [[of_one_trace(span) for span in part] for part in parts]
    line = b"".join(join_lines([encode_line(part) for part in parts]))
    found = lazy_spans(line, f"{1:032x}")
    assert [whole(span) for span in found] == [whole(span) for part in parts for span in part]


def test_one_span_is_parsed_without_the_others(tmp_path, monkeypatch):
    """Who reads the root of a recorded trajectory parses the root."""
    writer = FolderWriter(tmp_path)
    writer.write(make_trajectory(7, 1, 2))
    writer.close()
    parsed = []
    genuine = otlp_json_reading._decode_span
    monkeypatch.setattr(otlp_json_reading, "_decode_span", lambda *arguments: parsed.append(1) or genuine(*arguments))
    [trajectory] = read_trajectories(tmp_path)
    *others, root = trajectory.spans
    assert (len(others), parsed) == (2, [])
    assert (root.name, root.attributes["rollout.step"], root.dropped_attributes) == ("rollout", 7, 0)
    assert parsed == [1]


def test_spans_of_another_library_between_ours(tmp_path):
    """Their scope is theirs, and that of those behind them ours again."""
    own, root = make_trajectory(7, 1, 2)[1:]
    foreign = make_span("GET /", 9, trace_id_of(7, 1, 2))
    foreign._instrumentation_scope = InstrumentationScope("httpx", "1")
    found = lazy_spans(encode_line([own, foreign, root]), TRACE_ID)
    assert [span.instrumentation_scope.name for span in found] == ["otel_rollout", "httpx", "otel_rollout"]
    assert {id(span.resource) for span in found} == {id(found[0].resource)}


@pytest.mark.parametrize("how", COPIES)
def test_a_copy_before_first_use(how):
    """A copy is a span too, and leaves the first as it was."""
    [span, *_] = lazy_spans(encode_line(make_trajectory(7, 1, 2)), TRACE_ID)
    assert whole(how(span)) == whole(span)


def test_what_a_span_does_not_have():
    """Asking for it is the usual error, before and after the first use."""
    [span, *_] = lazy_spans(encode_line(make_trajectory(7, 1, 2)), TRACE_ID)
    for _ in range(2):
        with pytest.raises(AttributeError, match="'LazySpan' object has no attribute 'nonsense'"):
            span.nonsense  # noqa: B018


def test_a_span_that_is_none():
    """What only looks like a line of ours says so, as one error, when the span is read."""
    line = encode_line(make_trajectory(7, 1, 2)).replace(b'"name":"generate"', b'"events":[7]')
    [span, *others] = lazy_spans(line, TRACE_ID)
    for _ in range(2):
        with pytest.raises(ValueError, match="not a span of OTLP JSON"):
            span.name  # noqa: B018
    assert [other.name for other in others] == ["look_up", "rollout"]


def test_threads_that_ask_at_the_same_time():
    """Each gets the answer, whoever parses."""
    line = encode_line(make_trajectory(7, 1, 2))
    barrier = Barrier(4)

    def names(span: LazySpan) -> str:
        barrier.wait(10)
        return span.name

    with ThreadPoolExecutor(4) as threads:
        for _ in range(50):
            [span, *_] = lazy_spans(line, TRACE_ID)
            assert set(threads.map(names, [span] * 4)) == {"generate"}


LINE = encode_line(make_trajectory(7, 1, 2))


@pytest.mark.parametrize(
    "line",
    [
        b"",
        b"x",
        b"\t",
        LINE.replace(b"\t", b""),
        LINE[:-1],
        LINE[:-20],
        LINE.replace(b"]}]}]}", b""),
        LINE.replace(b'"spans":[', b'"spans":[{},'),
        LINE.replace(b'{"resourceSpans":[', b'{"resourceSpans":[['),
        LINE.replace(b"},\t{", b"}\t{"),
        LINE.replace(b"},\t{", b'},"\t":{'),
        json.dumps(json.loads(LINE), indent="\t").encode(),
        encode_line([*make_trajectory(7, 1, 2), *make_trajectory(7, 1, 3)]),
    ],
)
def test_other_lines_are_left_to_the_parser(line):
    """Those of other tools, of older versions, with several traces, or damaged."""
    assert lazy_spans(line, TRACE_ID) is None
