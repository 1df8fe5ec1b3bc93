"""The queue with a spool: what its backend does not take waits on disk, in order, and is delivered or kept."""

from __future__ import annotations

import contextlib
import logging
import os
import threading
import time

import pytest

from otel_rollout import read_trajectories
from otel_rollout.deliver import QueueLimits, Spool, SpooledOutbox
from otel_rollout.export.outcome import DELIVERED, Outcome, Verdict
from tests.delivery.queues import QUICK, RETRY, is_balanced, until


def names_on_disk(folder):
    return [span.name for trajectory in read_trajectories(folder) for span in trajectory.spans]


@pytest.fixture
def backend(exporter):
    return exporter


@pytest.fixture
def make_queue(reader, tmp_path):
    with contextlib.ExitStack() as stack:

        def make(backend, *, max_spool_bytes=2**30, policy=QUICK, **limits):
            limits = {"delay": 0.01, "max_bytes": 20_000, "batch_bytes": 4_000, **limits}
            spool = Spool(tmp_path, max_spool_bytes)
            queue = SpooledOutbox("backend", backend, reader, QueueLimits(**limits), policy, spool=spool)
            queue.start()

            def end():
                queue.shutdown(time.monotonic() + 1.0)
                queue.join()

            stack.callback(end)
            return queue

        yield make


def put_many(queue, make_span, count, start=0):
    """Put spans of a kilobyte, named by number, so that the queue never has to drop one."""
    for number in range(start, start + count):
        until(lambda: queue.stats().queued_bytes < 15_000)
        queue.put(make_span(f"{number:04d}", "x" * 1000, parent=True))


def numbers(count):
    return [f"{number:04d}" for number in range(count)]


class TestOutage:
    """While the backend is away, memory stays within its bound and nothing is lost."""

    def test_outage_after_outage(self, make_queue, backend, make_span):
        """What is put while older spans are on disk is delivered after them."""
        queue = make_queue(backend)
        for outage in range(3):
            backend.outcome = lambda spans: RETRY
            put_many(queue, make_span, 50, start=50 * outage)
            backend.outcome = lambda spans: DELIVERED
        assert queue.flush(60) is True
        assert backend.names == numbers(150)


class TestBound:
    """The spool is bounded in bytes, and a disk that takes nothing costs no more than no spool."""

    def test_a_full_spool_takes_no_more(self, make_queue, backend, make_span):
        """Beyond the bound on disk the bound on memory counts: what is over it is lost, and counted."""
        backend.outcome = lambda spans: RETRY
        queue = make_queue(backend, max_spool_bytes=1)
        put_many(queue, make_span, 12)
        until(lambda: "is full" in queue._spool.trouble)
        for number in range(200):
            queue.put(make_span(f"{number:04d}", "x" * 1000, parent=True))
        stats = queue.stats()
        assert 0 < stats.spooled <= 12
        assert stats.lost["queue_full"] > 100
        assert stats.queued_bytes <= 20_000
        assert is_balanced(stats)

    def test_an_unwritable_folder_loses_nothing_that_memory_holds(self, make_queue, backend, make_span, tmp_path):
        """Spans that can't be put on disk stay in memory, in order, and are delivered from there."""
        tmp_path.rmdir()
        tmp_path.write_text("no folder")
        backend.outcome = lambda spans: RETRY
        queue = make_queue(backend)
        for number in range(12):
            queue.put(make_span(f"{number:04d}", "x" * 1000, parent=True))
        until(lambda: "can't be written to" in queue._spool.trouble)
        backend.outcome = lambda spans: DELIVERED
        assert queue.flush(60) is True
        assert backend.names == numbers(12)

    def test_a_file_that_is_damaged_loses_its_spans_alone(self, make_queue, backend, make_span, tmp_path):
        """What can't be read back is lost and counted; what comes after it arrives."""
        backend.outcome = lambda spans: RETRY
        queue = make_queue(backend)
        put_many(queue, make_span, 60)
        with next(tmp_path.rglob("*.otlp.zst")).open("r+b") as file:
            file.seek(-40, os.SEEK_END)
            file.write(b"\0" * 8)
        backend.outcome = lambda spans: DELIVERED
        assert queue.flush(60) is False
        stats = queue.stats()
        assert set(stats.lost) == {"spool_unreadable"}
        assert 0 < stats.lost["spool_unreadable"] <= 4
        assert stats.delivered == 60 - stats.lost["spool_unreadable"]
        assert is_balanced(stats)


class TestEnd:
    """What is not delivered at the end of the process stays on disk."""

    @pytest.mark.parametrize(
        "outcome", [RETRY, Outcome(Verdict.CONFIGURATION_ERROR, "wrong key")], ids=["down", "configuration_error"]
    )
    def test_what_is_left_is_kept(self, make_queue, backend, make_span, tmp_path, outcome, caplog):
        """After a shutdown in an outage each span is on disk, once; the log says how to deliver it."""
        backend.outcome = lambda spans: outcome
        queue = make_queue(backend)
        put_many(queue, make_span, 40)
        with caplog.at_level(logging.WARNING, "otel_rollout"):
            queue.shutdown(time.monotonic() + 60)
            assert queue.join() is False
        stats = queue.stats()
        assert (stats.spooled, stats.queued, stats.lost) == (40, 0, {})
        assert sorted(names_on_disk(tmp_path)) == numbers(40)
        assert f"otel-rollout replay {tmp_path} --backend backend" in caplog.text

    @pytest.mark.parametrize("is_hanging", [True, False])
    def test_a_disk_that_is_too_slow_for_the_end(
        self, make_queue, backend, make_span, tmp_path, monkeypatch, is_hanging
    ):
        """What gets on disk after the deadline was counted as lost by then, and counts as on disk from then on."""
        gate, append = threading.Event(), Spool.append

        def slow(*arguments, **options):
            gate.wait(600)
            return append(*arguments, **options)

        monkeypatch.setattr(Spool, "append", slow)
        backend.outcome = lambda spans: RETRY
        if is_hanging:
            backend.gate.clear()
        queue = make_queue(backend)
        for number in range(12):
            queue.put(make_span(f"{number:04d}", "x" * 1000, parent=True))
        queue.shutdown(time.monotonic() + 0.5)
        assert queue.join() is False
        stats = queue.stats()
        assert (stats.queued, stats.spooled, sum(stats.lost.values())) == (0, 0, 12)
        gate.set()
        until(lambda: queue._has_spilled and (is_hanging or queue._has_ended))
        stats = queue.stats()
        assert is_balanced(stats)
        assert (stats.queued, stats.queued_bytes) == (0, 0)
        assert stats.spooled == len(names_on_disk(tmp_path)) > 0

    def test_without_threads_the_shutdown_puts_all_on_disk(self, make_queue, backend, make_span, monkeypatch, tmp_path):
        """At the interpreter's exit, where no thread can be started, nothing is lost either."""
        monkeypatch.setattr(SpooledOutbox, "start", lambda self: None)
        backend.outcome = lambda spans: RETRY
        queue = make_queue(backend)
        for number in range(10):
            queue.put(make_span(f"{number:04d}"))
        queue.shutdown(time.monotonic() + 60)
        queue.join()
        assert (queue.stats().spooled, queue.stats().lost) == (10, {})
        assert sorted(names_on_disk(tmp_path)) == numbers(10)
