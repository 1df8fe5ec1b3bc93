"""Messages of the traced program's threads."""

from __future__ import annotations

import logging
import subprocess
import sys
import threading
from collections.abc import Iterator

import pytest
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

import otel_rollout
from otel_rollout.safety import background_log
from otel_rollout.safety.background_log import BackgroundLogger
from otel_rollout.safety.log_once import internal_error
from tests.delivery.queues import until


class Handler(logging.Handler):
    """Notes each message with the thread that logs it; waits as long as it is told to."""

    def __init__(self) -> None:
        super().__init__()
        self.records: list[tuple[str, bool]] = []
        self.is_free = threading.Event()
        self.is_free.set()

    def emit(self, record: logging.LogRecord) -> None:
        """Note a record."""
        self.is_free.wait(10)
        self.records.append((record.getMessage(), threading.current_thread() is threading.main_thread()))


@pytest.fixture
def handler() -> Iterator[Handler]:
    """A log handler of an application."""
    logger, made = logging.getLogger("otel_rollout"), Handler()
    logger.addHandler(made)
    yield made
    made.is_free.set()
    background_log.write_rest()
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
        ("annotate() was called outside rollout_trace_attr: call it in the block", False),
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
    background_log.write_rest()
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
        background_log.write_rest()
    finally:
        logger.removeFilter(failing)
    assert handler.records == [("second", False)]


def test_at_the_end_of_a_program() -> None:
    """What was about to be logged as the program ended is logged, also if the log handler takes its time."""
    program = """
import logging, threading
from otel_rollout.safety.background_log import BackgroundLogger

class Slow(logging.StreamHandler):
    def emit(self, record):
        threading.Event().wait(0.1)
        super().emit(record)

logging.basicConfig(handlers=[Slow()])
BackgroundLogger().warning("the last message")
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=60)
    assert done.stderr == "WARNING:otel_rollout:the last message\n"
