"""The queue in front of an exporter: its batches, and its indifference to bad exporters."""

from __future__ import annotations

import logging
import threading
import time
from collections import deque

import pytest
from opentelemetry.sdk.trace.export import SpanExportResult

from otel_rollout import semconv
from otel_rollout.export import RetryPolicy
from otel_rollout.export.outcome import DELIVERED, Outcome, Verdict
from otel_rollout.record import TrajectoryState
from tests.delivery.queues import RETRY, Plain, Recorder, block, is_balanced, until

pytestmark = pytest.mark.every_python


class TestBatches:
    """What goes together, in which order, and when."""

    def test_spans_arrive_in_order_with_the_root_last(self, make_queue, exporter, make_recording_span):
        """What is put is delivered in the order of the ends: the root of a trajectory comes last."""
        queue = make_queue(exporter)
        for number in range(20):
            queue.put(make_recording_span(f"op{number}"))
        queue.put(make_recording_span("root", is_root=True))
        assert queue.flush(10)
        assert exporter.names == [*(f"op{number}" for number in range(20)), "root"]

    def test_a_batch_is_bounded_by_count(self, make_queue, exporter, make_span):
        """No batch holds more spans than the limit."""
        queue = make_queue(exporter, batch_spans=7, delay=60.0)
        for _ in range(20):
            queue.put(make_span())
        assert queue.flush(10)
        assert max(map(len, exporter.batches)) <= 7
        assert len(exporter.spans) == 20

    def test_a_batch_is_bounded_by_bytes(self, make_queue, exporter, make_recording_span):
        """No batch holds more bytes than the limit, and a span that is larger goes alone."""
        queue = make_queue(exporter, batch_bytes=100_000, delay=60.0)
        for name, size in (("a", 40_000), ("b", 40_000), ("giant", 500_000), ("c", 40_000), ("d", 70_000)):
            queue.put(make_recording_span(name, "x" * size))
        assert queue.flush(10)
        assert exporter.names == ["a", "b", "giant", "c", "d"]
        assert ["giant"] in [[span.name for span in batch] for batch in exporter.batches]
        for batch in exporter.batches:
            size = sum(len(span.attributes[semconv.INPUT_VALUE]) for span in batch)
            assert len(batch) == 1 or size <= 100_000

    def test_the_exporters_own_limit_counts_too(self, make_queue, exporter, make_recording_span):
        """An exporter that takes less than the configured batch gets less."""
        exporter.max_batch_bytes = 50_000
        queue = make_queue(exporter, delay=60.0)
        for _ in range(4):
            queue.put(make_recording_span("a", "x" * 30_000))
        assert queue.flush(10)
        assert [len(batch) for batch in exporter.batches] == [1, 1, 1, 1]

    def test_a_full_batch_does_not_wait(self, make_queue, exporter, make_span):
        """A batch goes as soon as it is full, however long the delay."""
        queue = make_queue(exporter, batch_spans=5, delay=60.0)
        queue.start()
        until(lambda: queue._is_idle)
        for _ in range(5):
            queue.put(make_span())
        until(lambda: len(exporter.spans) == 5)

    def test_a_batch_that_does_not_fill_goes_after_the_delay(self, make_queue, exporter, make_span):
        """One span alone is delivered without a flush."""
        make_queue(exporter).put(make_span("alone"))
        until(lambda: exporter.names == ["alone"])

    def test_the_exporter_is_not_traced(self, make_queue, exporter, make_span):
        """While an exporter sends, instrumentation is suppressed, so that its requests make no spans."""
        queue = make_queue(exporter)
        queue.put(make_span())
        assert queue.flush(10)
        assert exporter.suppressed == [True]


