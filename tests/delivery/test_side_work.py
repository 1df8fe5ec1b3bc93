"""Requests about stored spans: bounded, retried on a thread of their own, counted, and no part of a span's verdict."""

from __future__ import annotations

import logging
import os
import threading
import time
import tracemalloc

import pytest
from opentelemetry import context as context_api
from opentelemetry.sdk.trace.export import SpanExportResult

from otel_rollout.counts import SideWorkStats
from otel_rollout.export import side_work
from otel_rollout.export.backoff import RetryPolicy
from otel_rollout.export.outcome import DELIVERED, Outcome, Verdict
from otel_rollout.export.side_work import Kind, NotYet, SideWork
from tests.delivery.queues import QUICK, Plain, Recorder, is_balanced, until

RETRY = Outcome(Verdict.RETRY, "down")
REFUSED = Outcome(Verdict.REFUSED, "HTTP 400")
CONFIGURATION_ERROR = Outcome(Verdict.CONFIGURATION_ERROR, "HTTP 403")
UNEXPLAINED = Outcome(Verdict.UNEXPLAINED, "HTTP 500")
SLOW = RetryPolicy(initial_delay=3600.0, max_delay=3600.0, configuration_delay=3600.0)


class Backend:
    """Does what it is asked, unless `rule` says otherwise; each attempt waits for `gate`."""

    def __init__(self):
        self.rule = lambda values: DELIVERED
        self.gate = threading.Event()
        self.gate.set()
        self.entered = threading.Event()
        self.attempts = []
        self.done = []
        self.suppressed = []

    def __call__(self, group, values):
        """Answer by the rule."""
        self.attempts.append(values)
        self.suppressed.append(context_api.get_value(context_api._SUPPRESS_INSTRUMENTATION_KEY))
        self.entered.set()
        self.gate.wait(30)
        outcome = self.rule(values)
        if isinstance(outcome, NotYet):
            self.done += [value for position, value in enumerate(values) if position not in outcome.positions]
        elif outcome.verdict is Verdict.DELIVERED:
            self.done += values
        return outcome


@pytest.fixture
def backend():
    """A backend for side work."""
    backend = Backend()
    yield backend
    backend.gate.set()


@pytest.fixture
def make_work(backend):
    """Makes side work of one kind, rewards, which is shut down when the test ends."""
    made = []

    def make(limit=1, policy=QUICK, **options):
        made.append(SideWork("backend", {"rewards": Kind(backend, limit)}, policy=policy, **options))
        return made[-1]

    yield make
    backend.rule = lambda values: DELIVERED
    backend.gate.set()
    for work in made:
        work.shutdown(time.monotonic() + 5.0)


def add(work, *values, **options):
    """Add entries whose keys are their values."""
    for value in values:
        work.add("rewards", None, str(value), value, **options)


def counts(work):
    """Return the counts of the rewards."""
    return work.stats()["rewards"]


