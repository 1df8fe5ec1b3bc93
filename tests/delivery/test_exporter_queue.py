"""The queue in front of an exporter: its bounds, its accounts, its deadlines, and its indifference to bad exporters."""

from __future__ import annotations

import contextlib
import gc
import logging
import threading
import time
import tracemalloc

import pytest
from opentelemetry import context as context_api
from opentelemetry.sdk.trace.export import SpanExporter, SpanExportResult

from otel_rollout import semconv
from otel_rollout.delivery.batch_sender import RetryPolicy
from otel_rollout.delivery.exporter_queue import ExporterQueue
from otel_rollout.delivery.outcome import DELIVERED, Outcome, Verdict
from otel_rollout.delivery.queue_limits import QueueLimits
from otel_rollout.payload import snapshot
from otel_rollout.trajectory_state import TrajectoryState

QUICK = RetryPolicy(initial_delay=0.001, max_delay=0.002, denied_delay=0.01)
RETRY = Outcome(Verdict.RETRY, "down")


class _Recorder(SpanExporter):
    """Takes every span, unless `outcome` says otherwise; each attempt waits for `gate`."""

    def __init__(self):
        self.gate = threading.Event()
        self.gate.set()
        self.entered = threading.Event()
        self.outcome = lambda spans: DELIVERED
        self.batches = []
        self.attempts = 0
        self.shutdowns = 0
        self.suppressed = []

    def send(self, spans):
        self.attempts += 1
        self.entered.set()
        self.suppressed.append(context_api.get_value(context_api._SUPPRESS_INSTRUMENTATION_KEY))
        self.gate.wait(30)
        outcome = self.outcome(spans)
        if outcome.verdict is Verdict.DELIVERED:
            self.batches.append(list(spans))
        return outcome

    def export(self, spans):
        raise AssertionError("an exporter with send is not asked to export")

    def shutdown(self):
        self.shutdowns += 1

    @property
    def spans(self):
        return [span for batch in self.batches for span in batch]

    @property
    def names(self):
        return [span.name for span in self.spans]


class _Plain(SpanExporter):
    """An exporter of somebody else's, that answers by a rule."""

    def __init__(self, rule):
        self.rule = rule
        self.received = []

    def export(self, spans):
        result = self.rule(spans)
        if result is SpanExportResult.SUCCESS:
            self.received += [span.name for span in spans]
        return result


def until(condition, seconds=10.0):
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "the condition was not met in time"
        time.sleep(0.002)


@contextlib.contextmanager
def running(queue):
    try:
        yield queue
    finally:
        queue.shutdown(time.monotonic() + 5.0)
        queue.join()


def is_balanced(stats):
    return stats.recorded == stats.delivered + stats.queued + sum(stats.lost.values())


@pytest.fixture
def exporter():
    exporter = _Recorder()
    yield exporter
    exporter.gate.set()


@pytest.fixture
def make_queue(reader):
    with contextlib.ExitStack() as stack:

        def make(exporter, name="backend", policy=QUICK, **limits):
            return stack.enter_context(
                running(ExporterQueue(name, exporter, reader, QueueLimits(**{"delay": 0.01, **limits}), policy))
            )

        yield make


def block(queue, exporter, span):
    """Have the exporter hang on one span, so that everything after it stays queued."""
    exporter.gate.clear()
    exporter.entered.clear()
    queue.put(span)
    queue.hurry()
    assert exporter.entered.wait(10)


class TestBatches:
    """What goes together, in which order, and when."""

    def test_spans_arrive_in_order_with_the_root_last(self, make_queue, exporter, make_light_span):
        """What is put is delivered in the order of the ends: the root of a trajectory comes last."""
        queue = make_queue(exporter)
        for number in range(20):
            queue.put(make_light_span(f"op{number}"))
        queue.put(make_light_span("root", is_root=True))
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

    def test_a_batch_is_bounded_by_bytes(self, make_queue, exporter, make_light_span):
        """No batch holds more bytes than the limit, and a span that is larger goes alone."""
        queue = make_queue(exporter, batch_bytes=100_000, delay=60.0)
        for name, size in (("a", 40_000), ("b", 40_000), ("giant", 500_000), ("c", 40_000), ("d", 70_000)):
            queue.put(make_light_span(name, b'"' + b"x" * size + b'"'))
        assert queue.flush(10)
        assert exporter.names == ["a", "b", "giant", "c", "d"]
        assert ["giant"] in [[span.name for span in batch] for batch in exporter.batches]
        for batch in exporter.batches:
            size = sum(len(span.attributes[semconv.INPUT_VALUE]) for span in batch)
            assert len(batch) == 1 or size <= 100_000

    def test_the_exporters_own_limit_counts_too(self, make_queue, exporter, make_light_span):
        """An exporter that takes less than the configured batch gets less."""
        exporter.max_batch_bytes = 50_000
        queue = make_queue(exporter, delay=60.0)
        for _ in range(4):
            queue.put(make_light_span("a", b'"' + b"x" * 30_000 + b'"'))
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


