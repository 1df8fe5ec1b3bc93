"""An exception of a signal handler in the middle of tracing: it passes, and leaves nothing current."""

from __future__ import annotations

import dis
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from types import FrameType, FunctionType
from typing import Any

import pytest
from opentelemetry import context as context_api

import otel_rollout
from otel_rollout import rollout_trace_attr
from otel_rollout.record import OpenTrajectories, OpenTrajectory, Trajectory, call, runtime, trajectory
from otel_rollout.record.call import Call
from otel_rollout.testing import InMemorySpanExporter
from tests.ops import add, count_to, multiply, stream

pytestmark = pytest.mark.every_python


class Interrupt(BaseException):
    """Comes at any instruction."""


class Interrupting:
    """A function that is interrupted the first time, before or after it has done its work."""

    def __init__(self, function: Callable[..., Any], *, is_done: bool) -> None:
        self.function = function
        self.is_done = is_done
        self.interrupts = 0

    def __call__(self, *args: Any) -> Any:
        """Raise, the first time."""
        if self.interrupts:
            return self.function(*args)
        if self.is_done:
            self.function(*args)
        self.interrupts += 1
        raise Interrupt


class InterruptAt:
    """Interrupts functions once, at an instruction that is counted from their first call.

    Args:
        number: The instruction's number, from 0.
        functions: The functions.
    """

    def __init__(self, number: int, functions: tuple[Any, ...]) -> None:
        self.left = number
        self.codes = [each.__code__ for each in functions if isinstance(each, FunctionType)]
        self.is_done = False

    def __enter__(self) -> None:
        self.before = sys.gettrace()
        sys.settrace(self._trace)

    def __exit__(self, *_: object) -> None:
        sys.settrace(self.before)

    def _trace(self, frame: FrameType, event: str, _: Any) -> Any:
        if frame.f_code not in self.codes:
            return None
        frame.f_trace_opcodes = True
        # No signal's handler runs just before a function returns.
        is_return = frame.f_code.co_code[frame.f_lasti] == dis.opmap["RETURN_VALUE"]
        if event == "opcode" and not is_return and not self.is_done:
            self.left -= 1
            if self.left < 0:
                self.is_done = True
                raise Interrupt
        return self._trace


def interrupted(run: Callable[[], Any], *functions: Any) -> Iterator[None]:
    """Run something again and again, interrupted at one instruction after another; yield after each."""
    number = 0
    while True:
        at = InterruptAt(number, functions)
        with at, suppress(Interrupt):
            run()
        if not at.is_done:
            assert number > 10
            return
        number += 1
        yield


def running() -> list[OpenTrajectory]:
    """Return what delivery is told."""
    assert runtime.pipeline is not None
    return runtime.pipeline.open_trajectories.running_for(0)


async def _consume() -> None:
    async for _ in stream(1):
        pass


def _in_this_context(coroutine: Any) -> None:
    """Run a coroutine that yields to nobody in particular, without a task and its own context."""
    try:
        while True:
            coroutine.send(None)
    except StopIteration:
        pass


CALLS: dict[str, Callable[[], Any]] = {
    "sync": lambda: add(1),
    "coroutine": lambda: _in_this_context(multiply(1, 2)),
    "generator": lambda: list(count_to(1)),
    "async generator": lambda: _in_this_context(_consume()),
}


