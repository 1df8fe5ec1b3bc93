"""Messages of the traced program's threads."""

from __future__ import annotations

import logging
import os
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence

import pytest
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export import SpanExportResult
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

import otel_rollout
from otel_rollout.guard import BackgroundLogger, internal_error, write_rest
from tests.delivery.queues import until

pytestmark = pytest.mark.every_python


class Handler(logging.Handler):
    """Notes each message with the thread that logs it; waits as long as it is told to."""

    def __init__(self) -> None:
        super().__init__()
        self.records: list[tuple[str, bool]] = []
        self.is_free = threading.Event()
        self.is_free.set()

    def emit(self, record: logging.LogRecord) -> None:
        """Note a record."""
        self.is_free.wait(120)
        self.records.append((record.getMessage(), threading.current_thread() is threading.main_thread()))


@pytest.fixture
def handler() -> Iterator[Handler]:
    """A log handler of an application."""
    logger, made = logging.getLogger("otel_rollout"), Handler()
    logger.addHandler(made)
    yield made
    made.is_free.set()
    write_rest()
    logger.removeHandler(made)


def test_a_traced_call_does_not_wait_for_a_log_handler(handler: Handler) -> None:
    """A call that has something to log returns while the application's log handler waits for its disk."""
    otel_rollout.init("project", "experiment", backend=InMemorySpanExporter())
    handler.is_free.clear()
    with otel_rollout.rollout_trace_attr(sample_index=0, step=1, rollout_n=0):
        otel_rollout.annotate(reward="much")
    otel_rollout.annotate(reward=1.0)
    assert handler.records == []
    handler.is_free.set()
    until(lambda: len(handler.records) == 2)
    reason = "a reward is a number, not str"
    assert handler.records == [
        (f"annotate(reward=…): {reason}; it is ignored", False),
        ("annotate() was called outside rollout_trace_attr: call it in the block; the value is lost", False),
    ]


def test_internal_errors_are_logged_in_the_background(handler: Handler, monkeypatch: pytest.MonkeyPatch) -> None:
    """A fault of ours is logged by another thread than the one that ran into it."""
    monkeypatch.delenv("OTEL_ROLLOUT_RAISE_INTERNAL_ERRORS")
    try:
        raise ValueError("a fault")
    except ValueError:
        internal_error("testing")
    until(lambda: bool(handler.records))
    assert handler.records == [("internal error while testing; the traced program goes on", False)]


def test_in_order_and_each_once(handler: Handler) -> None:
    """Messages come in their order, whatever thread logs them."""
    for number in range(200):
        BackgroundLogger().warning(f"message {number}")
    write_rest()
    assert [text for text, _ in handler.records] == [f"message {number}" for number in range(200)]


def test_a_filter_that_raises(handler: Handler) -> None:
    """The messages behind one that a filter of the application fails on are logged."""

    class Failing(logging.Filter):
        def filter(self, record: logging.LogRecord) -> bool:
            if record.getMessage() == "first":
                raise ValueError("no")
            return True

    logger, failing = logging.getLogger("otel_rollout"), Failing()
    logger.addFilter(failing)
    try:
        BackgroundLogger().warning("first")
        BackgroundLogger().warning("second")
        write_rest()
    finally:
        logger.removeFilter(failing)
    assert handler.records == [("second", False)]


def test_at_the_end_of_a_program() -> None:
    """What was about to be logged as the program ended is logged, also if the log handler takes its time."""
    program = """
import logging, threading
from otel_rollout.guard.background_log import BackgroundLogger

class Slow(logging.StreamHandler):
    def emit(self, record):
        threading.Event().wait(0.1)
        super().emit(record)

logging.basicConfig(handlers=[Slow()])
BackgroundLogger().warning("the last message")
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=300)
    assert done.stderr == "WARNING:otel_rollout:the last message\n"


class TestHandlers:
    """Log handlers of an application that do what they shouldn't."""

    def test_one_thread(self, handler: Handler) -> None:
        """However many messages wait for a handler that blocks, one thread waits; the rest is dropped and counted."""
        handler.is_free.clear()
        before = threading.active_count()
        for number in range(1100):
            BackgroundLogger().warning("message %d", number)
        assert threading.active_count() <= before + 1
        handler.is_free.set()
        until(lambda: any("log messages were dropped" in text for text, _ in handler.records))
        assert len(handler.records) <= 1002

    def test_full_queue(self, handler: Handler) -> None:
        """Traced calls return though the queue is full, its exporter hangs, and the handler of that warning blocks."""
        is_free = threading.Event()

        class Hanging(InMemorySpanExporter):
            def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
                is_free.wait(120)
                return SpanExportResult.SUCCESS

        otel_rollout.init("p", "e", backend=Hanging(), max_queue_bytes=4 << 20, shutdown_timeout_ms=200)
        handler.is_free.clear()

        @otel_rollout.rollout_trace_op
        def op(text: str) -> int:
            return 1

        def call() -> None:
            for _ in range(100):
                op("x" * 100_000)

        thread = threading.Thread(target=call, daemon=True)
        thread.start()
        try:
            thread.join(120)
            assert not thread.is_alive()
        finally:
            is_free.set()
            handler.is_free.set()

    @pytest.mark.parametrize("error", [ValueError("bad handler"), SystemExit(3)])
    def test_a_handler_that_raises(self, error: BaseException) -> None:
        """`init`, calls, `flush` and `shutdown` return as ever, and later messages are logged."""

        class Raising(logging.Handler):
            def __init__(self) -> None:
                super().__init__()
                self.count = 0

            def emit(self, record: logging.LogRecord) -> None:
                self.count += 1
                raise error

        logger, raising = logging.getLogger("otel_rollout"), Raising()
        logger.addHandler(raising)
        level = logger.level
        logger.setLevel(logging.INFO)
        try:
            otel_rollout.init("p", "e", backend=InMemorySpanExporter())
            otel_rollout.annotate(reward=1.0)
            assert otel_rollout.flush(10)
            assert otel_rollout.shutdown()
            write_rest()
        finally:
            logger.removeHandler(raising)
            logger.setLevel(level)

    def test_shutdown_beside_a_handler_that_blocks(self, handler: Handler) -> None:
        """`shutdown` waits a second for a handler that blocks, and returns the truth."""
        otel_rollout.init("p", "e", backend=InMemorySpanExporter())
        handler.is_free.clear()
        otel_rollout.annotate(reward=1.0)
        done: list[bool] = []
        thread = threading.Thread(target=lambda: done.append(otel_rollout.shutdown()), daemon=True)
        thread.start()
        thread.join(60)
        handler.is_free.set()
        assert done == [True]


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this platform has no fork")
def test_in_a_forked_child() -> None:
    """A child logs its own messages, not those that waited in its parent."""
    program = """
import logging, os, sys, threading
from otel_rollout.guard.background_log import BackgroundLogger, write_rest

free = threading.Event()

class Blocking(logging.StreamHandler):
    def emit(self, record):
        if os.getpid() == parent:
            free.wait(120)
        super().emit(record)

parent = os.getpid()
logging.basicConfig(handlers=[Blocking(sys.stdout)], format="%(message)s")
BackgroundLogger().warning("parent's")
BackgroundLogger().warning("parent's second")
child = os.fork()
if child == 0:
    BackgroundLogger().warning("child's")
    write_rest()
    os._exit(0)
os.waitpid(child, 0)
free.set()
"""
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", program], capture_output=True, text=True, timeout=300, check=True
    )
    assert done.stdout.splitlines() == ["child's", "parent's", "parent's second"]
