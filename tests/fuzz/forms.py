"""Ops of every form, called with any value: what the program sees must be what it would see without tracing."""

from __future__ import annotations

import contextlib
import contextvars
import types
from collections.abc import Callable
from typing import Any

from opentelemetry import trace

import otel_rollout
from otel_rollout import rollout_trace_op
from tests.fuzz.watch import WATCH

__all__ = ["ERRORS", "FORMS", "SUSPENDED", "Turn", "abandon", "checked", "places"]


class Turn:
    """What one call takes, and what the function then does.

    Args:
        value: The argument.
        result: What the function returns, or yields and then returns.
        error: What it raises instead.
    """

    def __init__(self, value: Any, result: Any, error: BaseException | None = None) -> None:
        self.value = value
        self.result = result
        self.error = error
        self.runs = 0

    def body(self) -> Any:
        """Do it."""
        self.runs += 1
        if self.error is not None:
            raise self.error
        return self.result


class UnreadableError(Exception):
    """Its text is code."""

    def __str__(self) -> str:
        return self._text("__str__")

    def __repr__(self) -> str:
        return self._text("__repr__")

    def _text(self, method: str) -> str:
        if WATCH.called("UnreadableError", method):
            raise RuntimeError("hostile")
        return "unreadable"


class Panic(BaseException):
    """No `Exception`."""


ERRORS: tuple[Callable[[Any], BaseException], ...] = (
    lambda value: ValueError("no"),
    lambda value: ValueError(value, {"with": value}),
    KeyError,
    UnreadableError,
    Panic,
    lambda value: KeyboardInterrupt(),
    lambda value: SystemExit(3),
    lambda value: GeneratorExit(),
    lambda value: OSError(2, "no", "\ud800"),
)
_turn: list[Turn] = []
"""The one that the functions follow, last; set, and never taken back: a signal may come anywhere."""


def _body() -> Any:
    return _turn[-1].body()


@rollout_trace_op
def sync(value: Any, *values: Any, key: Any = None, **options: Any) -> Any:
    """Return."""
    return _body()


@rollout_trace_op(kind="LLM", name="generate")
def llm(messages: Any, model: Any = None, prompt_ids: Any = None) -> Any:
    """Return, as a language model."""
    return _body()


@rollout_trace_op(kind="TOOL")
async def coroutine(value: Any, key: Any = None) -> Any:
    """Return, later."""
    await _pause()
    return _body()


@rollout_trace_op
def generator(value: Any) -> Any:
    """Yield, then return."""
    yield _turn[-1].result
    return _body()


@rollout_trace_op
async def async_generator(value: Any) -> Any:
    """Yield twice, later."""
    yield _turn[-1].result
    await _pause()
    yield _body()


class Agent:
    """Methods, of an object that has anything as a field."""

    def __init__(self, value: Any) -> None:
        self.value = value

    @rollout_trace_op
    def method(self, value: Any) -> Any:
        """Return."""
        return _body()

    @rollout_trace_op
    @classmethod
    def of_class(cls, value: Any) -> Any:
        """Return."""
        return _body()


@types.coroutine
def _pause() -> Any:
    yield


def _run(awaitable: Any) -> Any:
    """Run a coroutine that awaits nothing but `_pause`."""
    try:
        while True:
            awaitable.send(None)
    except StopIteration as stop:
        return stop.value
    finally:
        awaitable.close()


def _in_task(call: Callable[[], Any]) -> Any:
    """Call in a context of its own, as asyncio's tasks run."""
    return contextvars.copy_context().run(call)


def _iterated(made: Any, turn: Turn) -> Any:
    first = next(made)
    if first is not turn.result:
        WATCH.found("a generator yields another object than its function")
    try:
        made.send(None)
    except StopIteration as stop:
        return stop.value
    return None


def _iterated_async(made: Any, turn: Turn) -> Any:
    if _run(made.__anext__()) is not turn.result:
        WATCH.found("an async generator yields another object than its function")
    last = _run(made.__anext__())
    _run(made.aclose())
    return last


def _in_trajectory(turn: Turn) -> Any:
    value = turn.value
    with otel_rollout.rollout_trace_attr(sample_index=value, step=value, rollout_n=value, name=value, validate=value):
        otel_rollout.annotate(reward=value, status=value, input=value, output=value, free=value, other=[value])
        span = trace.get_current_span()
        span.set_attribute("attribute", value)
        span.set_attribute("attributes", [value, "text"])
        span.add_event("event", {"key": value, "list": (value,)})
        return sync(value)


FORMS: dict[str, Callable[[Turn], Any]] = {
    "sync": lambda turn: sync(turn.value),
    "arguments": lambda turn: sync(turn.value, turn.value, key=turn.value, other=turn.value),
    "llm": lambda turn: llm(turn.value, model=turn.value, prompt_ids=turn.value),
    "coroutine": lambda turn: _in_task(lambda: _run(coroutine(turn.value, key=turn.value))),
    "generator": lambda turn: _iterated(generator(turn.value), turn),
    "async generator": lambda turn: _in_task(lambda: _iterated_async(async_generator(turn.value), turn)),
    "method": lambda turn: Agent(turn.value).method(turn.value),
    "class method": lambda turn: Agent.of_class(turn.value),
    "trajectory": _in_trajectory,
}
"""Each calls one op, in a trajectory or not, and returns what the op returned."""


SUSPENDED: tuple[Callable[[Any], Any], ...] = (generator, async_generator, coroutine)


def abandon(make: Callable[[Any], Any], turn: Turn) -> None:
    """Begin an op of `SUSPENDED`, and leave it to the garbage collector."""
    holder = types.SimpleNamespace()
    holder.itself, holder.made = holder, make(turn.value)
    _turn[:] = [turn]
    with contextlib.suppress(StopIteration):
        if make is generator:
            next(holder.made)
        else:
            (holder.made if make is coroutine else holder.made.__anext__()).send(None)


def checked(form: str, turn: Turn, *, allowed: type[BaseException] | None = None) -> BaseException | None:
    """Call an op, and note what is not as the function alone would have it.

    Args:
        form: Which of `FORMS`.
        turn: What is called.
        allowed: An exception that may come from elsewhere: a signal handler's.

    Returns:
        The exception of this kind, if one came.
    """
    raised: BaseException | None = None
    result: Any = None
    _turn[:] = [turn]
    with WATCH.window():
        try:
            result = FORMS[form](turn)
        except BaseException as error:  # whatever comes is looked at
            raised = error
    if allowed is not None and type(raised) is allowed:
        return raised
    if turn.error is not None:
        if raised is None:
            WATCH.found(f"{form}: the user's exception did not come")
        elif raised is not turn.error:
            WATCH.found(f"{form}: {type(raised).__name__} came in the place of the user's exception", places(raised))
    elif raised is not None:
        WATCH.found(f"{form}: {type(raised).__name__} came from a call that returns", places(raised))
    elif result is not turn.result:
        WATCH.found(f"{form}: the result is not the user's object")
    if turn.runs != 1 and raised is None:
        WATCH.found(f"{form}: the function ran {turn.runs} times")
    return None


def places(error: BaseException) -> str:
    """Return the lines that an exception came through, the last ones."""
    passed = []
    traceback = error.__traceback__
    while traceback is not None:
        code = traceback.tb_frame.f_code
        passed.append(f"{code.co_filename.rpartition('/')[2]}:{traceback.tb_lineno}")
        traceback = traceback.tb_next
    return " > ".join(passed[-6:])