class TestBounds:
    """What is given up before a full queue."""

    def test_payload_goes_before_spans_and_children_before_roots(self, make_queue, exporter, make_light_span):
        """Near the bound payloads are left out, then children, roots last; each is counted by its reason."""
        bound = 1_000_000
        queue = make_queue(exporter, max_bytes=bound)
        block(queue, exporter, make_light_span("first"))
        for _ in range(40):
            queue.put(make_light_span("child", b'"' + b"x" * 50_000 + b'"'))
        stats = queue.stats()
        assert stats.payloads_dropped > 0
        assert stats.lost == {}
        while not queue.stats().lost:
            queue.put(make_light_span("child"))
        assert queue.stats().queued_bytes <= 0.97 * bound
        for _ in range(5):
            queue.put(make_light_span("root", b'"' + b"x" * 50_000 + b'"', is_root=True))
        stats = queue.stats()
        assert stats.lost == {"queue_full": 1}
        assert stats.queued_bytes <= bound
        assert is_balanced(stats)
        exporter.gate.set()
        assert not queue.flush(10)
        assert exporter.names.count("root") == 5
        without = [span for span in exporter.spans if "dropped" in span.attributes.get(semconv.INPUT_VALUE, "")[:60]]
        assert len(without) == stats.payloads_dropped
        assert without[0].attributes[semconv.INPUT_VALUE] == '"…[50,002 characters dropped: the export queue was full]"'

    def test_the_count_of_the_standard_variable_is_a_bound(self, make_queue, exporter, make_span):
        """With a bound on the count no more spans are held, and children give way to roots."""
        queue = make_queue(exporter, max_spans=100)
        block(queue, exporter, make_span())
        for _ in range(200):
            queue.put(make_span(parent=True))
        assert queue.stats().queued == 97
        for _ in range(200):
            queue.put(make_span("root"))
        stats = queue.stats()
        assert stats.queued == 100
        assert stats.lost == {"queue_full": 301}
        assert is_balanced(stats)

    @pytest.mark.parametrize(
        "payload", ["x" * 50_000, "é漢" * 10_000, "x" * 2_000, "x" * 10], ids=["ascii", "cjk", "2 KB", "tiny"]
    )
    def test_memory_stays_within_the_bound(self, make_queue, exporter, make_light_span, payload):
        """Many times the bound put before a blocked exporter takes no more memory than the bound and some batches."""
        bound, batch = 8_000_000, 250_000
        queue = make_queue(exporter, max_bytes=bound, batch_bytes=batch)
        block(queue, exporter, make_light_span())
        gc.collect()
        tracemalloc.start()
        try:
            before = tracemalloc.get_traced_memory()[0]
            while sum(queue.stats().lost.values()) < 100:
                queue.put(make_light_span("op", snapshot(payload)))
            gc.collect()
            held = tracemalloc.get_traced_memory()[0] - before
        finally:
            tracemalloc.stop()
        stats = queue.stats()
        assert stats.queued_bytes > 0.9 * bound
        # The first batch is not trimmed, and a text of 50 KB stands in a buffer of 256 KB.
        assert held <= bound + 8 * batch
        assert is_balanced(stats)

    @pytest.mark.parametrize(
        "payload", ["x" * 20_000 + "🙂", "漢字" * 5_000, "x" * 2_000], ids=["emoji", "cjk", "ascii"]
    )
    def test_memory_stays_within_the_bound_behind_a_faster_exporter(
        self, make_queue, exporter, make_light_span, payload
    ):
        """What another exporter has read already takes no more memory in the queue of a blocked one."""
        bound, batch = 8_000_000, 250_000
        other = _Plain(lambda spans: SpanExportResult.SUCCESS)
        slow = make_queue(exporter, "slow", max_bytes=bound, batch_bytes=batch)
        fast = make_queue(other, "fast", batch_bytes=batch)
        block(slow, exporter, make_light_span())
        gc.collect()
        tracemalloc.start()
        try:
            before = tracemalloc.get_traced_memory()[0]
            while not slow.stats().lost:
                span = make_light_span("op", snapshot(payload))
                slow.put(span)
                fast.put(span)
                if fast.stats().queued > 10:
                    assert fast.flush(10)
            assert fast.flush(10)
            gc.collect()
            held = tracemalloc.get_traced_memory()[0] - before
        finally:
            tracemalloc.stop()
        assert slow.stats().queued_bytes > 0.9 * bound
        assert held <= bound + 8 * batch

    def test_a_payload_read_by_another_exporter_still_counts(self, make_queue, exporter, make_light_span, reader):
        """A span whose payload another exporter's thread has taken over already counts with its payload."""
        queue = make_queue(exporter)
        block(queue, exporter, make_light_span())
        span = make_light_span("op", b'"' + b"x" * 50_000 + b'"')
        reader.read(span, "other")
        before = queue.stats().queued_bytes
        queue.put(span)
        assert queue.stats().queued_bytes - before > 50_000

    def test_one_exporter_gives_up_a_payload_that_another_delivers(self, make_queue, exporter, make_light_span, reader):
        """Payloads given up before a full queue still reach the exporter whose queue has room."""
        other = _Recorder()
        full, roomy = make_queue(exporter, "full", max_bytes=20_000), make_queue(other, "roomy")
        span = make_light_span("op", b'"' + b"x" * 50_000 + b'"')
        full.put(span)
        roomy.put(span)
        assert full.flush(10)
        assert roomy.flush(10)
        assert "dropped" in exporter.spans[0].attributes[semconv.INPUT_VALUE]
        assert len(other.spans[0].attributes[semconv.INPUT_VALUE]) == 50_002