class TestAttempts:
    """How entries are tried, and tried again."""

    def test_all_are_done(self, make_work, backend):
        """Entries are done in order, and a flush waits for them."""
        work = make_work()
        add(work, *range(10))
        assert work.flush(10)
        assert backend.done == list(range(10))
        assert counts(work) == SideWorkStats(done=10)

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

    @pytest.mark.parametrize("outcome", [RETRY, CONFIGURATION_ERROR, UNEXPLAINED])
    def test_a_fault_is_waited_for(self, make_work, backend, outcome):
        """A failed attempt is retried until it succeeds, and nothing is lost."""
        work = make_work(limit=4)
        backend.rule = lambda values: DELIVERED if len(backend.attempts) > 20 else outcome
        add(work, *range(10))
        until(lambda: counts(work) == SideWorkStats(done=10))
        assert sorted(backend.done) == list(range(10))

    def test_entries_wait_for_the_backend(self, make_work, backend, caplog):
        """Entries whose spans aren't stored yet wait behind the others, without a line in the log."""
        stored = set()
        backend.rule = lambda values: NotYet({n for n, value in enumerate(values) if value not in stored}, "not yet")
        work = make_work(limit=3)
        backend.gate.clear()
        add(work, *range(6))
        stored |= {1, 5}
        backend.gate.set()
        until(lambda: counts(work) == SideWorkStats(done=2, waiting=4))
        assert sorted(backend.done) == [1, 5]
        stored |= set(range(6))
        assert work.flush(10)
        assert sorted(backend.done) == list(range(6))
        assert counts(work) == SideWorkStats(done=6)
        assert caplog.records == []

    def test_a_span_that_never_comes_is_given_up(self, make_work, backend, caplog, monkeypatch):
        """An entry that waits for long is lost once a later one is done, not before, and the log says so."""
        monkeypatch.setattr(side_work, "SECONDS_BEHIND", 0.0)
        backend.rule = lambda values: NotYet({n for n, value in enumerate(values) if value == "never"}, "not stored")
        work = make_work(limit=3)
        add(work, "never")
        until(lambda: len(backend.attempts) > 2)
        assert counts(work) == SideWorkStats(waiting=1)
        add(work, "later")
        until(lambda: counts(work) == SideWorkStats(done=1, lost={"span_missing": 1}))
        assert "rewards are not stored yet, trying again; spans are not affected (not stored)" in caplog.text
        assert not work.flush(10)

    def test_spans_that_never_come_keep_no_other_from_its_attempt(self, make_work, backend, monkeypatch):
        """Entries that waited for long before any later one came stand behind those, as many as there are."""
        monkeypatch.setattr(side_work, "SECONDS_BEHIND", 0.0)
        monkeypatch.setattr(side_work, "FIRST_WAIT", 0.01)
        monkeypatch.setattr(side_work, "LONGEST_WAIT", 0.01)
        backend.rule = lambda values: NotYet({n for n, value in enumerate(values) if value != "later"}, "not stored")
        work = make_work(limit=2)
        add(work, *range(3))
        until(lambda: len(backend.attempts) > 2)
        add(work, "later")
        until(lambda: "later" in backend.done)
        until(lambda: counts(work) == SideWorkStats(done=1, lost={"span_missing": 3}))

    def test_waiting_ends_with_the_shutdown(self, make_work, backend):
        """At a shutdown, entries that still wait at the deadline are counted as lost."""
        backend.rule = lambda values: NotYet({0}, "not yet")
        work = make_work()
        add(work, "reward")
        assert not work.shutdown(time.monotonic() + 0.3)
        assert counts(work) == SideWorkStats(lost={"shutdown": 1})

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
        assert counts(work) == SideWorkStats(done=8, lost={"refused": 1})

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
        until(lambda: counts(work) == SideWorkStats(done=29, lost={reason: 1}))

    def test_one_alone_is_never_given_up(self, make_work, backend):
        """As long as nothing of its kind is done this is an outage, and the entry is not at fault."""
        work = make_work()
        backend.rule = lambda values: UNEXPLAINED
        add(work, "only")
        until(lambda: len(backend.attempts) > 4 * side_work.ATTEMPTS_ALONE)
        assert counts(work) == SideWorkStats(waiting=1)

    def test_retry_after_is_heeded_by_a_flush_too(self, make_work, backend):
        """A backend that asks to wait is not asked again before, also not by a flush."""
        work = make_work()
        backend.rule = lambda values: Outcome(Verdict.RETRY, "busy", retry_after=3600.0)
        add(work, "one")
        until(lambda: work.last_trouble)
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
        assert type(error).__name__ in work.last_trouble

    def test_it_is_not_traced(self, make_work, backend):
        """While side work is done, instrumentation is suppressed."""
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
        assert counts(work) == SideWorkStats(done=2)

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
        work = make_work(max_bytes=10 * (side_work.ITEM_BYTES + 3))
        backend.gate.clear()
        add(work, 100)
        assert backend.entered.wait(10)
        add(work, *range(101, 150))
        assert counts(work) == SideWorkStats(waiting=10, lost={"queue_full": 40})
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
        assert counts(work) == SideWorkStats(waiting=3, lost={"queue_full": 6})

    def test_four_megabytes_are_four_megabytes(self, make_work, backend):
        """The list in full takes about the memory that its bound says."""
        work = make_work()
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
        assert 0.5 * side_work.MAX_BYTES < taken < 1.2 * side_work.MAX_BYTES


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

    def test_it_says_false_when_some_are_left(self, make_work, backend):
        """A flush ends with its timeout, and says that something waits."""
        work = make_work()
        backend.rule = lambda values: RETRY
        add(work, "one")
        started = time.monotonic()
        assert not work.flush(0.05)
        assert time.monotonic() - started < 5.0
        assert counts(work).waiting == 1

    def test_it_returns_at_once_when_turned_away(self, make_work, backend):
        """Waiting doesn't fix an auth error: a flush makes one attempt and returns False."""
        work = make_work(policy=SLOW, limit=2)
        backend.rule = lambda values: CONFIGURATION_ERROR
        add(work, *range(5))
        started = time.monotonic()
        assert not work.flush(60)
        assert time.monotonic() - started < 30.0

    def test_a_loss_is_told_once(self, make_work, backend):
        """The flush after a loss says False, and the next one True."""
        work = make_work()
        backend.rule = lambda values: REFUSED
        add(work, "one")
        assert not work.flush(10)
        assert work.flush(10)

    def test_without_work_it_is_true(self, make_work):
        """Nothing to do is done, and no thread is started for it."""
        work = make_work()
        assert work.flush(0.0)
        assert not work.is_running


