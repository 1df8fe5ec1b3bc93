"""A flush, a shutdown and a fork during follow-up requests, which is no part of a span's verdict."""

from __future__ import annotations

import threading
import time

import pytest
from opentelemetry.sdk.trace.export import SpanExportResult

from otel_rollout.counts import FollowUpStats
from otel_rollout.export.outcome import DELIVERED, Outcome, Verdict
from tests.delivery.queues import Plain, Recorder, is_balanced, refuse_to_start, until
from tests.delivery.side_requests import CONFIGURATION_ERROR, REFUSED, RETRY, SLOW, UNEXPLAINED, add, counts


class TestFlush:
    """A flush: what it waits for and returns."""

    def test_it_does_not_wait_for_the_next_attempt(self, make_work, backend):
        """A flush has what waits tried now."""
        work = make_work(policy=SLOW)
        backend.rule = lambda values: RETRY
        add(work, *range(3))
        until(lambda: backend.attempts)
        backend.rule = lambda values: DELIVERED
        assert work.flush(10)

    def test_it_has_an_attempt_after_the_one_that_it_met(self, make_work, backend):
        """An attempt that was under way when the flush began, and fails, is followed by another one at once."""
        work = make_work(policy=SLOW)
        backend.gate.clear()
        outcomes = iter([RETRY])
        backend.rule = lambda values: next(outcomes, DELIVERED)
        add(work, "one")
        assert backend.entered.wait(10)
        work.retry_now()
        backend.gate.set()
        until(lambda: counts(work).done == 1)

    def test_it_is_not_answered_by_an_attempt_that_began_before(self, make_work, backend):
        """A configuration error of an attempt that was under way does not end the flush: the next one may succeed."""
        work, flushed, second = make_work(policy=SLOW), [], threading.Event()
        backend.gate.clear()

        def rule(values):
            if len(backend.attempts) == 1:
                return Outcome(Verdict.CONFIGURATION_ERROR, "no such run")
            second.wait(10)
            return DELIVERED

        backend.rule = rule
        add(work, "one")
        assert backend.entered.wait(10)
        thread = threading.Thread(target=lambda: flushed.append(work.flush(10)))
        thread.start()
        until(lambda: any(lane.is_flush_requested for lane in work._lanes.values()))
        backend.gate.set()
        until(lambda: len(backend.attempts) == 2)
        # Ends at once if the first attempt is taken for the answer.
        thread.join(0.2)
        second.set()
        thread.join(10)
        assert flushed == [True]

    def test_it_returns_at_once_when_turned_away(self, make_work, backend):
        """Waiting doesn't fix an auth error: a flush makes one attempt and returns False."""
        work = make_work(policy=SLOW, limit=2)
        backend.rule = lambda values: CONFIGURATION_ERROR
        add(work, *range(5))
        assert not work.flush(600)

    def test_a_loss_is_told_once(self, make_work, backend):
        """The flush after a loss says False, and the next one True."""
        work = make_work()
        backend.rule = lambda values: REFUSED
        add(work, "one")
        assert not work.flush(10)
        assert work.flush(10)


class TestShutdown:
    """The end."""

    @pytest.mark.parametrize(("outcome", "reason"), [(RETRY, "shutdown"), (CONFIGURATION_ERROR, "configuration_error")])
    def test_what_is_left_is_counted(self, make_work, backend, outcome, reason):
        """Entries that are not done by the deadline are lost, and the shutdown returns False."""
        work = make_work()
        backend.rule = lambda values: outcome
        add(work, *range(3))
        assert not work.shutdown(time.monotonic() + 0.3)
        assert counts(work) == FollowUpStats(lost={reason: 3})

    def test_a_request_that_hangs_is_left_behind(self, make_work, backend):
        """A shutdown ends with its deadline; what a hanging request comes to is not counted again."""
        work = make_work()
        backend.gate.clear()
        add(work, "one", "two")
        assert backend.entered.wait(10)
        assert not work.shutdown(time.monotonic() + 0.1)
        assert work.is_running
        backend.gate.set()
        until(lambda: not work.is_running)
        assert counts(work) == FollowUpStats(lost={"shutdown": 2})

    def test_what_comes_later_is_counted(self, make_work):
        """An entry that comes after the shutdown is lost, and counted as such."""
        work = make_work()
        assert work.shutdown(time.monotonic() + 1)
        add(work, "late")
        assert counts(work) == FollowUpStats(lost={"after_shutdown": 1})

    def test_without_a_thread(self, make_work, backend, monkeypatch):
        """If no thread can be started, at the interpreter's exit, the shutdown does the work itself."""
        work = make_work()

        monkeypatch.setattr(threading.Thread, "start", refuse_to_start)
        add(work, *range(3))
        assert work.shutdown(time.monotonic() + 10)
        assert backend.done == [0, 1, 2]


class TestQueue:
    """Follow-up requests behind the queue of an exporter."""

    @pytest.fixture
    def exporter(self, make_work):
        """An exporter that makes a reward of each span that it has stored."""
        exporter = Recorder()
        exporter.follow_up_requests = make_work()

        def outcome(spans):
            add(exporter.follow_up_requests, *(span.name for span in spans))
            return DELIVERED

        exporter.outcome = outcome
        return exporter

    @pytest.mark.parametrize("outcome", [RETRY, REFUSED, CONFIGURATION_ERROR, UNEXPLAINED])
    def test_it_changes_no_span(self, make_queue, exporter, backend, make_span, outcome):
        """Whatever becomes of them, spans are delivered once, whole, and counted; a flush returns False."""
        queue = make_queue(exporter)
        backend.rule = lambda values: outcome
        for number in range(20):
            queue.put(make_span(f"span{number}", "x" * 20_000))
        assert not queue.flush(0.3)
        stats = queue.stats()
        assert sorted(exporter.names) == sorted(f"span{number}" for number in range(20))
        assert (stats.delivered, stats.lost, stats.payloads_shrunk) == (20, {}, 0)
        assert is_balanced(stats)
        rewards = stats.follow_up_requests["rewards"]
        assert rewards.waiting + sum(rewards.lost.values()) == 20

    def test_a_request_that_hangs_holds_up_no_span(self, make_queue, exporter, backend, make_span):
        """Spans are delivered while follow-up requests hangs, and a flush and a shutdown keep to their time."""
        queue = make_queue(exporter)
        backend.gate.clear()
        queue.put(make_span("first"))
        assert backend.entered.wait(10)
        for number in range(50):
            queue.put(make_span(str(number)))
        until(lambda: queue.stats().delivered == 51)
        assert not queue.flush(0.1)
        queue.shutdown(time.monotonic() + 0.3)
        assert not queue.join()
        assert queue.stats().delivered == 51
        assert queue.stats().follow_up_requests["rewards"] == FollowUpStats(lost={"shutdown": 51})

    def test_something_else_of_that_name_is_left_alone(self, make_queue, make_span):
        """A foreign exporter may have an attribute called follow_up_requests."""
        exporter = Plain(lambda spans: SpanExportResult.SUCCESS)
        exporter.follow_up_requests = "hard"
        queue = make_queue(exporter)
        queue.put(make_span())
        assert queue.flush(10)
        assert queue.stats().follow_up_requests == {}