class TestMemory:
    """What a span that somebody still refers to holds once it is settled."""

    @pytest.mark.parametrize("letter", ["x", "é漢"])
    def test_a_delivered_span_holds_no_payload(self, make_queue, exporter, make_light_span, letter):
        """A span that a copied context keeps alive gives its payload back when it is delivered."""
        queue = make_queue(exporter)
        span = make_light_span("op", snapshot(letter * 50_000))
        queue.put(span)
        assert queue.flush(10)
        assert len(exporter.spans[0].attributes[semconv.INPUT_VALUE]) > 50_000
        assert span.readable is span.input is span.output is span.events is None

    @pytest.mark.parametrize("letter", ["x", "é漢"])
    def test_a_span_keeps_its_payload_until_the_last_exporter_has_it(
        self, make_queue, exporter, make_light_span, letter
    ):
        """The payload stays while one exporter still needs it, and goes with the last."""
        other = _Recorder()
        slow, fast = make_queue(exporter, "slow"), make_queue(other, "fast")
        block(slow, exporter, make_light_span("first"))
        span = make_light_span("op", snapshot(letter * 50_000))
        fast.put(span)
        assert fast.flush(10)
        slow.put(span)
        exporter.gate.set()
        assert slow.flush(10)
        assert exporter.spans[-1].attributes == other.spans[-1].attributes
        assert len(exporter.spans[-1].attributes[semconv.INPUT_VALUE]) > 50_000
        assert span.readable is span.input is span.output is None

    def test_a_lost_span_holds_no_payload(self, make_queue, exporter, make_light_span):
        """A span lost before a full queue, or to the shutdown, gives its payload back, as one left without does."""
        queue = make_queue(exporter, max_bytes=200_000)
        block(queue, exporter, make_light_span("first"))
        spans = [make_light_span("op", b'"' + b"x" * 50_000 + b'"') for _ in range(300)]
        for span in spans:
            queue.put(span)
        assert queue.stats().payloads_dropped
        assert queue.stats().lost
        queue.shutdown(time.monotonic())
        queue.join()
        late = make_light_span("late", b'"' + b"x" * 50_000 + b'"')
        queue.put(late)
        assert all(span.readable is None and span.input is None for span in [*spans, late])

    def test_one_exporters_loss_is_not_the_others(self, make_queue, exporter, make_light_span):
        """A payload that one full queue gives up is kept for the exporter whose queue has room."""
        other = _Recorder()
        full, roomy = make_queue(exporter, "full", max_bytes=2_000), make_queue(other, "roomy")
        span = make_light_span("op", b'"' + b"x" * 50_000 + b'"')
        full.put(span)
        full.put(make_light_span())
        assert span.input is not None
        roomy.put(span)
        assert roomy.flush(10)
        assert len(other.spans[0].attributes[semconv.INPUT_VALUE]) == 50_002


