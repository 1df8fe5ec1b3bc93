"""Exceptions of the program at every instruction of our code: they arrive, and leave nothing behind."""

from __future__ import annotations

import dis
import gc
import inspect
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from contextvars import ContextVar, copy_context
from pathlib import Path
from types import FrameType
from typing import Any

import pytest
from opentelemetry import context as context_api
from opentelemetry.sdk.trace import TracerProvider

import otel_rollout
from otel_rollout import annotate, rollout_trace_attr, rollout_trace_op, subagent
from otel_rollout.hooks import Hook, Observer, observe
from otel_rollout.hooks.carrier import extract, inject
from otel_rollout.hooks.executor import _InTrajectory
from otel_rollout.record import runtime
from otel_rollout.testing import InMemorySpanExporter

PACKAGE = f"{Path(otel_rollout.__file__).parent}/"
EACH_INSTRUCTION = (
    "call.py",
    "op.py",
    "context.py",
    "trajectory.py",
    "subagent.py",
    "exporter_queue.py",
    "pipeline.py",
    "patching.py",
)
"""Files with what must be undone; in the others, each line counts."""
OWN_THREADS = ("background_thread.py", "background_log.py")
"""Files whose code runs on our own threads, or starts them."""


class Limit(Exception):
    """The exception of a trace function."""


class Injection:
    """Raises once, at an event of our code, counted from 0: a call, a line, an instruction or a return.

    Args:
        number: The event's number, from 0.
    """

    def __init__(self, number: int) -> None:
        self.left = number
        self.place = ""

    def __call__(self, frame: FrameType, event: str, _: Any) -> Any:
        """Trace a frame."""
        path = frame.f_code.co_filename
        if not path.startswith(PACKAGE) or path.endswith(OWN_THREADS):
            return None
        frame.f_trace_opcodes = path.endswith(EACH_INSTRUCTION)
        if self.is_counted(frame, event):
            if self.left == 0:
                self.place = f"{event} at {path.removeprefix(PACKAGE)}:{frame.f_lineno} in {frame.f_code.co_name}"
                self.left = -1
                raise Limit
            self.left -= 1
        return self

    def is_counted(self, frame: FrameType, event: str) -> bool:
        """Return True for an event at which an exception is raised."""
        if event == "exception" or self.left < 0:
            return False
        # Between Python's `with` and its methods nothing can be undone: docs/explanation/capture.md says so.
        if frame.f_lasti >= 0 and frame.f_code.co_code[frame.f_lasti] == dis.opmap["NOP"]:
            # Python 3.11 has no handler for its line of an inner `try`; nothing but a trace function raises there.
            return False
        is_generator = frame.f_code.co_flags & (inspect.CO_GENERATOR | inspect.CO_ASYNC_GENERATOR)
        if is_generator and (event == "return" or (event == "call" and frame.f_lasti >= 0)):
            # A generator that a trace function interrupts as it pauses or goes on is lost, traced or not.
            return False
        if event != "call" and frame.f_code.co_name == "put":
            # Between the counts of a queue: no signal handler and no other thread's exception comes there.
            return False
        # Python loses what comes up in a finalizer, whoever wrote it; ours closes a coroutine that nobody awaits.
        return frame.f_code.co_name not in ("__enter__", "__exit__", "__aenter__", "__aexit__", "__del__")


def exhaust(run: Callable[[], Any], check: Callable[[], None]) -> int:
    """Run something again and again, with an exception at one event after another; return the number of events.

    In a thread of its own: CPython may take an exception that a trace function raises in an `except` clause for the
    thread's current one for ever.
    """
    # What the collector ends here, of an earlier test, is not interrupted instead.
    gc.collect()
    gc.disable()
    try:
        with ThreadPoolExecutor(1) as pool:
            return pool.submit(copy_context().run, _exhaust, run, check).result()
    finally:
        gc.enable()


def _exhaust(run: Callable[[], Any], check: Callable[[], None]) -> int:
    number = 0
    outer = context_api.get_current()
    while True:
        injection = Injection(number)
        has_passed = False
        sys.settrace(injection)
        try:
            run()
        except Limit:
            has_passed = True
        finally:
            sys.settrace(None)
        if not injection.place:
            return number
        assert has_passed, f"swallowed: {injection.place}"
        assert context_api.get_current() is outer, f"left current: {injection.place}"
        open_spans = otel_rollout.stats().open_spans
        assert open_spans == 0, f"{open_spans} spans left open: {injection.place}"
        try:
            check()
        except AssertionError as error:
            raise AssertionError(f"{injection.place}: {error}") from error
        number += 1


@rollout_trace_op
def tool(value: Any) -> Any:
    """Return the value."""
    return value


@rollout_trace_op(kind="LLM")
def generate(messages: Any) -> Any:
    """Answer."""
    return {"usage": {"input_tokens": 1, "output_tokens": 1}, "text": "a"}


@rollout_trace_op
def fail(value: Any) -> Any:
    """Fail."""
    raise ValueError(value)


@rollout_trace_op
async def later(value: Any) -> Any:
    """Return the value."""
    return value


@rollout_trace_op
def count(n: int) -> Any:
    """Count."""
    yield from range(n)


@rollout_trace_op
async def stream(n: int) -> Any:
    """Count."""
    for number in range(n):
        yield number


@rollout_trace_op(follow_result=True)
def followed(n: int) -> Any:
    """An op that returns an iterator."""
    return iter(range(n))


@rollout_trace_op
def disguised(value: Any) -> Any:
    """Return a coroutine."""

    async def inner() -> Any:
        return value

    return inner()