class TestShutdown:
    """The end."""

    def test_what_waits_is_tried_once_more(self, make_work, backend):
        """A shutdown has what waits done, however long the delay has grown."""
        work = make_work(policy=SLOW)
        backend.rule = lambda values: RETRY
        add(work, *range(3))
        until(lambda: backend.attempts)
        backend.rule = lambda values: DELIVERED
        assert work.shutdown(time.monotonic() + 10)
        assert counts(work) == SideWorkStats(done=3)

    @pytest.mark.parametrize(("outcome", "reason"), [(RETRY, "shutdown"), (CONFIGURATION_ERROR, "configuration_error")])
    def test_what_is_left_is_counted(self, make_work, backend, outcome, reason):
        """Entries that are not done by the deadline are lost, and the shutdown returns False."""
        work = make_work()
        backend.rule = lambda values: outcome
        add(work, *range(3))
        assert not work.shutdown(time.monotonic() + 0.3)
        assert counts(work) == SideWorkStats(lost={reason: 3})

    def test_a_request_that_hangs_is_left_behind(self, make_work, backend):
        """A shutdown ends with its deadline; what a hanging request comes to is not counted again."""
        work = make_work()
        backend.gate.clear()
        add(work, "one", "two")
        assert backend.entered.wait(10)
        started = time.monotonic()
        assert not work.shutdown(started + 0.1)
        assert time.monotonic() - started < 5.0
        assert work.is_running
        backend.gate.set()
        until(lambda: not work.is_running)
        assert counts(work) == SideWorkStats(lost={"shutdown": 2})

    def test_what_comes_later_is_counted(self, make_work):
        """An entry that comes after the shutdown is lost, and counted as such."""
        work = make_work()
        assert work.shutdown(time.monotonic() + 1)
        add(work, "late")
        assert counts(work) == SideWorkStats(lost={"after_shutdown": 1})

    def test_without_a_thread(self, make_work, backend, monkeypatch):
        """If no thread can be started, at the interpreter's exit, the shutdown does the work itself."""
        work = make_work()

        def start(self):
            raise RuntimeError("can't start new thread at interpreter shutdown")

        monkeypatch.setattr(threading.Thread, "start", start)
        add(work, *range(3))
        assert work.shutdown(time.monotonic() + 10)
        assert backend.done == [0, 1, 2]


