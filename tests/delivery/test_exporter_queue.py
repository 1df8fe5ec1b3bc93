"""The queue in front of an exporter: its batches, and its indifference to bad exporters."""

from __future__ import annotations

import logging
import threading
import time

import pytest
from opentelemetry.sdk.trace.export import SpanExportResult

from otel_rollout import semconv
from otel_rollout.export import RetryPolicy
from otel_rollout.export.outcome import DELIVERED, Outcome, Verdict
from tests.delivery.queues import RETRY, Plain, Recorder, block, until

pytestmark = pytest.mark.every_python


class TestBatches:
    """What goes together, in which order, and when."""

    def test_spans_arrive_in_order_with_the_root_last(self, make_queue, exporter, make_recording_span):
        """What is put is delivered in the order of the ends: the root of a trajectory comes last."""
        queue = make_queue(exporter)
        for number in range(20):
            queue.put(make_recording_span(f"op{number}"))
        queue.put(make_recording_span("root", is_root=True))
        assert queue.flush(60)
        assert exporter.names == [*(f"op{number}" for number in range(20)), "root"]

    def test_a_batch_is_bounded_by_bytes(self, make_queue, exporter, make_recording_span):
        """No batch holds more bytes than the limit, and a span that is larger goes alone."""
        queue = make_queue(exporter, batch_bytes=100_000, delay=60.0)
        for name, size in (("a", 40_000), ("b", 40_000), ("giant", 500_000), ("c", 40_000), ("d", 70_000)):
            queue.put(make_recording_span(name, "x" * size))
        assert queue.flush(60)
        assert exporter.names == ["a", "b", "giant", "c", "d"]
        assert ["giant"] in [[span.name for span in batch] for batch in exporter.batches]
        for batch in exporter.batches:
            size = sum(len(span.attributes[semconv.INPUT_VALUE]) for span in batch)
            assert len(batch) == 1 or size <= 100_000

    def test_the_exporter_is_not_traced(self, make_queue, exporter, make_span):
        """While an exporter sends, instrumentation is suppressed, so that its requests make no spans."""
        queue = make_queue(exporter)
        queue.put(make_span())
        assert queue.flush(60)
        assert exporter.suppressed == [True]


class TestTroubles:
    """Exporters and backends that fail."""

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

    def test_a_flush_is_one_attempt_when_we_are_turned_away(self, make_queue, exporter, make_span):
        """With wrong credentials a flush asks once, returns at once, and nothing is lost."""
        exporter.outcome = lambda spans: Outcome(Verdict.CONFIGURATION_ERROR, "wrong key")
        queue = make_queue(exporter, policy=RetryPolicy())
        queue.put(make_span("kept"))
        until(lambda: exporter.attempts == 1)
        assert not queue.flush(600)
        assert exporter.attempts == 2
        exporter.outcome = lambda spans: DELIVERED
        assert queue.flush(60)
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
        assert queue.flush(60)

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
                    other.join(60)
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

    def test_a_configuration_error_is_logged_once(self, make_queue, exporter, make_span, caplog, monkeypatch):
        """The same one makes one line, however long it lasts."""
        monkeypatch.setattr("otel_rollout.export.outbox.SECONDS_BETWEEN_WARNINGS", -1.0)
        exporter.outcome = lambda spans: Outcome(Verdict.CONFIGURATION_ERROR, "401")
        queue = make_queue(exporter)
        with caplog.at_level(logging.WARNING, "otel_rollout"):
            queue.put(make_span())
            until(lambda: exporter.attempts > 5)
        assert [message for message in caplog.messages if "401" in message] == [
            "backend: auth or configuration error: spans are kept within the bound until it is fixed (401)"
        ]


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
        assert healthy.flush(60)
        assert other.names == [str(number) for number in range(50)]
        assert hanging.stats().queued == 51
