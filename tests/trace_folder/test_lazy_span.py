"""Spans that are decoded on first use."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from threading import Barrier

import pytest
from hypothesis import given
from hypothesis import strategies as st
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.trace import SpanContext

from otel_rollout import read_trajectories
from otel_rollout.folder.folder_writer import FolderWriter
from otel_rollout.otlp import StoredSpan, encode_spans, lazy_spans, traces_of
from tests.sdk import COPIES

from .recordings import make_trajectory
from .test_otlp import spans, whole


def of_one_trace(span: ReadableSpan) -> ReadableSpan:
    """A span as one of trace 1, and its parent too."""
    for context in filter(None, (span.context, span.parent)):
        fields = (1, context.span_id, context.is_remote, span.context.trace_flags, span.context.trace_state)
        if context is span.context:
            span._context = SpanContext(*fields)
        else:
            span._parent = SpanContext(*fields)
    return span


@given(st.lists(st.lists(spans(), max_size=2), min_size=1, max_size=3).filter(any))
def test_they_say_what_was_written(parts):
    """Of any spans in any groups, joined from parts or not: all that was written."""
    parts = [[of_one_trace(span) for span in part] for part in parts]
    found = traces_of(b"".join(map(encode_spans, parts)))[(1).to_bytes(16, "big")]
    assert [whole(span) for span in found] == [whole(span) for part in parts for span in part]


def test_one_span_is_decoded_without_the_others(tmp_path):
    """Who reads the root of a recorded trajectory decodes the root."""
    writer = FolderWriter(tmp_path)
    writer.write(make_trajectory(7, 1, 2))
    writer.close()
    [trajectory] = read_trajectories(tmp_path)
    assert [bool(span.data) for span in trajectory.spans] == [True, True, True]
    root = trajectory.spans[-1]
    assert (root.name, root.attributes["rollout.step"], root.dropped_attributes) == ("rollout", 7, 0)
    assert [bool(span.data) for span in trajectory.spans] == [True, True, False]


@pytest.mark.parametrize("how", COPIES)
def test_a_copy_before_first_use(how):
    """A copy is a span too, and leaves the first as it was."""
    [span, *_] = lazy_spans(encode_spans(make_trajectory(7, 1, 2)))
    assert whole(how(span)) == whole(span)


def test_what_a_span_does_not_have():
    """Asking for it is the usual error, before and after the first use."""
    [span, *_] = lazy_spans(encode_spans(make_trajectory(7, 1, 2)))
    for _ in range(2):
        with pytest.raises(AttributeError, match="'StoredSpan' object has no attribute 'nonsense'"):
            span.nonsense  # noqa: B018


def test_a_span_that_is_none():
    """What only looks like a span says so, as one error, when the span is read."""
    request = encode_spans(make_trajectory(7, 1, 2)).replace(b"*\x08generate", b"Z\x08generate")
    [span, *others] = lazy_spans(request)
    for _ in range(2):
        with pytest.raises(ValueError, match="not a span of OTLP"):
            span.name  # noqa: B018
    assert [other.name for other in others] == ["look_up", "rollout"]


def test_threads_that_ask_at_the_same_time():
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
