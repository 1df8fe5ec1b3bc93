"""Spans to deliver: standard and recording ones, made without a running configuration."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable
from itertools import count
from typing import Any

import pytest
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.util.instrumentation import InstrumentationScope
from opentelemetry.trace import SpanContext, TraceFlags

from otel_rollout import semconv
from otel_rollout.deliver import QueueLimits, SpanOutbox
from otel_rollout.export.follow_up_requests import FollowUpRequests, Kind
from otel_rollout.export.outcome import DELIVERED
from otel_rollout.finish import PayloadFinisher, SpanReader
from otel_rollout.record import RolloutSpan, TrajectoryState, take_snapshot
from tests.delivery.queues import QUICK, Recorder, running
from tests.delivery.side_requests import Backend

RESOURCE = Resource({})
SAMPLED = TraceFlags(TraceFlags.SAMPLED)


@pytest.fixture
def reader() -> SpanReader:
    """A reader that neither cuts nor redacts."""
    return SpanReader(RESOURCE, InstrumentationScope("test"), PayloadFinisher(2**30, None))


@pytest.fixture
def make_span() -> Callable[..., ReadableSpan]:
    """Makes finished spans of the SDK's kind, with ids counted from 1; a root unless `parent` is given."""
    ids = count(1)

    def make(name: str = "op", payload: str = "", *, parent: bool = False) -> ReadableSpan:
        return ReadableSpan(
            name=name,
            context=SpanContext(1, next(ids), False, SAMPLED),
            parent=SpanContext(1, 2**40, False, SAMPLED) if parent else None,
            attributes={semconv.INPUT_VALUE: payload} if payload else {},
            # Without one the SDK asks for a fresh resource, in a pool of threads.
            resource=RESOURCE,
            start_time=1,
            end_time=2,
        )

    return make


@pytest.fixture
def make_recording_span() -> Callable[..., RolloutSpan]:
    """Makes recording spans of one trajectory; children unless `is_root`."""
    ids = count(1)

    def make(
        name: str = "op",
        payload: Any = None,
        *,
        is_root: bool = False,
        trajectory: TrajectoryState | None = None,
    ) -> RolloutSpan:
        parent = None if is_root else SpanContext(1, 2**40, False, SAMPLED)
        span = RolloutSpan(
            name, SpanContext(1, next(ids), False, SAMPLED), parent, {}, trajectory, (), on_end=lambda span: None
        )
        span.input = None if payload is None else take_snapshot(payload)
        span.end()
        return span

    return make


@pytest.fixture
def exporter():
    """An exporter that takes every span, and hangs while its gate is closed."""
    exporter = Recorder()
    yield exporter
    exporter.gate.set()


@pytest.fixture
def make_queue(reader):
    """Makes queues that are shut down when the test ends."""
    with contextlib.ExitStack() as stack:

        def make(exporter, name="backend", policy=QUICK, **limits):
            return stack.enter_context(
                running(SpanOutbox(name, exporter, reader, QueueLimits(**{"delay": 0.01, **limits}), policy))
            )

        yield make


@pytest.fixture
def backend():
    """A backend for follow-up requests."""
    backend = Backend()
    yield backend
    backend.gate.set()


@pytest.fixture
def make_work(backend):
    """Makes follow-up requests of one kind, rewards, which is shut down when the test ends."""
    made = []

    def make(limit=1, policy=QUICK, **options):
        made.append(FollowUpRequests("backend", {"rewards": Kind(backend, limit)}, policy=policy, **options))
        return made[-1]

    yield make
    backend.rule = lambda values: DELIVERED
    backend.gate.set()
    for work in made:
        work.shutdown(time.monotonic() + 0.5)
