"""Requests about stored spans: bounded, retried on a thread of their own, and counted."""

from __future__ import annotations

import logging
import tracemalloc

import pytest

from otel_rollout.counts import FollowUpStats
from otel_rollout.export import follow_up_requests, lane
from otel_rollout.export.follow_up_requests import NotYet
from otel_rollout.export.outcome import DELIVERED, Outcome, Verdict
from tests.delivery.queues import until
from tests.delivery.side_requests import CONFIGURATION_ERROR, REFUSED, RETRY, UNEXPLAINED, add, counts


class TestAttempts:
    """How entries are tried, and tried again."""

    def test_entries_of_a_group_go_together(self, make_work, backend):
        """Waiting entries share attempts up to the kind's limit, groups apart."""
        work = make_work(limit=3)
        backend.gate.clear()
        add(work, "first")
        assert backend.entered.wait(10)
        add(work, *range(7))
        work.add("rewards", "other", "x", "x")
        backend.gate.set()
        assert work.flush(10)
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
        assert work.flush(10)
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

    def test_spans_that_never_come_keep_no_other_from_its_attempt(self, make_work, backend, monkeypatch):
        """Entries that waited for long before any later one came stand behind those, as many as there are."""
        monkeypatch.setattr(lane, "SECONDS_BEHIND", 0.0)
        monkeypatch.setattr(lane, "FIRST_WAIT", 0.01)
        monkeypatch.setattr(lane, "LONGEST_WAIT", 0.01)
        backend.rule = lambda values: NotYet({n for n, value in enumerate(values) if value != "later"}, "not stored")
        work = make_work(limit=2)
        add(work, *range(3))
        until(lambda: len(backend.attempts) > 2)
        add(work, "later")
        until(lambda: "later" in backend.done)
        until(lambda: counts(work) == FollowUpStats(done=1, lost={"span_missing": 3}))

    def test_the_one_at_fault_is_found(self, make_work, backend):
        """An entry that is refused is lost alone; those that went with it are done."""
        work = make_work(limit=8)
        backend.gate.clear()
        add(work, "first")
        assert backend.entered.wait(10)
        backend.rule = lambda values: REFUSED if 3 in values else DELIVERED
        add(work, *range(8))
        backend.gate.set()
        assert not work.flush(10)
        assert counts(work) == FollowUpStats(done=8, lost={"refused": 1})

    @pytest.mark.parametrize(
        ("outcome", "reason"), [(UNEXPLAINED, "export_failed"), (CONFIGURATION_ERROR, "configuration_error")]
    )
    def test_one_that_always_fails_keeps_no_other(self, make_work, backend, outcome, reason):
        """An entry that fails for no reason waits behind the others, and is dropped once they are done."""
        work = make_work(limit=4)
        backend.rule = lambda values: outcome if "bad" in values else DELIVERED
        add(work, "bad", *range(9))
        until(lambda: counts(work).done == 9)
        for number in range(10, 30):
            add(work, number)
            until(lambda number=number: number in backend.done)
        until(lambda: counts(work) == FollowUpStats(done=29, lost={reason: 1}))

    def test_one_alone_is_never_given_up(self, make_work, backend):
        """As long as nothing of its kind is done this is an outage, and the entry is not at fault."""
        work = make_work()
        backend.rule = lambda values: UNEXPLAINED
        add(work, "only")
        until(lambda: len(backend.attempts) > 4 * lane.ATTEMPTS_ALONE)
        assert counts(work) == FollowUpStats(waiting=1)

    def test_retry_after_is_heeded_by_a_flush_too(self, make_work, backend):
        """A backend that asks to wait is not asked again before, also not by a flush."""
        work = make_work()
        backend.rule = lambda values: Outcome(Verdict.RETRY, "busy", retry_after=3600.0)
        add(work, "one")
        until(lambda: work.last_error)
        assert not work.flush(0.05)
        assert len(backend.attempts) == 1

    @pytest.mark.parametrize("error", [ValueError("no"), SystemExit(3), KeyboardInterrupt()])
    def test_an_error_is_an_attempt_that_failed(self, make_work, backend, error):
        """Whatever an exporter's code raises, the thread goes on."""
        work = make_work()

        def rule(values):
            if len(backend.attempts) < 3:
                raise error
            return DELIVERED

        backend.rule = rule
        add(work, "one")
        until(lambda: counts(work).done == 1)
        assert type(error).__name__ in work.last_error

    def test_it_is_not_traced(self, make_work, backend):
        """While follow-up requests is done, instrumentation is suppressed."""
        work = make_work()
        add(work, "one")
        assert work.flush(10)
        assert backend.suppressed == [True]

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
        assert backend.entered.wait(10)
        for place, order in enumerate(orders):
            work.add("rewards", None, "reward", (place, order), order=order)
        backend.gate.set()
        assert work.flush(10)
        assert backend.done == ["first", (0, 2) if orders == (2, 1) else (1, orders[1])]
        assert counts(work) == FollowUpStats(done=2)

    def test_one_that_is_being_tried_is_followed_by_the_other(self, make_work, backend):
        """An entry that is replaced while it is tried doesn't settle its successor."""
        work = make_work()
        backend.gate.clear()
        work.add("rewards", None, "reward", "old")
        assert backend.entered.wait(10)
        work.add("rewards", None, "reward", "new")
        backend.gate.set()
        assert work.flush(10)
        assert backend.done == ["old", "new"]


class TestBounds:
    """The bound on waiting entries."""

    def test_the_oldest_are_dropped_and_counted(self, make_work, backend):
        """Beyond its bytes the list drops the oldest of what is not being tried."""
        work = make_work(max_bytes=10 * (follow_up_requests.ITEM_BYTES + 3))
        backend.gate.clear()
        add(work, 100)
        assert backend.entered.wait(10)
        add(work, *range(101, 150))
        assert counts(work) == FollowUpStats(waiting=10, lost={"queue_full": 40})
        backend.gate.set()
        assert not work.flush(10)
        assert backend.done == [100, *range(141, 150)]
        assert work.flush(10)

    def test_the_payload_counts(self, make_work, backend):
        """An entry is counted with what its value takes."""
        work = make_work(max_bytes=10_000)
        backend.gate.clear()
        add(work, 0)
        assert backend.entered.wait(10)
        add(work, *range(1, 9), payload_bytes=4_000)
        assert counts(work) == FollowUpStats(waiting=3, lost={"queue_full": 6})

    def test_four_megabytes_are_four_megabytes(self, make_work, backend):
        """The list in full takes about the memory that its bound says."""
        bound = 4 * 1024 * 1024
        work = make_work(max_bytes=bound)
        backend.gate.clear()
        add(work, "first")
        assert backend.entered.wait(10)
        tracemalloc.start()
        try:
            before = tracemalloc.get_traced_memory()[0]
            for number in range(20_000):
                work.add("rewards", None, f"tr-{number:032x}", (f"tr-{number:032x}", number / 7, 2**60 + number))
            taken = tracemalloc.get_traced_memory()[0] - before
        finally:
            tracemalloc.stop()
        assert counts(work).lost["queue_full"] > 0
        assert 0.5 * bound < taken < 1.2 * bound
