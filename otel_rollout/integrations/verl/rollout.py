"""What is known of one trajectory of verl while it runs, and how it reaches the trajectory's root span."""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from contextlib import AbstractContextManager
from contextvars import ContextVar
from types import TracebackType
from typing import Any, ClassVar, Final

from otel_rollout import semconv
from otel_rollout.capture import trajectory
from otel_rollout.integrations.verl.faults import is_fault, report
from otel_rollout.integrations.verl.hook import Call, Hook, Observer
from otel_rollout.integrations.verl.identity import Identity

__all__ = ["HOOKS", "Rollout", "current_rollout", "rollout_variable"]

_ARGUMENTS: Final = ("sample_index", "step", "rollout_n", "name", "validate", "trace")


class Rollout:
    """One trajectory, shared by all that runs inside it.

    Args:
        identity: Which trajectory it is.
        is_traced: Whether it is one of those that are traced.
        attributes: What else is known at its start, by attribute key.
        messages: The raw prompt.
        tokenizer: A tokenizer that nobody but the delivery thread uses, if there is one.
    """

    __slots__ = (
        "attributes",
        "cached_tokens",
        "identity",
        "is_entered",
        "is_traced",
        "last_action",
        "messages",
        "sequences",
        "stop_reason",
        "tokenizer",
        "tool_calls",
        "tool_errors",
    )

    def __init__(
        self, identity: Identity, is_traced: bool, attributes: dict[str, Any], messages: Any, tokenizer: Any = None
    ) -> None:
        self.identity = identity
        self.is_traced = is_traced
        self.attributes = attributes
        self.messages = messages
        self.tokenizer = tokenizer
        self.is_entered = False
        self.tool_calls = 0
        self.tool_errors = 0
        self.cached_tokens: int | None = None
        self.stop_reason: str | None = None
        self.last_action = ""
        self.sequences: dict[str, list[tuple[int, int]]] = {}
        """By request id: which ids the engine has seen and made, which need not be recorded once more: for each turn
        how many there were after it, and a hash of those that came with it. Not the ids themselves: those of all
        running trajectories would be gigabytes."""


rollout_variable: Final[ContextVar[Rollout | None]] = ContextVar("otel-rollout-verl-rollout", default=None)


def current_rollout() -> Rollout | None:
    """Return the trajectory that this code runs in; None outside one of verl's agent loops."""
    return rollout_variable.get()


class _Attributes(Observer):
    """`rollout_trace_attr`: what it returns also makes a trajectory."""

    wraps: ClassVar[bool] = True

    def __init__(self, call: Call) -> None:
        self._call = call

    def wrapped(self, result: Any) -> Any:
        """Return verl's context manager with our trajectory inside."""
        kind = type(result)
        if not hasattr(kind, "__enter__") or not hasattr(kind, "__exit__"):
            raise TypeError(f"rollout_trace_attr returns {kind.__name__}")
        return _Traced(
            result, {name: self._call.arguments[name] for name in _ARGUMENTS if name in self._call.arguments}
        )


class _Traced:
    """What verl's `rollout_trace_attr` returns, and a trajectory inside it."""

    def __init__(self, verls: Any, arguments: dict[str, Any]) -> None:
        self._verls = verls
        self._arguments = arguments
        self._trajectory: AbstractContextManager[None] | None = None

    def __getattr__(self, name: str) -> Any:
        return getattr(self._verls, name)

    def __call__(self, function: Callable[..., Any]) -> Any:
        again = getattr(self._verls, "_recreate_cm", None)
        if again is None:
            return self._verls(function)

        @functools.wraps(function)
        def traced(*args: Any, **kwargs: Any) -> Any:
            # One for each call, as `contextlib.ContextDecorator` has it.
            with _Traced(again(), self._arguments):
                return function(*args, **kwargs)

        return traced

    def __enter__(self) -> Any:
        value = self._verls.__enter__()
        try:
            self._trajectory = _trajectory(self._arguments)
            self._trajectory.__enter__()
        except BaseException as error:
            if not is_fault(error):
                self._verls.__exit__(*sys.exc_info())
                raise
            _report(error)
        return value

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> Any:
        ours, self._trajectory = self._trajectory, None
        try:
            if ours is not None:
                ours.__exit__(kind, error, traceback)
        except BaseException as fault:
            if not is_fault(fault):
                self._verls.__exit__(*sys.exc_info())
                raise
            _report(fault)
        return self._verls.__exit__(kind, error, traceback)


def _trajectory(arguments: dict[str, Any]) -> AbstractContextManager[None]:
    """Return the trajectory that begins here; the first one inside an agent loop has sound numbers."""
    rollout = current_rollout()
    if rollout is None:
        return trajectory.rollout_trace_attr(**arguments)
    if not rollout.is_entered:
        rollout.is_entered = True
        step, sample_index, rollout_n, *_ = rollout.identity
        numbers = {"step": step, "sample_index": sample_index, "rollout_n": rollout_n}
        arguments = {**arguments, **numbers, "trace": rollout.is_traced}
    manager = trajectory.rollout_trace_attr(**arguments)
    return _Described(manager, rollout) if arguments.get("trace", True) else manager


class _Described(AbstractContextManager[None]):
    """A trajectory whose root says from its start what is known of it."""

    def __init__(self, manager: AbstractContextManager[None], rollout: Rollout) -> None:
        self._manager = manager
        self._rollout = rollout

    def __enter__(self) -> None:
        self._manager.__enter__()
        messages = self._rollout.messages
        content = {"messages": list(messages)} if messages is not None else None
        trajectory.annotate(input=content, **self._rollout.attributes)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> bool | None:
        rollout = self._rollout
        if rollout.tool_calls:
            counts: dict[str, Any] = {semconv.TOOL_CALLS: rollout.tool_calls, semconv.TOOL_ERRORS: rollout.tool_errors}
            trajectory.annotate(**counts)
        return self._manager.__exit__(kind, error, traceback)


_LOST: Final = "trajectories are not traced"


def _report(error: BaseException) -> None:
    report("rollout_trace_attr", _LOST, error)


HOOKS: Final = (Hook("verl.utils.rollout_trace", "rollout_trace_attr", _LOST, _Attributes),)