class TestTroubles:
    """Exporters and backends that fail."""

    def test_an_outage_and_return_loses_nothing_and_duplicates_nothing(self, make_queue, exporter, make_span):
        """After an outage every span arrives once, in order."""
        exporter.outcome = lambda spans: RETRY
        queue = make_queue(exporter, batch_spans=10)
        for number in range(100):
            queue.put(make_span(str(number)))
        until(lambda: exporter.attempts > 5)
        assert not queue.flush(0.02)
        exporter.outcome = lambda spans: DELIVERED
        assert queue.flush(10)
        assert exporter.names == [str(number) for number in range(100)]
        assert queue.stats().delivered == 100
        assert queue.stats().last_trouble == "retry: down"

    @pytest.mark.parametrize("failure", [SpanExportResult.FAILURE, None, False, 0])
    def test_a_plain_exporter_that_fails_is_tried_again(self, make_queue, make_span, failure):
        """Anything but SUCCESS from a plain exporter is a failure, and the batch is sent again."""
        results = [failure, failure]
        exporter = _Plain(lambda spans: results.pop() if results else SpanExportResult.SUCCESS)
        queue = make_queue(exporter)
        queue.put(make_span("kept"))
        assert queue.flush(10)
        assert exporter.received == ["kept"]

    @pytest.mark.parametrize("error", [RuntimeError, SystemExit])
    def test_a_plain_exporter_that_raises_harms_nothing(self, make_queue, make_span, error):
        """An exporter that raises does not end the thread; the batch is sent again."""
        attempts = []

        def rule(spans):
            attempts.append(1)
            if len(attempts) < 3:
                raise error("no")
            return SpanExportResult.SUCCESS

        exporter = _Plain(rule)
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

        exporter = _Plain(rule)
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
        exporter.outcome = lambda spans: Outcome(Verdict.DENIED, "wrong key")
        queue = make_queue(exporter, policy=RetryPolicy())
        queue.put(make_span("kept"))
        until(lambda: exporter.attempts == 1)
        start = time.monotonic()
        assert not queue.flush(30)
        assert time.monotonic() - start < 10
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

    def test_trouble_is_logged_once(self, make_queue, exporter, make_span, caplog):
        """A backend that is down for many attempts makes one line in the log, which names it."""
        exporter.outcome = lambda spans: RETRY
        queue = make_queue(exporter)
        with caplog.at_level(logging.WARNING, "otel_rollout"):
            queue.put(make_span())
            until(lambda: exporter.attempts > 10)
        assert [record.getMessage() for record in caplog.records] == ["backend: not reached, trying again (down)"]
        exporter.outcome = lambda spans: DELIVERED


class TestOneHarmsNoOther:
    """Queues stand on their own."""

    def test_a_hanging_exporter_does_not_delay_another(self, make_queue, exporter, make_light_span):
        """Spans reach one exporter while another hangs on the same spans."""
        other = _Recorder()
        hanging, healthy = make_queue(exporter, "hanging"), make_queue(other, "healthy")
        block(hanging, exporter, make_light_span("first"))
        start = time.monotonic()
        for number in range(50):
            span = make_light_span(str(number))
            hanging.put(span)
            healthy.put(span)
        assert healthy.flush(10)
        assert time.monotonic() - start < 5
        assert other.names == [str(number) for number in range(50)]
        assert hanging.stats().queued == 51

    @pytest.mark.parametrize("letter", ["x", "漢"])
    def test_two_exporters_get_the_same_payload_that_is_cut_once(
        self, make_queue, exporter, make_light_span, reader, letter
    ):
        """A payload over the limit is cut once, whichever exporter comes first, and counted once."""
        reader._finisher.max_bytes = 1000
        other = _Recorder()
        first, second = make_queue(exporter, "first"), make_queue(other, "second")
        trajectory = TrajectoryState({})
        span = make_light_span("op", snapshot(letter * 2000), trajectory=trajectory)
        first.put(span)
        assert first.flush(10)
        cut = trajectory.truncated_bytes
        second.put(span)
        assert second.flush(10)
        assert exporter.spans[0].attributes == other.spans[0].attributes
        assert trajectory.truncated_bytes == reader._finisher.truncated_bytes == cut
        assert cut > 0

    def test_putting_never_waits(self, make_queue, exporter, make_span):
        """A caller is not held up by an exporter that hangs, whether or not the queue is full."""
        queue = make_queue(exporter, max_spans=100)
        block(queue, exporter, make_span())
        start = time.monotonic()
        for _ in range(10_000):
            queue.put(make_span())
        assert time.monotonic() - start < 5