@pytest.mark.parametrize("is_done", [False, True], ids=["before", "after"])
class TestInterruptions:
    """Interruptions while the context changes."""

    @pytest.mark.parametrize("step", ["enter", "leave"])
    @pytest.mark.parametrize("form", CALLS)
    def test_op(
        self, rollout_spans: InMemorySpanExporter, monkeypatch: pytest.MonkeyPatch, form: str, step: str, is_done: bool
    ) -> None:
        """The exception passes, what was current is current again, and the next call is no child of this one."""
        context = context_api.get_current()
        interrupting = Interrupting(getattr(call, step), is_done=is_done)
        monkeypatch.setattr(call, step, interrupting)
        with pytest.raises(Interrupt):
            CALLS[form]()
        assert interrupting.interrupts == 1
        assert context_api.get_current() is context
        add(1)
        assert otel_rollout.flush(10)
        assert rollout_spans.spans[-1].parent is None

    @pytest.mark.parametrize("form", ["generator", "async generator"])
    def test_resumed_generator(
        self, rollout_spans: InMemorySpanExporter, monkeypatch: pytest.MonkeyPatch, form: str, is_done: bool
    ) -> None:
        """Nor does a generator leave anything current that is interrupted as it goes on."""
        monkeypatch.setattr(call, "attach", Interrupting(call.attach, is_done=is_done))
        context = context_api.get_current()
        with pytest.raises(Interrupt):
            CALLS[form]()
        assert context_api.get_current() is context

    @pytest.mark.parametrize("step", ["enter", "leave"])
    def test_trajectory(
        self, rollout_spans: InMemorySpanExporter, monkeypatch: pytest.MonkeyPatch, step: str, is_done: bool
    ) -> None:
        """It passes out of a trajectory's beginning and end too, and what follows is not part of the trajectory."""
        context = context_api.get_current()
        monkeypatch.setattr(trajectory, step, Interrupting(getattr(trajectory, step), is_done=is_done))
        with pytest.raises(Interrupt), rollout_trace_attr(1, 1, 1):
            pass
        assert context_api.get_current() is context


class TestEveryInstruction:
    """Interruptions between any two instructions of the code that knows what runs."""

    def test_start_of_a_trajectory(self, rollout_spans: InMemorySpanExporter) -> None:
        """A trajectory whose start was interrupted is not told as a running one, and is not current."""
        context = context_api.get_current()
        handles: list[Trajectory] = []

        def start() -> None:
            # The handle stays: nothing else forgets the trajectory.
            handles.append(rollout_trace_attr(1, 1, 1))
            with handles[-1]:
                pass

        for _ in interrupted(start, Trajectory._start, OpenTrajectories.started):
            assert context_api.get_current() is context
            assert running() == []

    def test_end_of_a_trajectory(self, rollout_spans: InMemorySpanExporter) -> None:
        """A trajectory whose end was interrupted is delivered, and not told as a running one."""

        def run() -> None:
            with rollout_trace_attr(1, 1, 1):
                pass

        for number, _ in enumerate(interrupted(run, Trajectory._finish, OpenTrajectories.ended)):
            assert running() == []
            assert otel_rollout.flush(10)
            assert len(rollout_spans.spans) == number + 1

    @pytest.mark.parametrize("form", CALLS)
    def test_start_of_an_op(self, rollout_spans: InMemorySpanExporter, form: str) -> None:
        """A trajectory does not keep an op whose start was interrupted, nor is it current."""
        kept: list[int] = []

        def run() -> None:
            with rollout_trace_attr(1, 1, 1) as handle:
                context = context_api.get_current()
                try:
                    CALLS[form]()
                finally:
                    assert context_api.get_current() is context
                    kept.append(len(handle._state.open_ops))  # type: ignore[union-attr]  # it is traced

        for _ in interrupted(run, Call.start):
            assert kept.pop() == 0

    @pytest.mark.parametrize("form", CALLS)
    def test_end_of_an_op(self, rollout_spans: InMemorySpanExporter, form: str) -> None:
        """An op whose end was interrupted is delivered, and not told as the one that its trajectory is in."""
        told: list[list[OpenTrajectory]] = []

        def run() -> None:
            with rollout_trace_attr(1, 1, 1):
                try:
                    CALLS[form]()
                finally:
                    told.append(running())

        for number, _ in enumerate(interrupted(run, Call._end), 1):
            [found] = told.pop()
            assert (found.ops, found.op) == (0, None)
            assert otel_rollout.flush(10)
            assert len(rollout_spans.spans) == 2 * number