class TestFork:
    """A forked child."""

    def test_it_starts_empty(self, make_work, backend):
        """The child neither does what its parent holds nor waits for a lock that the parent's thread has."""
        work = make_work()
        backend.gate.clear()
        add(work, "one", "two")
        assert backend.entered.wait(10)
        with work._lock:
            child = os.fork()
            if child == 0:
                backend.gate.set()
                backend.done.clear()
                add(work, "mine")
                is_right = work.flush(10) and backend.done == ["mine"] and counts(work) == SideWorkStats(done=1)
                os._exit(0 if is_right else 1)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        backend.gate.set()
        assert work.flush(10)
        assert backend.done == ["one", "two"]


class TestQueue:
    """Side work behind the queue of an exporter."""

    @pytest.fixture
    def exporter(self, make_work):
        """An exporter that makes a reward of each span that it has stored."""
        exporter = Recorder()
        exporter.side_work = make_work()

        def outcome(spans):
            add(exporter.side_work, *(span.name for span in spans))
            return DELIVERED

        exporter.outcome = outcome
        return exporter

    @pytest.mark.parametrize("outcome", [RETRY, REFUSED, CONFIGURATION_ERROR, UNEXPLAINED])
    def test_it_changes_no_span(self, make_queue, exporter, backend, make_span, outcome):
        """Whatever becomes of side work, spans are delivered once, whole, and counted; a flush returns False."""
        queue = make_queue(exporter)
        backend.rule = lambda values: outcome
        for number in range(20):
            queue.put(make_span(f"span{number}", "x" * 20_000))
        assert not queue.flush(0.3)
        stats = queue.stats()
        assert sorted(exporter.names) == sorted(f"span{number}" for number in range(20))
        assert (stats.delivered, stats.lost, stats.payloads_shrunk) == (20, {}, 0)
        assert is_balanced(stats)
        rewards = stats.side_work["rewards"]
        assert rewards.waiting + sum(rewards.lost.values()) == 20

    def test_a_request_that_hangs_holds_up_no_span(self, make_queue, exporter, backend, make_span):
        """Spans are delivered while side work hangs, and a flush and a shutdown keep to their time."""
        queue = make_queue(exporter)
        backend.gate.clear()
        queue.put(make_span("first"))
        assert backend.entered.wait(10)
        for number in range(50):
            queue.put(make_span(str(number)))
        until(lambda: queue.stats().delivered == 51)
        started = time.monotonic()
        assert not queue.flush(0.1)
        queue.shutdown(time.monotonic() + 0.3)
        assert not queue.join()
        assert time.monotonic() - started < 10.0
        assert queue.stats().delivered == 51
        assert queue.stats().side_work["rewards"] == SideWorkStats(lost={"shutdown": 51})

    def test_a_shutdown_waits_for_it(self, make_queue, exporter, backend, make_span):
        """Side work of the last spans is done before the exporter is shut down."""
        queue = make_queue(exporter, delay=60.0)
        order = []
        backend.rule = lambda values: order.append("reward") or DELIVERED
        exporter.shutdown = lambda: order.append("shutdown")
        queue.put(make_span("last"))
        queue.shutdown(time.monotonic() + 10)
        assert queue.join()
        assert order == ["reward", "shutdown"]

    def test_something_else_of_that_name_is_left_alone(self, make_queue, make_span):
        """A foreign exporter may have an attribute called side_work."""
        exporter = Plain(lambda spans: SpanExportResult.SUCCESS)
        exporter.side_work = "hard"
        queue = make_queue(exporter)
        queue.put(make_span())
        assert queue.flush(10)
        assert queue.stats().side_work == {}
