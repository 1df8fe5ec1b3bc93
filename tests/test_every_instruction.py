"""Exceptions of the program at every instruction of our code: they arrive, and leave nothing behind."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

import pytest
from opentelemetry import context as context_api

import otel_rollout
from otel_rollout import annotate, rollout_trace_op
from otel_rollout.integrations.ray import inject
from otel_rollout.testing import InMemorySpanExporter

PACKAGE = f"{Path(otel_rollout.__file__).parent}/"
OWN_THREADS = ("background_thread.py", "background_log.py")
"""Files whose code runs on our own threads, or starts them."""


class Limit(Exception):
    """The exception of a trace function."""


class Injection:
    """Raises once, at an event of our code that is counted from the beginning: a call, a line, an instruction, a return.

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
        frame.f_trace_opcodes = True
        if self.is_counted(frame, event):
            if self.left == 0:
                self.place = f"{event} at {path.removeprefix(PACKAGE)}:{frame.f_lineno} in {frame.f_code.co_name}"
                self.left = -1
                raise Limit
            self.left -= 1
        return self

    def is_counted(self, frame: FrameType, event: str) -> bool:
        """Return True for an event at which an exception is raised; not at returns of `with`'s methods, as they say."""
        if event == "exception" or self.left < 0:
            return False
        # Python has entered what these return from, and their caller doesn't know it yet: docs/explanation/capture.md.
        is_window = frame.f_code.co_name in ("__enter__", "__exit__", "__aenter__", "__aexit__")
        return not is_window or event not in ("call", "return", "line", "opcode")


def exhaust(run: Callable[[], Any], check: Callable[[], None]) -> int:
    """Run something again and again, with an exception at one event after another; return the number of events."""
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
    try:
        fail(1)
    except ValueError:
        pass


VALUE = {"messages": [{"role": "user", "content": "x" * 20}], "n": 1}

FORMS: dict[str, Callable[[], Any]] = {
    "sync": lambda: tool(VALUE),
    "llm": lambda: generate(VALUE),
    "failing": _catch_own,
    "coroutine": lambda: drive(later(VALUE)),
    "generator": lambda: list(count(2)),
    "async generator": lambda: drive(_consume()),
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
        assert otel_rollout.flush(30)
        assert [exporter.spans[-1].parent for exporter in exporters] == [None, None]
