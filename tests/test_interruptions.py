"""An exception of a signal handler in the middle of tracing: it passes, and leaves nothing current."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from opentelemetry import context as context_api

import otel_rollout
from otel_rollout import rollout_trace_attr
from otel_rollout.capture import call, trajectory
from otel_rollout.testing import InMemorySpanExporter
from tests.ops import add, count_to, multiply, stream


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
