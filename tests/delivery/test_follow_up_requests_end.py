"""A flush, a shutdown and a fork during follow-up requests, which is no part of a span's verdict."""

from __future__ import annotations

import time

import pytest

from otel_rollout.counts import FollowUpStats
from otel_rollout.export.outcome import DELIVERED
from tests.delivery.queues import Recorder, is_balanced, until
from tests.delivery.side_requests import CONFIGURATION_ERROR, REFUSED, RETRY, UNEXPLAINED, add, counts


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
        assert backend.entered.wait(60)
        assert not work.shutdown(time.monotonic() + 0.1)
        assert work.is_running
        backend.gate.set()
        until(lambda: not work.is_running)
        assert counts(work) == FollowUpStats(lost={"shutdown": 2})


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
        assert backend.entered.wait(60)
        for number in range(50):
            queue.put(make_span(str(number)))
        until(lambda: queue.stats().delivered == 51)
        assert not queue.flush(0.1)
        queue.shutdown(time.monotonic() + 0.3)
        assert not queue.join()
        assert queue.stats().delivered == 51
        assert queue.stats().follow_up_requests["rewards"] == FollowUpStats(lost={"shutdown": 51})
