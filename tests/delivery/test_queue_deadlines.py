"""A flush and a shutdown of a queue: in time, and with the truth."""

from __future__ import annotations

import threading
import time

import pytest

from otel_rollout.export import RetryPolicy
from otel_rollout.export.outcome import Outcome, Verdict
from otel_rollout.testing import InMemorySpanExporter
from tests.delivery.queues import Recorder, block, is_balanced, refuse_to_start, until

pytestmark = pytest.mark.every_python


class Flushing(InMemorySpanExporter):
    """An exporter of another kind, with a flush of its own."""


class TestDeadlines:
    """`flush` and `shutdown` return in time, with the truth."""

    def test_flushes_at_the_same_time_both_tell_of_a_loss(self, make_queue, exporter, make_span):
        """Two flushes that wait for the same lost span are both False."""
        exporter.outcome = lambda spans: Outcome(Verdict.REFUSED, "bad")
        queue = make_queue(exporter)
        block(queue, exporter, make_span())
        results = []
        flushes = [threading.Thread(target=lambda: results.append(queue.flush(10))) for _ in range(2)]
        for thread in flushes:
            thread.start()
        until(lambda: len(queue._flushes) == 2)
        exporter.gate.set()
        for thread in flushes:
            thread.join()
        assert results == [False, False]

    @pytest.mark.parametrize("kind", [Recorder, Flushing])
    def test_an_exporter_that_fails_to_flush(self, make_queue, make_span, monkeypatch, kind):
        """Where the exporter's own flush raises, ours returns False, and passes nothing on."""

        def fail(exporter, timeout_millis):
            raise RuntimeError("no")

        monkeypatch.setattr(kind, "force_flush", fail)
        queue = make_queue(kind())
        queue.put(make_span())
        assert queue.flush(60) is False
        assert queue.stats().delivered == 1

    @pytest.mark.parametrize("timeout", [float("inf"), 1e300])
    def test_a_flush_may_wait_for_ever(self, make_queue, exporter, make_span, timeout):
        """A timeout beyond what the platform can wait is no error."""
        queue = make_queue(exporter)
        queue.put(make_span())
        assert queue.flush(timeout)

    def test_a_shutdown_returns_in_time_before_a_hanging_exporter(self, make_queue, exporter, make_span):
        """At the deadline what is in an attempt is unknown until its answer comes; what waits behind it is lost."""
        queue = make_queue(exporter, batch_spans=1)
        block(queue, exporter, make_span())
        for _ in range(3):
            queue.put(make_span())
        queue.shutdown(time.monotonic() + 0.1)
        assert queue.join() is False
        at_deadline = queue.stats()
        assert at_deadline.lost == {"unknown": 1, "shutdown": 3}
        assert (at_deadline.queued, at_deadline.queued_bytes, at_deadline.delivered) == (0, 0, 0)
        exporter.gate.set()
        until(lambda: exporter.shutdowns == 1)
        until(lambda: queue.stats().delivered == 1)
        assert queue.stats().lost == {"shutdown": 3}
        assert exporter.attempts == 1

    def test_a_shutdown_does_not_wait_for_credentials(self, make_queue, exporter, make_span):
        """After an auth error, a shutdown makes one last attempt and is done."""
        exporter.outcome = lambda spans: Outcome(Verdict.CONFIGURATION_ERROR, "wrong key")
        queue = make_queue(exporter, policy=RetryPolicy())
        queue.put(make_span())
        queue.shutdown(time.monotonic() + 600)
        assert queue.join() is False
        assert queue.stats().lost == {"configuration_error": 1}

    def test_spans_after_the_shutdown_are_counted(self, make_queue, exporter, make_span):
        """A span that ends after the shutdown is lost, and counted as that."""
        queue = make_queue(exporter)
        queue.shutdown(time.monotonic() + 10)
        queue.join()
        queue.put(make_span())
        assert queue.stats().lost == {"after_shutdown": 1}
        assert is_balanced(queue.stats())

    def test_without_a_thread_the_shutdown_delivers_itself(self, make_queue, exporter, make_span, monkeypatch):
        """Where the interpreter starts no more threads, the shutdown delivers on the caller's."""
        queue = make_queue(exporter)

        with monkeypatch.context() as patch:
            patch.setattr(threading.Thread, "start", refuse_to_start)
            queue.put(make_span("last"))
            queue.shutdown(time.monotonic() + 10)
        assert queue.join() is True
        assert exporter.names == ["last"]

    def test_an_exporter_that_fails_to_shut_down_loses_nothing(self, make_queue, exporter, make_span):
        """An exception in the exporter's shutdown does not make delivered spans lost."""

        def fail():
            raise RuntimeError("no")

        exporter.shutdown = fail
        queue = make_queue(exporter)
        queue.put(make_span())
        queue.shutdown(time.monotonic() + 10)
        assert queue.join() is True