class TestDeadlines:
    """`flush` and `shutdown` return in time, with the truth."""

    def test_a_flush_returns_in_time_with_the_truth(self, make_queue, exporter, make_span):
        """Before a hanging exporter a flush returns False at its timeout, and True once all is delivered."""
        queue = make_queue(exporter)
        block(queue, exporter, make_span())
        start = time.monotonic()
        assert queue.flush(0.1) is False
        assert 0.1 <= time.monotonic() - start < 2
        assert queue.flush(0) is False
        exporter.gate.set()
        assert queue.flush(10) is True

    def test_a_flush_waits_for_what_was_put_before_only(self, make_queue, exporter, make_span):
        """Spans put by others during a flush do not keep it from returning."""
        queue = make_queue(exporter, batch_spans=1)
        stop = threading.Event()

        def produce():
            while not stop.is_set():
                queue.put(make_span())
                time.sleep(0.0005)

        producer = threading.Thread(target=produce)
        producer.start()
        try:
            assert queue.flush(10)
        finally:
            stop.set()
            producer.join()

    def test_a_flush_says_what_was_lost_since_the_last_one(self, make_queue, exporter, make_span):
        """A flush is False once for a loss; the next is about what came after."""
        exporter.outcome = lambda spans: Outcome(Verdict.REFUSED, "bad")
        queue = make_queue(exporter)
        queue.put(make_span())
        assert queue.flush(10) is False
        exporter.outcome = lambda spans: DELIVERED
        queue.put(make_span())
        assert queue.flush(10) is True

    def test_flushes_at_the_same_time_both_tell_of_a_loss(self, make_queue, exporter, make_span):
        """Two flushes that wait for the same lost span are both False."""
        exporter.outcome = lambda spans: Outcome(Verdict.REFUSED, "bad")
        queue = make_queue(exporter)
        block(queue, exporter, make_span())
        results = []
        flushes = [threading.Thread(target=lambda: results.append(queue.flush(10))) for _ in range(2)]
        hurries = queue._hurries
        for thread in flushes:
            thread.start()
        until(lambda: queue._hurries == hurries + 2)
        exporter.gate.set()
        for thread in flushes:
            thread.join()
        assert results == [False, False]

    @pytest.mark.parametrize("timeout", [float("inf"), 1e300])
    def test_a_flush_may_wait_for_ever(self, make_queue, exporter, make_span, timeout):
        """A timeout beyond what the platform can wait is no error."""
        queue = make_queue(exporter)
        queue.put(make_span())
        assert queue.flush(timeout)

    def test_a_shutdown_delivers_what_is_queued(self, make_queue, exporter, make_span):
        """A shutdown sends what is queued, ends the thread, and shuts the exporter down once."""
        queue = make_queue(exporter, delay=60.0)
        queue.put(make_span("last"))
        queue.shutdown(time.monotonic() + 10)
        assert queue.join() is True
        assert exporter.names == ["last"]
        queue.shutdown(time.monotonic() + 10)
        assert queue.join() is True
        assert exporter.shutdowns == 1

    def test_a_shutdown_during_an_attempt_ends_the_thread_after_it(self, make_queue, exporter, make_span):
        """A shutdown that is asked for while a batch is being sent does not wait for another batch to fill."""
        queue = make_queue(exporter, delay=60.0)
        block(queue, exporter, make_span())
        queue.put(make_span())
        start = time.monotonic()
        queue.shutdown(start + 30)
        exporter.gate.set()
        assert queue.join() is True
        assert time.monotonic() - start < 10

    def test_a_shutdown_returns_in_time_before_a_hanging_exporter(self, make_queue, exporter, make_span):
        """What a hanging exporter holds up is lost at the deadline; what comes of it later changes no count."""
        queue = make_queue(exporter, batch_spans=1)
        block(queue, exporter, make_span())
        for _ in range(3):
            queue.put(make_span())
        start = time.monotonic()
        queue.shutdown(start + 0.1)
        assert queue.join() is False
        assert time.monotonic() - start < 2
        at_deadline = queue.stats()
        assert at_deadline.lost == {"shutdown": 4}
        assert (at_deadline.queued, at_deadline.queued_bytes, at_deadline.delivered) == (0, 0, 0)
        exporter.gate.set()
        until(lambda: exporter.shutdowns == 1)
        assert queue.stats() == at_deadline
        assert exporter.attempts == 1

    def test_a_shutdown_keeps_trying_until_the_deadline(self, make_queue, exporter, make_span):
        """During an outage a shutdown uses its time: what comes back before the deadline gets everything."""
        exporter.outcome = lambda spans: DELIVERED if exporter.attempts > 4 else RETRY
        queue = make_queue(exporter, policy=RetryPolicy(initial_delay=0.001, max_delay=60.0), delay=60.0)
        queue.put(make_span("kept"))
        queue.shutdown(time.monotonic() + 20)
        assert queue.join() is True
        assert exporter.names == ["kept"]

    def test_a_shutdown_during_an_outage_ends_at_the_deadline(self, make_queue, exporter, make_span):
        """During an outage a shutdown returns at its deadline, and all is counted as lost to it."""
        exporter.outcome = lambda spans: RETRY
        queue = make_queue(exporter, policy=RetryPolicy(), batch_spans=2)
        for _ in range(10):
            queue.put(make_span())
        start = time.monotonic()
        queue.shutdown(start + 0.3)
        assert queue.join() is False
        assert time.monotonic() - start < 2
        assert queue.stats().lost == {"shutdown": 10}

    def test_a_shutdown_does_not_wait_for_credentials(self, make_queue, exporter, make_span):
        """Where we are turned away, a shutdown makes one last attempt and is done."""
        exporter.outcome = lambda spans: Outcome(Verdict.DENIED, "wrong key")
        queue = make_queue(exporter, policy=RetryPolicy())
        queue.put(make_span())
        start = time.monotonic()
        queue.shutdown(start + 30)
        assert queue.join() is False
        assert time.monotonic() - start < 10
        assert queue.stats().lost == {"denied": 1}

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

        def refuse(self):
            raise RuntimeError("can't create new thread at interpreter shutdown")

        with monkeypatch.context() as patch:
            patch.setattr(threading.Thread, "start", refuse)
            queue.put(make_span("last"))
            queue.shutdown(time.monotonic() + 10)
        assert queue.join() is True
        assert exporter.names == ["last"]

    def test_without_a_thread_no_attempt_begins_after_the_deadline(self, make_queue, exporter, make_span, monkeypatch):
        """On the caller's thread a slow exporter is left after the attempt in which the deadline passes."""
        queue = make_queue(exporter, batch_spans=1)

        def slow(spans):
            time.sleep(0.05)
            return DELIVERED

        exporter.outcome = slow

        def refuse(self):
            raise RuntimeError("can't create new thread at interpreter shutdown")

        with monkeypatch.context() as patch:
            patch.setattr(threading.Thread, "start", refuse)
            for _ in range(100):
                queue.put(make_span())
            start = time.monotonic()
            queue.shutdown(start + 0.2)
        assert queue.join() is False
        assert time.monotonic() - start < 2
        stats = queue.stats()
        assert stats.delivered == exporter.attempts < 100
        assert is_balanced(stats)

    def test_an_exporter_that_fails_to_shut_down_loses_nothing(self, make_queue, exporter, make_span):
        """An exception in the exporter's shutdown does not make delivered spans lost."""

        def fail():
            raise RuntimeError("no")

        exporter.shutdown = fail
        queue = make_queue(exporter)
        queue.put(make_span())
        queue.shutdown(time.monotonic() + 10)
        assert queue.join() is True


