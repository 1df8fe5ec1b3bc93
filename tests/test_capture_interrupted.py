"""Capture while signal handlers raise, other threads change what is read, and the stack ends."""

from __future__ import annotations

import ctypes
import gc
import signal
import subprocess
import sys
import threading
import time
from types import FunctionType
from typing import Any
from unittest.mock import NonCallableMock

import pytest
from opentelemetry import context as context_api
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider

from otel_rollout import annotate, flush, init, rollout_trace_attr, rollout_trace_op, stats
from otel_rollout.guard import SignalSafeLock
from otel_rollout.record import take_snapshot
from otel_rollout.testing import InMemorySpanExporter

pytestmark = pytest.mark.every_python


class AlarmError(Exception):
    """The exception of a grader's handler of SIGALRM."""


def _values_that_take_long() -> Any:
    return [[{"n": number, "text": "x" * 10} for number in range(2000)] for _ in range(4)]


@pytest.mark.skipif(not hasattr(signal, "setitimer"), reason="this platform has no timers by signal")
class TestSignals:
    """An exception of a signal handler during a snapshot passes through at once."""

    @pytest.mark.parametrize("raised", [AlarmError, KeyboardInterrupt, SystemExit, RuntimeError, TypeError])
    def test_a_handler_that_raises(self, rollout_spans, raised):
        """Each time the timer fires inside tracing, its exception reaches the program."""
        fired = 0

        is_armed = False

        def on_alarm(number: int, frame: Any) -> None:
            nonlocal fired
            if is_armed:
                fired += 1
                raise raised("time is up")

        value = _values_that_take_long()

        @rollout_trace_op
        def grade(given: Any) -> Any:
            return given

        previous = signal.signal(signal.SIGALRM, on_alarm)
        caught = 0
        # Callbacks of the collector, other packages' too, lose what is raised in them.
        gc.collect()
        gc.disable()
        try:
            deadline = time.monotonic() + 60
            for attempt in range(200):
                if caught >= 20 or time.monotonic() > deadline:
                    break
                try:
                    is_armed = True
                    signal.setitimer(signal.ITIMER_REAL, 0.0005 + attempt % 20 * 0.0002)
                    for _ in range(20):
                        grade(value)
                    is_armed = False
                except raised:
                    caught += 1
                finally:
                    signal.setitimer(signal.ITIMER_REAL, 0)
        finally:
            gc.enable()
            signal.signal(signal.SIGALRM, previous)

        assert fired == caught
        assert caught >= 20

    @pytest.mark.skipif(sys.version_info < (3, 14), reason="locks of older Pythons are safe as they are")
    def test_spans_of_an_application(self):
        """A handler that raises leaves no lock of an application's span held, which its end would wait for."""
        locks = []

        @rollout_trace_op
        def read_locks() -> None:
            # Behind what redacts.
            current = trace.get_current_span()
            span = getattr(current, "span", current)
            parts = span, span._attributes, span._events, span._links
            locks.extend(type(part._lock) for part in parts)

        init("p", "e", tracer_provider=TracerProvider())
        read_locks()
        assert locks == [SignalSafeLock] * 4

    def test_counted_ids(self, rollout_spans):
        """Ids that a test counts take no lock of mocks, which a handler that raises could leave held."""

        @rollout_trace_op
        def op() -> None:
            pass

        thread = threading.Thread(target=op, daemon=True)
        with NonCallableMock._lock:
            thread.start()
            thread.join(120)
            assert not thread.is_alive()


class _Loud:
    """A key with a repr of its own."""

    reprs = 0

    def __repr__(self) -> str:
        _Loud.reprs += 1
        raise RuntimeError("repr")


def _loop() -> list[Any]:
    loop: list[Any] = []
    loop.append(loop)
    return loop


def _deep() -> list[Any]:
    deep: list[Any] = []
    for _ in range(100_000):
        deep = [deep]
    return deep