def drive(coroutine: Any) -> None:
    """Run a coroutine in this context."""
    try:
        coroutine.send(None)
    except StopIteration:
        pass
    finally:
        coroutine.close()


async def _consume() -> None:
    async for _ in stream(2):
        pass


def _catch_own() -> None:
    with suppress(ValueError):
        fail(1)


VALUE = {"messages": [{"role": "user", "content": "x" * 20}], "n": 1}

FORMS: dict[str, Callable[[], Any]] = {
    "sync": lambda: tool(VALUE),
    "llm": lambda: generate(VALUE),
    "failing": _catch_own,
    "coroutine": lambda: drive(later(VALUE)),
    "generator": lambda: list(count(2)),
    "async generator": lambda: drive(_consume()),
    "followed": lambda: list(followed(2)),
    "disguised": lambda: drive(disguised(1)),
    "annotate": lambda: annotate(reward=1.0, output=VALUE, status="truncated", mine=[1, 2]),
    "inject": inject,
}


@pytest.fixture
def exporters() -> list[InMemorySpanExporter]:
    """Two exporters of a running pipeline."""
    made = [InMemorySpanExporter(), InMemorySpanExporter()]
    otel_rollout.init("p", "e", backend=list(made))
    return made


def check_counts() -> None:
    """Check that each exporter accounts for each span, and that the next op is a root of its own, without a trace."""
    queues = list(otel_rollout.stats().exporters.values())
    recorded = {queue.recorded for queue in queues}
    assert len(recorded) == 1, f"exporters have {recorded} spans"


@pytest.mark.filterwarnings("ignore:coroutine .* was never awaited")
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
class TestEveryInstruction:
    """A trace function that raises, as a sandbox's step limit does."""

    @pytest.mark.parametrize("form", FORMS)
    def test_in_an_op(self, exporters: list[InMemorySpanExporter], form: str) -> None:
        """The exception arrives, the context is the caller's, no span is left open, and all exporters agree."""
        assert exhaust(FORMS[form], check_counts) > 20
        tool(1)
        otel_rollout.flush(30)
        assert [exporter.spans[-1].parent for exporter in exporters] == [None, None]

    def test_in_a_trajectory(self, exporters: list[InMemorySpanExporter]) -> None:
        """So it is in a trajectory with ops; the trajectory is delivered or was never begun."""

        def run() -> None:
            with rollout_trace_attr(step=1, sample_index=2) as trajectory:
                tool(VALUE)
                annotate(reward=1.0)
            assert trajectory.url is None

        assert exhaust(run, check_counts) > 20
        assert runtime.pipeline is not None
        assert runtime.pipeline.open_trajectories.running_for(0) == []

    def test_in_a_subagent(self, exporters: list[InMemorySpanExporter]) -> None:
        """So it is in a block of `subagent`, which one object serves again and again."""
        reader = subagent("reader")

        def run() -> None:
            with reader:
                tool(VALUE)

        assert exhaust(run, check_counts) > 20
        assert reader._calls == []

    def test_in_silence(self, exporters: list[InMemorySpanExporter]) -> None:
        """So it is with `trace=False`, and after it ops are traced."""

        def run() -> None:
            with rollout_trace_attr(trace=False):
                tool(VALUE)

        assert exhaust(run, check_counts) > 10
        tool(1)
        otel_rollout.flush(30)
        assert all(exporter.spans[-1].name == "tool" for exporter in exporters)

    def test_in_a_continued_trajectory(self, exporters: list[InMemorySpanExporter]) -> None:
        """So it is where an actor continues a trajectory of another process."""
        with rollout_trace_attr(step=1):
            carrier = inject()

        def run() -> None:
            with extract(carrier):
                tool(VALUE)

        assert exhaust(run, check_counts) > 10

    def test_on_an_applications_provider(self) -> None:
        """So it is with spans of an application's provider, outside the SDK's own code."""
        otel_rollout.init("p", "e", backend=InMemorySpanExporter(), tracer_provider=TracerProvider())
        assert exhaust(FORMS["sync"], lambda: None) > 20

    @pytest.mark.parametrize("form", ["sync", "coroutine"])
    def test_in_a_hook(self, exporters: list[InMemorySpanExporter], form: str) -> None:
        """So it is in a hooked function, whose observer is closed as often as it was made."""
        entered: set[int] = set()
        variable: ContextVar[Any] = ContextVar("variable", default=None)

        class Counting(Observer):
            opens_span = True

            def enter(self) -> None:
                entered.add(1)

            def leave(self) -> None:
                entered.discard(1)

        Counting.variable = variable
        hook = Hook("tests", "function", "nothing is traced", lambda call: Counting(), captures=(True, True))

        def function(value: Any) -> Any:
            return value

        async def coroutine_function(value: Any) -> Any:
            return value

        hooked = observe(coroutine_function if form == "coroutine" else function, hook, is_method=False)

        def check() -> None:
            check_counts()
            assert (variable.get(), entered) == (None, set())

        assert exhaust(lambda: drive(hooked(1)) if form == "coroutine" else hooked(1), check) > 20

    def test_in_an_executor(self, exporters: list[InMemorySpanExporter]) -> None:
        """So it is in a function that an executor's thread runs in its caller's trajectory."""
        variable: ContextVar[Any] = ContextVar("variable", default=None)
        token = variable.set(1)
        with rollout_trace_attr(step=1):
            taken = _InTrajectory(lambda: None, (variable,))
        variable.reset(token)

        def check() -> None:
            assert variable.get() is None

        assert exhaust(taken, check) > 5