class TestAccounts:
    """Nothing is lost without being counted."""

    def test_every_span_is_accounted_for_at_any_time(self, make_queue, exporter, make_light_span):
        """Under 8 producers, faults and overflow: recorded = delivered + queued + lost in every snapshot."""
        verdicts = [RETRY, DELIVERED, Outcome(Verdict.DELIVERED, "partly", rejected=1), DELIVERED]
        verdicts.append(Outcome(Verdict.REFUSED, "bad"))

        def outcome(spans):
            return verdicts[exporter.attempts % len(verdicts)]

        exporter.outcome = outcome
        queue = make_queue(exporter, max_bytes=400_000, batch_spans=16)
        snapshots = []
        done = threading.Event()

        def watch():
            while not done.is_set():
                snapshots.append(queue.stats())
                time.sleep(0.0005)

        def produce():
            for _ in range(500):
                queue.put(make_light_span("op", b'"' + b"x" * 500 + b'"'))

        watcher = threading.Thread(target=watch)
        producers = [threading.Thread(target=produce) for _ in range(8)]
        watcher.start()
        for producer in producers:
            producer.start()
        for producer in producers:
            producer.join()
        queue.flush(20)
        done.set()
        watcher.join()
        assert all(is_balanced(snapshot) for snapshot in snapshots)
        final = queue.stats()
        assert final.recorded == 4000
        assert final.queued == final.queued_bytes == 0
        assert is_balanced(final)
        assert final.delivered == len(exporter.spans) - final.lost["rejected"]

    def test_a_span_that_ends_inside_put_is_taken(self, make_queue, exporter, make_light_span, monkeypatch):
        """A span that the garbage collector ends while another is put deadlocks nothing."""
        queue = make_queue(exporter, max_bytes=20_000)
        nested = []

        import otel_rollout.delivery.exporter_queue as module

        original = module.without_payload

        def collecting(span):
            if not nested:
                nested.append(1)
                queue.put(make_light_span("nested"))
            return original(span)

        monkeypatch.setattr(module, "without_payload", collecting)
        queue.put(make_light_span("large", b'"' + b"x" * 50_000 + b'"'))
        assert queue.flush(10)
        assert sorted(exporter.names) == ["large", "nested"]
        assert queue.stats().queued_bytes == 0

    def test_the_root_says_what_was_lost_of_its_trajectory(self, make_queue, exporter, make_light_span):
        """Children lost before a full queue are counted on their root, for this exporter alone."""
        trajectory = TrajectoryState({})
        queue = make_queue(exporter, max_spans=10)
        block(queue, exporter, make_light_span())
        for _ in range(14):
            queue.put(make_light_span(trajectory=trajectory))
        queue.put(make_light_span("root", is_root=True, trajectory=trajectory))
        exporter.gate.set()
        queue.flush(10)
        root = exporter.spans[-1]
        assert root.name == "root"
        assert root.attributes[semconv.DROPPED_SPANS] == queue.stats().lost["queue_full"] == 6
        assert dict(trajectory.dropped_spans) == {"backend": 6}

    def test_the_root_knows_of_a_loss_in_its_own_batch(self, make_queue, exporter, make_light_span):
        """A child that is refused in the batch in which its root goes is counted on the root too."""
        trajectory = TrajectoryState({})
        bad = Outcome(Verdict.REFUSED, "bad")
        exporter.outcome = lambda spans: bad if any(span.name == "bad" for span in spans) else DELIVERED
        queue = make_queue(exporter, delay=60.0)
        for name in ("good", "bad", "good"):
            queue.put(make_light_span(name, trajectory=trajectory))
        queue.put(make_light_span("root", is_root=True, trajectory=trajectory))
        assert not queue.flush(10)
        assert exporter.names == ["good", "good", "root"]
        assert exporter.spans[-1].attributes[semconv.DROPPED_SPANS] == 1


class TestFork:
    """A forked child."""

    def test_a_forked_child_starts_empty(self, make_queue, exporter, make_span, monkeypatch):
        """After a fork nothing of the parent's is held, locks included, and new spans are delivered."""
        told = []
        exporter.after_fork = lambda: told.append(1)
        queue = make_queue(exporter)
        with monkeypatch.context() as patch:
            # The parent's thread does not come along.
            patch.setattr(queue, "start", lambda: None)
            queue.put(make_span("parents"))
        queue._reader._lock.acquire()
        holder = threading.Thread(target=queue._lock.acquire)
        holder.start()
        holder.join()
        queue.after_fork()
        assert queue.stats().recorded == 0
        assert told == [1]
        queue.put(make_span("childs"))
        assert queue.flush(10)
        assert queue.stats().delivered == 1
