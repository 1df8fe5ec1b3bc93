"""The program's exceptions pass through tracing unchanged and at once; a fault of ours never reaches the program."""

from __future__ import annotations

import asyncio
import ctypes
import functools
import logging
import signal
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from opentelemetry.trace import get_current_span

import otel_rollout
from otel_rollout import annotate, rollout_trace_attr, rollout_trace_op, subagent
from otel_rollout.guard import is_programs
from otel_rollout.record import call as call_module
from otel_rollout.record import trajectory as trajectory_module
from otel_rollout.testing import InMemorySpanExporter

pytestmark = pytest.mark.every_python


class TimeIsUp(ValueError):
    """Raised by a grader's alarm."""


class Stop(Exception):
    """Raised in a thread by another one."""


@pytest.fixture
def alarm() -> Iterator[Callable[[], None]]:
    """Return a function in the middle of which the alarm comes."""

    def on_alarm(number: int, frame: object) -> None:
        raise TimeIsUp("time is up")

    previous = signal.signal(signal.SIGALRM, on_alarm)
    yield lambda: signal.raise_signal(signal.SIGALRM)
    signal.signal(signal.SIGALRM, previous)


def stop_from_another_thread() -> None:
    """Let the interpreter raise `Stop` here, as another thread asks it to."""
    ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(threading.get_ident()), ctypes.py_object(Stop))
    for _ in range(100_000):
        pass


def interrupted() -> None:
    """Raise what Ctrl-C raises."""
    raise KeyboardInterrupt


def cancelled() -> None:
    """Raise what a cancelled task raises."""
    raise asyncio.CancelledError


def exiting() -> None:
    """Raise what `sys.exit` raises."""
    raise SystemExit(3)


OPS = ["function", "coroutine", "generator", "async generator", "returned coroutine", "task"]
FORMS = [*OPS, "trajectory", "subagent"]


def run_form(form: str, inside: Callable[[], Any]) -> Any:
    """Run one call of a form of op, whose body calls `inside`."""

    def function() -> Any:
        return inside()

    async def coroutine() -> Any:
        await asyncio.sleep(0)
        return inside()

    def generator() -> Any:
        yield 1
        yield inside()

    async def async_generator() -> Any:
        yield 1
        yield inside()

    async def consume(items: Any) -> Any:
        return [item async for item in items]

    async def spawn() -> Any:
        return await rollout_trace_op(lambda: asyncio.ensure_future(coroutine()), name="op")()

    if form == "function":
        return rollout_trace_op(function)()
    if form == "coroutine":
        return asyncio.run(rollout_trace_op(coroutine)())
    if form == "generator":
        return list(rollout_trace_op(generator)())
    if form == "async generator":
        return asyncio.run(consume(rollout_trace_op(async_generator)()))
    if form == "returned coroutine":
        return asyncio.run(rollout_trace_op(functools.partial(_call, coroutine))())
    if form == "task":
        return asyncio.run(spawn())
    with rollout_trace_attr(1) if form == "trajectory" else subagent("helper"):
        return inside()


class TestInTheFunction:
    """What the decorated function raises."""

    @pytest.mark.parametrize("form", FORMS)
    @pytest.mark.parametrize(
        ("raising", "kind"),
        [
            (interrupted, KeyboardInterrupt),
            (cancelled, asyncio.CancelledError),
            (exiting, SystemExit),
            (stop_from_another_thread, Stop),
        ],
    )
    def test_it_passes(
        self, rollout_spans: InMemorySpanExporter, form: str, raising: Callable[[], None], kind: type[BaseException]
    ) -> None:
        """Its exception comes out, no span stays open, and none is current."""
        with pytest.raises(kind):
            run_form(form, raising)
        assert otel_rollout.stats().open_spans == 0
        assert not get_current_span().get_span_context().is_valid