class TestTroubles:
    """Exporters and backends that fail."""

    @pytest.mark.parametrize("error", [RuntimeError, SystemExit])
    def test_a_plain_exporter_that_raises_harms_nothing(self, make_queue, make_span, error):
        """An exporter that raises does not end the thread; the batch is sent again."""
        attempts = []

        def rule(spans):
            attempts.append(1)
            if len(attempts) < 3:
                raise error("no")
            return SpanExportResult.SUCCESS

        exporter = Plain(rule)
        queue = make_queue(exporter)
        queue.put(make_span("kept"))
        assert queue.flush(10)
        assert exporter.received == ["kept"]

    def test_one_span_that_a_plain_exporter_chokes_on_is_dropped_alone(self, make_queue, make_span):
        """A span that makes the exporter raise is found and dropped; the others arrive."""

        def rule(spans):
            if any(span.name == "poison" for span in spans):
                raise ValueError("poison")
            return SpanExportResult.SUCCESS

        exporter = Plain(rule)
        queue = make_queue(exporter, delay=60.0)
        for name in ("a", "b", "poison", "c"):
            queue.put(make_span(name))
        assert not queue.flush(10)
        assert sorted(exporter.received) == ["a", "b", "c"]
        assert queue.stats().lost == {"export_failed": 1}

    def test_a_span_that_cannot_be_read_is_lost_alone(self, make_queue, exporter, make_span, reader, monkeypatch):
        """A fault of ours while reading one span costs that span, and no other."""
        read = type(reader).read

        def faulty(self, span, name):
            if span.name == "cursed":
                raise RuntimeError("fault")
            return read(self, span, name)

        monkeypatch.setattr(type(reader), "read", faulty)
        queue = make_queue(exporter, delay=60.0)
        for name in ("a", "cursed", "b"):
            queue.put(make_span(name))
        assert not queue.flush(10)
        assert exporter.names == ["a", "b"]
        assert queue.stats().lost == {"internal_error": 1}
        assert is_balanced(queue.stats())

    def test_a_flush_is_one_attempt_when_we_are_turned_away(self, make_queue, exporter, make_span):
        """With wrong credentials a flush asks once, returns at once, and nothing is lost."""
        exporter.outcome = lambda spans: Outcome(Verdict.CONFIGURATION_ERROR, "wrong key")
        queue = make_queue(exporter, policy=RetryPolicy())
        queue.put(make_span("kept"))
        until(lambda: exporter.attempts == 1)
        assert not queue.flush(600)
        assert exporter.attempts == 2
        exporter.outcome = lambda spans: DELIVERED
        assert queue.flush(30)
        assert exporter.names == ["kept"]

    def test_a_flush_does_not_cut_short_what_the_backend_asked_for(self, make_queue, exporter, make_span):
        """Retry-After is kept to even when a flush is waiting; a shutdown makes one last attempt."""
        exporter.outcome = lambda spans: Outcome(Verdict.RETRY, "busy", retry_after=60.0)
        queue = make_queue(exporter, policy=RetryPolicy())
        queue.put(make_span("kept"))
        until(lambda: exporter.attempts == 1)
        assert not queue.flush(0.05)
        assert exporter.attempts == 1
        exporter.outcome = lambda spans: DELIVERED
        queue.shutdown(time.monotonic() + 10)
        assert queue.join()
        assert exporter.names == ["kept"]

    def test_a_flush_cuts_the_backoff_short(self, make_queue, exporter, make_span):
        """A flush tries again at once after an outage, whatever the backoff had come to."""
        exporter.outcome = lambda spans: RETRY
        queue = make_queue(exporter, policy=RetryPolicy(initial_delay=60.0, max_delay=60.0))
        queue.put(make_span("kept"))
        until(lambda: exporter.attempts == 1)
        exporter.outcome = lambda spans: DELIVERED
        assert queue.flush(10)

    def test_a_flush_cuts_short_what_the_backend_did_not_ask_for(self, make_queue, exporter, make_span):
        """Where the backoff is longer than Retry-After, a flush waits for no more than the latter."""
        exporter.outcome = lambda spans: Outcome(Verdict.RETRY, "busy", retry_after=0.01)
        queue = make_queue(exporter, policy=RetryPolicy(initial_delay=60.0, max_delay=60.0))
        queue.put(make_span("kept"))
        until(lambda: exporter.attempts == 1)
        exporter.outcome = lambda spans: DELIVERED
        assert queue.flush(10)

    def test_logging_the_wait_at_the_end_holds_no_lock(self, make_queue, exporter, make_span):
        """While the line is logged other threads still get at the queue: a logging handler may wait for one of them."""
        exporter.outcome = lambda spans: RETRY
        queue = make_queue(exporter)
        queue.put(make_span())
        until(lambda: exporter.attempts > 1)
        was_free = []

        class Handler(logging.Handler):
            def emit(self, record):
                if "the end of the process" in record.getMessage():
                    other = threading.Thread(target=lambda: was_free.append(bool(queue.stats())), daemon=True)
                    other.start()
                    other.join(3.0)
                    was_free.append(not other.is_alive())

        handler = Handler()
        logging.getLogger("otel_rollout").addHandler(handler)
        try:
            queue.shutdown(time.monotonic() + 3.0)
        finally:
            logging.getLogger("otel_rollout").removeHandler(handler)
        exporter.outcome = lambda spans: DELIVERED
        until(lambda: was_free)

        assert was_free == [True, True]

    def test_trouble_is_logged_once(self, make_queue, exporter, make_span, caplog):
        """A backend that is down for many attempts makes one line in the log, which names it."""
        exporter.outcome = lambda spans: RETRY
        queue = make_queue(exporter)
        with caplog.at_level(logging.WARNING, "otel_rollout"):
            queue.put(make_span())
            until(lambda: exporter.attempts > 10)
        waiting = "1 span waits in memory (256 MiB at most) until the backend takes them"
        assert caplog.messages == [f"backend: not delivered, trying again (down); {waiting}"]
        exporter.outcome = lambda spans: DELIVERED


