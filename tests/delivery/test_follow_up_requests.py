"""Requests about stored spans: bounded, retried on a thread of their own, and counted."""

from __future__ import annotations

import logging

import pytest

from otel_rollout.counts import FollowUpStats
from otel_rollout.export import follow_up_requests, lane
from otel_rollout.export.follow_up_requests import NotYet
from tests.delivery.queues import until
from tests.delivery.side_requests import RETRY, add, counts


class TestAttempts:
    """How entries are tried, and tried again."""

    def test_entries_of_a_group_go_together(self, make_work, backend):
        """Waiting entries share attempts up to the kind's limit, groups apart."""
        work = make_work(limit=3)
        backend.gate.clear()
        add(work, "first")
        assert backend.entered.wait(60)
        add(work, *range(7))
        work.add("rewards", "other", "x", "x")
        backend.gate.set()
        assert work.flush(60)
        assert sorted(backend.attempts, key=str) == [["first"], ["x"], [0, 1, 2], [3, 4, 5], [6]]

    def test_entries_wait_for_the_backend(self, make_work, backend, caplog):
        """Entries whose spans aren't stored yet wait behind the others, without a line in the log."""
        stored = set()
        backend.rule = lambda values: NotYet({n for n, value in enumerate(values) if value not in stored}, "not yet")
        work = make_work(limit=3)
        backend.gate.clear()
        add(work, *range(6))
        stored |= {1, 5}
        backend.gate.set()
        until(lambda: counts(work) == FollowUpStats(done=2, waiting=4))
        assert sorted(backend.done) == [1, 5]
        stored |= set(range(6))
        assert work.flush(60)
        assert sorted(backend.done) == list(range(6))
        assert counts(work) == FollowUpStats(done=6)
        assert caplog.records == []

    def test_a_span_that_never_comes_is_given_up(self, make_work, backend, caplog, monkeypatch):
        """An entry that waits for long is lost once a later one is done, not before, and the log says so."""
        monkeypatch.setattr(lane, "SECONDS_BEHIND", 0.0)
        backend.rule = lambda values: NotYet({n for n, value in enumerate(values) if value == "never"}, "not stored")
        work = make_work(limit=3)
        add(work, "never")
        until(lambda: len(backend.attempts) > 2)
        assert counts(work) == FollowUpStats(waiting=1)
        add(work, "later")
        until(lambda: counts(work) == FollowUpStats(done=1, lost={"span_missing": 1}))
        assert "rewards are not stored yet, trying again; spans are not affected (not stored)" in caplog.text
        assert not work.flush(10)

    def test_trouble_is_told_once(self, make_work, backend, caplog):
        """A fault that goes on is one line in the log, which says that spans are not affected."""
        work = make_work()
        backend.rule = lambda values: RETRY
        with caplog.at_level(logging.WARNING, "otel_rollout"):
            add(work, *range(5))
            until(lambda: len(backend.attempts) > 10)
        assert [record.message for record in caplog.records] == [
            "backend: rewards are not stored yet, trying again; spans are not affected (down)"
        ]


class TestReplacing:
    """Two entries with one key."""

    @pytest.mark.parametrize("orders", [(1, 2), (2, 1), (1, 1)])
    def test_the_greater_order_counts(self, make_work, backend, orders):
        """Of two that wait under one key the later is done, in whichever order they come."""
        work = make_work()
        backend.gate.clear()
        add(work, "first")
        assert backend.entered.wait(60)
        for place, order in enumerate(orders):
            work.add("rewards", None, "reward", (place, order), order=order)
        backend.gate.set()
        assert work.flush(60)
        assert backend.done == ["first", (0, 2) if orders == (2, 1) else (1, orders[1])]
        assert counts(work) == FollowUpStats(done=2)

    def test_one_that_is_being_tried_is_followed_by_the_other(self, make_work, backend):
        """An entry that is replaced while it is tried doesn't settle its successor."""
        work = make_work()
        backend.gate.clear()
        work.add("rewards", None, "reward", "old")
        assert backend.entered.wait(60)
        work.add("rewards", None, "reward", "new")
        backend.gate.set()
        assert work.flush(60)
        assert backend.done == ["old", "new"]


class TestBounds:
    """The bound on waiting entries."""

    def test_the_oldest_are_dropped_and_counted(self, make_work, backend):
        """Beyond its bytes the list drops the oldest of what is not being tried."""
        work = make_work(max_bytes=10 * (follow_up_requests.ITEM_BYTES + 3))
        backend.gate.clear()
        add(work, 100)
        assert backend.entered.wait(60)
        add(work, *range(101, 150))
        assert counts(work) == FollowUpStats(waiting=10, lost={"queue_full": 40})
        backend.gate.set()
        assert not work.flush(10)
        assert backend.done == [100, *range(141, 150)]
        assert work.flush(60)
