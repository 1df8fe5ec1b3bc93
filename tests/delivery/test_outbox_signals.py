"""Signal handlers of the program inside `put`, `flush` and `stats`: one that raises, and one that calls them again."""

from __future__ import annotations

import contextlib
import signal
import threading
import time

import pytest
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.util.instrumentation import InstrumentationScope

import otel_rollout
from otel_rollout import annotate, rollout_trace_attr, rollout_trace_op
from otel_rollout.deliver import QueueLimits, SpanOutbox
from otel_rollout.finish import PayloadFinisher, SpanReader
from tests.delivery.queues import QUICK, Recorder, is_balanced

pytestmark = [
    pytest.mark.every_python,
    pytest.mark.skipif(not hasattr(signal, "setitimer"), reason="there are no timers here"),
]
TIMES = 2000
"""So often a handler comes in between; CPython 3.14 left a lock held in one of some hundred."""


class Alarm(Exception):
    """What a handler raises."""


class Alarms:
    """Delivers a signal to the main thread again and again, from a thread of its own, until it came often enough."""

    def __init__(self, handler):
        self.seen = self.raised = 0
        self.is_armed = False
        self._handler = handler
        self._is_over = False

    def _handle(self, *arguments):
        self.seen += 1
        self._handler()

    def __enter__(self):
        self._before = signal.signal(signal.SIGUSR1, self._handle)
        self._thread = threading.Thread(target=self._send, daemon=True)
        self._thread.start()
        return self

    def _send(self):
        main = threading.main_thread().ident
        while not self._is_over:
            signal.pthread_kill(main, signal.SIGUSR1)
            time.sleep(0.0001)

    def __exit__(self, *arguments):
        self._is_over = True
        self._thread.join()
        signal.signal(signal.SIGUSR1, self._before)


@pytest.fixture
def outbox():
    """An outbox whose backend takes everything."""
    reader = SpanReader(Resource({}), InstrumentationScope("test"), PayloadFinisher(2**30, None))
    outbox = SpanOutbox("backend", Recorder(), reader, QueueLimits(delay=0.0), QUICK)
    yield outbox
    outbox.shutdown(time.monotonic() + 60)
    outbox.join()


class TestHandlers:
    """Nothing hangs, and nothing is uncounted."""

    def test_one_that_raises(self, outbox, make_span):
        """A handler that raises inside `put` or `flush` leaves an outbox that takes, delivers and counts."""

        def handler():
            if alarms.is_armed:
                alarms.is_armed = False
                alarms.raised += 1
                raise Alarm

        def work():
            alarms.is_armed = True
            outbox.put(make_span())
            outbox.flush(0.001)
            outbox.stats()
            alarms.is_armed = False

        alarms = Alarms(handler)
        with alarms:
            while alarms.raised < TIMES:
                with contextlib.suppress(Alarm):
                    work()
        outbox.put(make_span())
        outbox.flush(60)
        stats = outbox.stats()
        assert is_balanced(stats)
        assert stats.queued == 0
        assert stats.delivered == len(outbox.exporter.spans)

    def test_one_that_takes_longer_than_the_wait(self, outbox, make_span):
        """A flush comes back once a handler that outlasted its timeout has, also if the backend answers never."""
        is_over = threading.Event()
        watchdog = threading.Timer(60.0, outbox.exporter.gate.set)
        outbox.exporter.gate.clear()
        outbox.put(make_span())
        before = signal.signal(signal.SIGALRM, lambda *_: time.sleep(0.3) or is_over.set())
        watchdog.start()
        try:
            signal.setitimer(signal.ITIMER_REAL, 0.05)
            while not is_over.is_set():
                assert outbox.flush(0.1) is False
        finally:
            watchdog.cancel()
            signal.signal(signal.SIGALRM, before)
            outbox.exporter.gate.set()

    def test_one_that_calls_us(self):
        """A handler that calls an op, `annotate`, `stats`, `flush` and `shutdown` comes back, wherever it comes in."""
        exporter = Recorder()
        otel_rollout.init("project", "experiment", backend=exporter, schedule_delay_ms=0)

        @rollout_trace_op
        def op():
            return 1

        def handler():
            op()
            annotate(reward=1.0)
            otel_rollout.stats()
            otel_rollout.flush(0.0)
            if alarms.seen > TIMES:
                otel_rollout.shutdown(0.0)

        alarms = Alarms(handler)
        with alarms:
            while alarms.seen <= TIMES:
                with rollout_trace_attr(0, 1, 2):
                    op()
                    annotate(reward=0.5)
                otel_rollout.flush(0.001)
        otel_rollout.shutdown(60)
        (stats,) = otel_rollout.stats().exporters.values()
        assert is_balanced(stats)
        assert stats.queued == 0