class TestInOurCode:
    """What comes while our own code runs, on the caller's thread."""

    @pytest.mark.parametrize("form", OPS)
    @pytest.mark.parametrize("side", ["capture_inputs", "capture_output"])
    def test_an_alarm_at_once(
        self, rollout_spans: InMemorySpanExporter, monkeypatch: pytest.MonkeyPatch, alarm: Any, form: str, side: str
    ) -> None:
        """A grader's alarm during a snapshot of either side passes, whatever its class, and the span is closed."""
        taken = call_module.Operation.capture

        def capture(operation: Any, name: str, *rest: Any) -> Any:
            if name == side:
                alarm()
            return taken(operation, name, *rest)

        monkeypatch.setattr(call_module.Operation, "capture", capture)
        is_task = form == "task" and side == "capture_output"
        if is_task:
            # The event loop calls us at the end of a task, and reports what comes there.
            monkeypatch.setattr(asyncio.BaseEventLoop, "call_exception_handler", lambda loop, context: None)
            run_form(form, lambda: None)
        else:
            with pytest.raises(TimeIsUp, match="time is up"):
                run_form(form, lambda: None)
        assert otel_rollout.stats().open_spans == 0
        assert otel_rollout.stats().internal_errors == {}
        assert not get_current_span().get_span_context().is_valid

    @pytest.mark.parametrize("at", ["_start", "_finish"])
    def test_an_alarm_in_a_trajectory(
        self, rollout_spans: InMemorySpanExporter, monkeypatch: pytest.MonkeyPatch, alarm: Any, at: str
    ) -> None:
        """So does one at the start or the end of a trajectory."""
        monkeypatch.setattr(trajectory_module.Trajectory, at, lambda *args: alarm())
        with pytest.raises(TimeIsUp), rollout_trace_attr(1):
            pass
        assert otel_rollout.stats().open_spans == 0
        assert not get_current_span().get_span_context().is_valid

    def test_another_threads_exception(
        self, rollout_spans: InMemorySpanExporter, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """An exception that another thread raises in ours passes."""
        monkeypatch.setattr(call_module, "take_snapshot", lambda value, budget: stop_from_another_thread())
        with pytest.raises(Stop):
            run_form("function", lambda: None)
        assert otel_rollout.stats().open_spans == 0

    @pytest.mark.parametrize("form", FORMS)
    @pytest.mark.parametrize("error", [KeyError("a bug"), RuntimeError("of a library"), ValueError(), MemoryError()])
    def test_a_fault_of_ours(
        self,
        rollout_spans: InMemorySpanExporter,
        monkeypatch: pytest.MonkeyPatch,
        caplog: pytest.LogCaptureFixture,
        form: str,
        error: Exception,
    ) -> None:
        """A fault in our code costs the span: the program gets its result, one line is logged, and it is counted."""
        monkeypatch.delenv("OTEL_ROLLOUT_RAISE_INTERNAL_ERRORS")

        def fails(*args: Any) -> Any:
            raise error

        monkeypatch.setattr(call_module, "take_snapshot", fails)
        monkeypatch.setattr(trajectory_module.Trajectory, "_make_root", fails)
        monkeypatch.setattr(call_module, "with_frame", fails)
        result = run_form(form, lambda: "result")
        assert result in ("result", [1, "result"])
        assert sum(otel_rollout.stats().internal_errors.values()) >= 1
        assert len(caplog.messages) == 1
        assert otel_rollout.stats().open_spans == 0

    def test_a_fault_of_annotate(
        self, rollout_spans: InMemorySpanExporter, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
    ) -> None:
        """One in `annotate` or `record` costs the values."""
        monkeypatch.delenv("OTEL_ROLLOUT_RAISE_INTERNAL_ERRORS")
        monkeypatch.setattr("otel_rollout.record.annotate.read_number", lambda value: {}["bug"])
        monkeypatch.setattr("otel_rollout.record.recorded.take_snapshot", lambda value, budget: {}["bug"])
        with rollout_trace_attr(1) as trajectory:
            annotate(reward=1)
            assert trajectory.record("step", input=1) is None
        assert otel_rollout.stats().internal_errors == {"annotating": 1, "recording a span": 1}


class TestWhose:
    """The one decision."""

    @pytest.mark.parametrize(
        "handler",
        [
            lambda number, frame: raise_value_error(),
            functools.partial(lambda label, number, frame: raise_value_error(), "label"),
        ],
    )
    def test_handlers_of_any_kind(self, handler: Any) -> None:
        """What a registered handler raises is the program's, also through functions that it calls."""
        previous = signal.signal(signal.SIGALRM, handler)
        try:
            with pytest.raises(ValueError) as raised:
                signal.raise_signal(signal.SIGALRM)
            assert is_programs(raised.value)
        finally:
            signal.signal(signal.SIGALRM, previous)

    @pytest.mark.parametrize("function", [lambda: raise_value_error(), lambda: next(iter([]))])  # noqa: PLW0108
    def test_a_fault_without_arguments(self, function: Callable[[], Any]) -> None:
        """What a `raise` statement raises is no other thread's, nor is the end of an iterator."""
        with pytest.raises(Exception) as raised:
            function()
        assert not is_programs(raised.value)


def _call(function: Callable[[], Any]) -> Any:
    return function()


def raise_value_error() -> None:
    """Raise an exception without arguments."""
    raise ValueError


class TestLogHandlers:
    """The application's log handlers."""

    def test_one_that_raises(self, rollout_spans: InMemorySpanExporter) -> None:
        """What a handler raises doesn't reach the program."""

        class Handler(logging.Handler):
            def emit(self, record: logging.LogRecord) -> None:
                raise RuntimeError("disk is full")

            def handle(self, record: logging.LogRecord) -> bool:
                self.emit(record)
                return True

        handler = Handler()
        logger = logging.getLogger("otel_rollout")
        logger.addHandler(handler)
        try:
            annotate(trajectory="no handle", reward=1.0)
        finally:
            logger.removeHandler(handler)
        assert otel_rollout.stats().lost_annotations == {"unknown trajectory": 1}

    def test_an_alarm_in_one(self, rollout_spans: InMemorySpanExporter, alarm: Any) -> None:
        """An alarm that comes in a handler passes."""

        class Handler(logging.Handler):
            def handle(self, record: logging.LogRecord) -> bool:
                alarm()
                return True

        handler = Handler()
        logger = logging.getLogger("otel_rollout")
        logger.addHandler(handler)
        try:
            with pytest.raises(TimeIsUp):
                annotate(trajectory="no handle", reward=1.0)
        finally:
            logger.removeHandler(handler)