class TestNotes:
    """The notes that the pickler of Python 3.14 adds to whatever passes through it reach nobody."""

    @pytest.mark.parametrize(
        "value",
        [
            pytest.param([_loop()], id="loop"),
            pytest.param([_deep()], id="too deep"),
            pytest.param(["x" * 10_000_000], id="too large"),
            pytest.param([{"n": number} for number in range(1_000_000)], id="too many"),
            pytest.param([_Loud() for _ in range(100_000)], id="too many objects"),
            pytest.param(object(), id="object"),
        ],
    )
    def test_a_key_of_a_class(self, value):
        """A snapshot that is given up below a key runs no repr of the key's class."""
        _Loud.reprs = 0
        take_snapshot({"before": _Loud(), _Loud(): {"key": value}})
        take_snapshot([[{(1, _Loud()): value, _Loud(): value}] * 2])
        assert _Loud.reprs == 0

    @pytest.mark.skipif(not hasattr(signal, "setitimer"), reason="this platform has no timers by signal")
    @pytest.mark.parametrize(
        "value",
        [
            # It takes long to make notes of these keys, and a note runs signal handlers.
            pytest.param({"k" * 60_000: {"l" * 60_000: {"m" * 60_000: object()}}}, id="stopped"),
            pytest.param({"key": [{"k": "x" * 70_000} for _ in range(3)]}, id="written in parts"),
            pytest.param({1 << 20_000: {"a": {"k" * 60_000: [object(), "x" * 70_000]}}}, id="a key without a repr"),
        ],
    )
    def test_an_alarm(self, value):
        """What a signal handler raises inside a snapshot arrives without notes."""
        is_armed = False

        def on_alarm(number: int, frame: Any) -> None:
            if is_armed:
                raise AlarmError

        previous = signal.signal(signal.SIGALRM, on_alarm)
        caught = []
        try:
            deadline = time.monotonic() + 60
            while len(caught) < 50 and time.monotonic() < deadline:
                try:
                    is_armed = True
                    signal.setitimer(signal.ITIMER_REAL, 0.00002 + len(caught) % 25 * 0.00002)
                    for _ in range(20):
                        take_snapshot(value)
                    is_armed = False
                except AlarmError as alarm:  # noqa: PERF203 - each is caught for itself
                    caught.append(alarm)
                finally:
                    is_armed = False
                    signal.setitimer(signal.ITIMER_REAL, 0)
        finally:
            signal.signal(signal.SIGALRM, previous)

        assert [vars(alarm) for alarm in caught] == [{}] * 50


_RACE = """
import sys, threading, time, enum, datetime as dt
import otel_rollout
from otel_rollout import annotate, rollout_trace_attr, rollout_trace_op
from otel_rollout.testing import InMemorySpanExporter
from pydantic import BaseModel

class Sink(InMemorySpanExporter):
    def export(self, spans):
        for span in spans:
            span.attributes
        return super().export([])

class Message(BaseModel):
    role: str = "tool"
    content: str = "x" * 50

class Colour(enum.Enum):
    RED = "red"

class Zone(dt.tzinfo):
    def utcoffset(self, moment): return dt.timedelta(hours=1)

def item():
    kind = {kind!r}
    if kind == "pydantic": return Message()
    if kind == "enum": return Colour.RED
    if kind == "zone": return dt.datetime(2026, 1, 2, tzinfo=Zone())
    return {{"role": "tool", "content": ["x" * 50]}}

otel_rollout.init("p", "e", backend=Sink())

@rollout_trace_op(kind="LLM")
def generate(messages, state): return messages

shared, state, stop = [], {{}}, False
def change():
    number = 0
    while not stop:
        number += 1
        shared.append(item())
        state[number % 50] = [item()]
        if len(shared) > 60: del shared[:]
        if number % 70 == 0: state.clear()
threads = [threading.Thread(target=change, daemon=True) for _ in range(2)]
for thread in threads: thread.start()
end = time.monotonic() + {seconds}
sys.setswitchinterval(1e-5)
with rollout_trace_attr(1, 1, 1):
    while time.monotonic() < end:
        assert generate(shared, state) is shared
        annotate(input=shared, output=state, extra=shared, metadata_of_mine=state)
stop = True
otel_rollout.shutdown()
print("survived")
"""


class TestRaces:
    """Containers that other threads change while they are captured."""

    @pytest.mark.parametrize("kind", ["plain", "pydantic", "enum", "zone"])
    def test_the_process_lives(self, kind):
        """Lists and dicts that two threads fill and empty meanwhile kill no process: that took a second."""
        done = subprocess.run(
            [sys.executable, "-c", _RACE.format(kind=kind, seconds=2)],
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )

        assert (done.returncode, done.stdout.strip()) == (0, "survived"), done.stderr[-2000:]


class LimitError(Exception):
    """The exception that one thread sets in another."""


