"""The bounds of a queue: what it gives up first, what it holds in memory, and its accounts."""

from __future__ import annotations

import gc
import re
import time
import tracemalloc

import pytest

from otel_rollout import semconv
from otel_rollout.export.outcome import DELIVERED, Outcome, Verdict
from otel_rollout.record import TrajectoryState
from tests.delivery.queues import block, is_balanced


class TestBounds:
    """What is given up before a full queue."""

    def test_payload_goes_before_spans_and_children_before_roots(self, make_queue, exporter, make_recording_span):
        """Near the bound payloads are left out, then children, roots last; each is counted by its reason."""
        bound = 1_000_000
        queue = make_queue(exporter, max_bytes=bound)
        block(queue, exporter, make_recording_span("first"))
        for _ in range(40):
            queue.put(make_recording_span("child", "x" * 50_000))
        stats = queue.stats()
        assert stats.payloads_dropped > 0
        assert stats.lost == {}
        while not queue.stats().lost:
            queue.put(make_recording_span("child"))
        assert queue.stats().queued_bytes <= 0.97 * bound
        for _ in range(5):
            queue.put(make_recording_span("root", "x" * 50_000, is_root=True))
        stats = queue.stats()
        assert stats.lost == {"queue_full": 1}
        assert stats.queued_bytes <= bound
        assert is_balanced(stats)
        exporter.gate.set()
        assert not queue.flush(10)
        assert exporter.names.count("root") == 5
        without = [span for span in exporter.spans if "dropped" in span.attributes.get(semconv.INPUT_VALUE, "")[:60]]
        assert len(without) == stats.payloads_dropped
        # The bytes of the snapshot: the text, and what holds it.
        noted = re.fullmatch(
            r"…\[(50,\d{3}) bytes dropped: the export queue was full\]", without[0].attributes[semconv.INPUT_VALUE]
        )
        assert noted is not None

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
    def test_memory_stays_within_the_bound(self, make_queue, exporter, make_recording_span, payload):
        """Many times the bound put before a blocked exporter takes no more memory than the bound and some batches."""
        bound, batch = 8_000_000, 250_000
        queue = make_queue(exporter, max_bytes=bound, batch_bytes=batch)
        block(queue, exporter, make_recording_span())
        gc.collect()
        tracemalloc.start()
        try:
            before = tracemalloc.get_traced_memory()[0]
            while sum(queue.stats().lost.values()) < 100:
                queue.put(make_recording_span("op", payload + payload[:1]))
            gc.collect()
            held = tracemalloc.get_traced_memory()[0] - before
        finally:
            tracemalloc.stop()
        stats = queue.stats()
        assert stats.queued_bytes > 0.9 * bound
        # The first batch is not trimmed, and a text of 50 KB stands in a buffer of 256 KB.
        # Objects of newer Pythons are larger: 10.15 MB in 3.14, 9.97 MB in 3.10.
        assert held <= bound + 10 * batch
        assert is_balanced(stats)


class TestMemory:
    """What a span that somebody still refers to holds once it is settled."""

    @pytest.mark.parametrize("letter", ["x", "é漢"])
    def test_a_delivered_span_holds_no_payload(self, make_queue, exporter, make_recording_span, letter):
        """A span that a copied context keeps alive gives its payload back when it is delivered."""
        queue = make_queue(exporter)
        span = make_recording_span("op", letter * 50_000)
        queue.put(span)
        assert queue.flush(60)
        assert len(exporter.spans[0].attributes[semconv.INPUT_VALUE]) >= 50_000
        assert span.start_context is span.input is span.output is span.events is None

    def test_a_lost_span_holds_no_payload(self, make_queue, exporter, make_recording_span):
        """A span lost before a full queue, or to the shutdown, gives its payload back, as one left without does."""
        queue = make_queue(exporter, max_bytes=200_000)
        block(queue, exporter, make_recording_span("first"))
        spans = [make_recording_span("op", "x" * 50_000) for _ in range(300)]
        for span in spans:
            queue.put(span)
        assert queue.stats().payloads_dropped
        assert queue.stats().lost
        queue.shutdown(time.monotonic())
        queue.join()
        late = make_recording_span("late", "x" * 50_000)
        queue.put(late)
        assert all(span.start_context is None and span.input is None for span in [*spans, late])


class TestAccounts:
    """Nothing is lost without being counted."""

    def test_the_root_says_what_was_lost_of_its_trajectory(self, make_queue, exporter, make_recording_span):
        """Children lost before a full queue are counted on their root, for this exporter alone."""
        trajectory = TrajectoryState({})
        queue = make_queue(exporter, max_spans=10)
        block(queue, exporter, make_recording_span())
        for _ in range(14):
            queue.put(make_recording_span(trajectory=trajectory))
        queue.put(make_recording_span("root", is_root=True, trajectory=trajectory))
        exporter.gate.set()
        queue.flush(10)
        root = exporter.spans[-1]
        assert root.name == "root"
        assert root.attributes[semconv.DROPPED_SPANS] == queue.stats().lost["queue_full"] == 6
        assert dict(trajectory.dropped_spans) == {"backend": 6}

    def test_the_root_knows_of_a_loss_in_its_own_batch(self, make_queue, exporter, make_recording_span):
        """A child that is refused in the batch in which its root goes is counted on the root too."""
        trajectory = TrajectoryState({})
        bad = Outcome(Verdict.REFUSED, "bad")
        exporter.outcome = lambda spans: bad if any(span.name == "bad" for span in spans) else DELIVERED
        queue = make_queue(exporter, delay=60.0)
        for name in ("good", "bad", "good"):
            queue.put(make_recording_span(name, trajectory=trajectory))
        queue.put(make_recording_span("root", is_root=True, trajectory=trajectory))
        assert not queue.flush(10)
        assert exporter.names == ["good", "good", "root"]
        assert exporter.spans[-1].attributes[semconv.DROPPED_SPANS] == 1