class TestOneHarmsNoOther:
    """Queues stand on their own."""

    def test_a_hanging_exporter_does_not_delay_another(self, make_queue, exporter, make_recording_span):
        """Spans reach one exporter while another hangs on the same spans."""
        other = Recorder()
        hanging, healthy = make_queue(exporter, "hanging"), make_queue(other, "healthy")
        block(hanging, exporter, make_recording_span("first"))
        for number in range(50):
            span = make_recording_span(str(number))
            hanging.put(span)
            healthy.put(span)
        assert healthy.flush(10)
        assert other.names == [str(number) for number in range(50)]
        assert hanging.stats().queued == 51

    @pytest.mark.parametrize("letter", ["x", "漢"])
    def test_two_exporters_get_the_same_payload_that_is_cut_once(
        self, make_queue, exporter, make_recording_span, reader, letter
    ):
        """A payload over the limit is cut once, whichever exporter comes first, and counted once."""
        reader.finisher.max_bytes = 1000
        other = Recorder()
        first, second = make_queue(exporter, "first"), make_queue(other, "second")
        trajectory = TrajectoryState({})
        span = make_recording_span("op", letter * 2000, trajectory=trajectory)
        first.put(span)
        assert first.flush(10)
        cut = trajectory.truncated_bytes
        second.put(span)
        assert second.flush(10)
        assert exporter.spans[0].attributes == other.spans[0].attributes
        assert trajectory.truncated_bytes == reader.counts.truncated_bytes == cut
        assert cut > 0

    def test_putting_never_waits(self, make_queue, exporter, make_span):
        """A caller is not held up by an exporter that hangs, whether or not the queue is full."""
        queue = make_queue(exporter, max_spans=100)
        block(queue, exporter, make_span())
        for _ in range(10_000):
            queue.put(make_span())


class Interrupt(BaseException):
    """What a signal handler raises."""


class TestInterruptions:
    """A signal handler that raises while a span is put."""

    def test_before_it_is_counted(self, make_queue, exporter, make_span, monkeypatch):
        """The exception passes, and the span is counted as lost."""
        queue = make_queue(exporter)

        def interrupted(span):
            monkeypatch.undo()
            raise Interrupt

        monkeypatch.setattr("otel_rollout.deliver.span_outbox.queued_size", interrupted)
        with pytest.raises(Interrupt):
            queue.put(make_span())
        queue.put(make_span())
        assert not queue.flush(10)
        stats = queue.stats()
        assert (stats.recorded, stats.delivered, stats.lost) == (2, 1, {"interrupted": 1})
        assert is_balanced(stats)

    def test_at_the_end_of_the_stack(self, make_queue, exporter, make_span, monkeypatch):
        """A span that is lost is counted though nothing more can be called: a Counter would call for a missing key."""
        queue = make_queue(exporter)

        def overflowing(*_):
            raise RecursionError

        monkeypatch.setattr("collections.Counter.__missing__", overflowing)
        monkeypatch.setattr("otel_rollout.deliver.span_outbox.queued_size", overflowing)
        with pytest.raises(RecursionError):
            queue.put(make_span())
        monkeypatch.undo()
        assert queue.stats().lost == {"interrupted": 1}
        assert is_balanced(queue.stats())

    def test_once_it_is_queued(self, make_queue, exporter, make_span):
        """The exception passes, and the span is delivered."""
        queue = make_queue(exporter)

        class Items(deque):
            def append(self, item):
                super().append(item)
                raise Interrupt

        queue._queued = Items()
        with pytest.raises(Interrupt):
            queue.put(make_span())
        assert queue.stats().queued == 1
        queue.start()
        assert queue.flush(10)
        stats = queue.stats()
        assert (stats.recorded, stats.delivered, stats.queued, stats.queued_bytes) == (1, 1, 0, 0)