class TestOtherThreads:
    """`PyThreadState_SetAsyncExc`, with which graders end a thread."""

    @pytest.fixture(autouse=True)
    def _no_callbacks_in_python(self):
        """Take Python functions, hypothesis's say, off the collector: what comes up in one is lost, whoever traces."""
        given = list(gc.callbacks)
        gc.callbacks[:] = [each for each in given if not isinstance(each, FunctionType)]
        yield
        gc.callbacks[:] = given

    @pytest.mark.parametrize("form", ["op", "trajectory"])
    def test_each_exception_arrives(self, rollout_spans, form):
        """An Exception that another thread sets ends the work, wherever tracing is then; none is swallowed."""
        messages = [{"role": "user", "content": "x" * 400} for _ in range(5)]
        ends: list[str] = []
        leftovers: list[Any] = []

        @rollout_trace_op
        def tool(value: Any) -> Any:
            return value

        def work(started: threading.Event, deadline: float) -> None:
            try:
                started.set()
                while time.monotonic() < deadline:
                    if form == "op":
                        tool(messages)
                    else:
                        with rollout_trace_attr(step=1):
                            annotate(reward=1.0)
                ends.append("lost")
            except LimitError:
                ends.append("seen")
                leftovers.extend(context_api.get_current().values() if form == "op" else ())

        for number in range(100):
            started = threading.Event()
            thread = threading.Thread(target=work, args=(started, time.monotonic() + 20))
            thread.start()
            started.wait()
            for _ in range(number * 50):
                pass
            ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(thread.ident or 0), ctypes.py_object(LimitError))
            thread.join()
        assert ends == ["seen"] * 100
        assert leftovers == []


@pytest.mark.skipif(not hasattr(signal, "setitimer"), reason="this platform has no timers by signal")
def test_alarms_beside_two_exporters():
    """Whenever an alarm's handler raises, both exporters account for the same spans, and none stays open."""
    exporters = [InMemorySpanExporter(), InMemorySpanExporter()]
    init("p", "e", backend=list(exporters))
    is_armed = False

    def on_alarm(number: int, frame: Any) -> None:
        if is_armed:
            raise AlarmError

    @rollout_trace_op
    def tool(value: Any) -> Any:
        return value

    previous = signal.signal(signal.SIGALRM, on_alarm)
    outer = context_api.get_current()
    caught = 0
    gc.collect()
    gc.disable()
    try:
        deadline = time.monotonic() + 60
        while caught < 500 and time.monotonic() < deadline:
            try:
                is_armed = True
                signal.setitimer(signal.ITIMER_REAL, 0.0002 + caught % 50 * 0.000004)
                while True:
                    tool([1, 2, 3])
            except AlarmError:
                is_armed = False
                caught += 1
            assert context_api.get_current() is outer
    finally:
        gc.enable()
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, previous)

    assert caught == 500
    flush(30)
    counts = stats()
    first, second = counts.exporters.values()
    assert counts.open_spans == 0
    assert first.recorded == second.recorded
    for exporter in (first, second):
        assert exporter.recorded == exporter.delivered + exporter.queued + sum(exporter.lost.values())


class TestStack:
    """Calls near the end of the stack."""

    def test_a_traced_function_near_the_limit(self, rollout_spans):
        """A traced recursion ends in the program's own RecursionError, or comes back; nothing of ours is in between."""

        @rollout_trace_op
        def dive(depth: int, value: Any) -> int:
            return depth if depth == 0 else dive(depth - 1, value)

        value = {"a": [{"b": [{"c": 1}]}]}
        for depth in (10, 50, 100):
            assert dive(depth, value) == 0
        with pytest.raises(RecursionError):
            dive(100_000, value)
        thread = threading.Thread(target=dive, args=(20, value))
        thread.start()
        thread.join()

    def test_near_every_depth(self, rollout_spans):
        """However little of the stack is left, what was current is current again, and no span stays open."""

        @rollout_trace_op
        def leaf(value: int) -> int:
            return value

        def dive(depth: int) -> int:
            return leaf(1) if depth == 0 else dive(depth - 1)

        def dive_into_a_trajectory(depth: int) -> None:
            if depth:
                dive_into_a_trajectory(depth - 1)
                return
            with rollout_trace_attr(step=1):
                leaf(1)

        outer = context_api.get_current()
        failed = 0
        limit = sys.getrecursionlimit()
        for depth in range(limit - 150, limit):
            for run in (dive, dive_into_a_trajectory):
                try:
                    run(depth)
                except RecursionError:
                    failed += 1
                assert context_api.get_current() is outer
        assert failed > 20
        assert stats().open_spans == 0
