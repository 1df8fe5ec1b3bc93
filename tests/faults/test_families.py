"""Processes that come from one another, by fork and multiprocessing, in front of one backend or one folder."""

from __future__ import annotations

import os

import pytest
from faulty_receiver import Fault

SPANS_OF_CHILD, SPANS_OF_PARENT = 20, 60


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork here")
class TestFamily:
    """A parent that has sent some and has others queued when its children start."""

    @pytest.mark.parametrize(
        "kind", ["fork", *(pytest.param(kind, marks=pytest.mark.slow) for kind in ("spawn", "forkserver", "executor"))]
    )
    def test_each_span_arrives_once(self, receiver, family, kind) -> None:
        """Whatever the way of starting them, parent and children deliver their own spans, each once, by their ends."""
        sent, counts = family(kind, "3", OTEL_TRACES_EXPORTER="otlp", OTEL_EXPORTER_OTLP_ENDPOINT=receiver.url)
        assert len(sent) == 3 * SPANS_OF_CHILD + SPANS_OF_PARENT
        assert receiver.stored == dict.fromkeys(sent, 1)
        assert counts["otlp"]["recorded"] == counts["otlp"]["delivered"] == SPANS_OF_PARENT

    def test_each_span_arrives_once_through_faults(self, receiver, family) -> None:
        """Children whose connections are reset and whose requests are refused for a while lose nothing either."""
        receiver.faults += [Fault(reset="body"), None, Fault(status=503), None] * 20
        sent, counts = family("fork", "3", OTEL_TRACES_EXPORTER="otlp", OTEL_EXPORTER_OTLP_ENDPOINT=receiver.url)
        assert receiver.stored == dict.fromkeys(sent, 1)
        assert counts["otlp"]["lost"] == {}


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork here")
class TestPool:
    """`multiprocessing.Pool` ends its workers by SIGTERM."""

    @pytest.mark.slow
    def test_without_flush(self, receiver, family) -> None:
        """Without a flush the workers of a pool that is terminated may lose what they have queued, and nothing else."""
        sent, counts = family("pool", "3", OTEL_TRACES_EXPORTER="otlp", OTEL_EXPORTER_OTLP_ENDPOINT=receiver.url)
        assert len(sent) == 3 * SPANS_OF_CHILD + SPANS_OF_PARENT
        # A worker that gets the pool's end of work before the signal ends by itself, and delivers.
        assert len(receiver.stored) >= SPANS_OF_PARENT
        assert receiver.stored.keys() <= set(sent)
        assert set(receiver.stored.values()) == {1}
        assert counts["otlp"]["recorded"] == counts["otlp"]["delivered"] == SPANS_OF_PARENT

    @pytest.mark.parametrize("way", ["flush", pytest.param("close", marks=pytest.mark.slow)])
    def test_each_span_arrives_once(self, receiver, family, way) -> None:
        """With a flush at the end of each task, or where the pool is closed instead, all of it arrives."""
        sent, _ = family("pool", "3", way, OTEL_TRACES_EXPORTER="otlp", OTEL_EXPORTER_OTLP_ENDPOINT=receiver.url)
        assert receiver.stored == dict.fromkeys(sent, 1)
