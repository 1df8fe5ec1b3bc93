"""The parts of a hook: a `Hook` names a function and makes an `Observer` for each of its calls.

`patching` runs the observer around the call; an observer that fails doesn't change the call.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from contextvars import ContextVar
from dataclasses import dataclass
from functools import partial
from typing import Any

Arguments = tuple[tuple[Any, ...], dict[str, Any]]
"""Positional and keyword arguments."""


@dataclass(slots=True, eq=False)
class Call:
    """One call of a hooked function.

    Args:
        receiver: `self` or `cls`; None for a function.
        arguments: The arguments by name, with defaults and the content of `**kwargs`.
        args: The positional arguments as given, `self` included.
        kwargs: The keyword arguments as given.
        signature: The function's signature.
        is_known: True if the function's source is recorded, so that arguments may be added.
    """

    receiver: Any
    arguments: dict[str, Any]
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    signature: inspect.Signature
    is_known: bool

    def replaced(self, values: dict[str, Any]) -> Arguments:
        """Return the given arguments with some replaced; names that are no parameters are ignored.

        A keyword stays a keyword: between the caller and the function another wrapper may take nothing else.
        """
        args, kwargs = list(self.args), dict(self.kwargs)
        for position, (name, parameter) in enumerate(self.signature.parameters.items()):
            if name not in values or parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD):
                continue
            if parameter.kind is not parameter.KEYWORD_ONLY and position < len(args):
                args[position] = values[name]
            elif parameter.kind is not parameter.POSITIONAL_ONLY:
                kwargs[name] = values[name]
        return tuple(args), kwargs


class Observer:
    """The steps around one call; a step that fails is logged once, and the call goes on.

    Made before the call. Then, in this order: `changed`, `enter`, the span's start, `started`, the call itself, `end`
    or `fail`, `wrapped`, the span's end, `leave`, `close`. A subclass may set the arguments as class attributes.

    Args:
        variable: A context variable that is set to `value` during the call.
        value: The variable's value; None for the observer itself.
        opens_span: True if the call is a span, of the hook's kind.
    """

    variable: ContextVar[Any] | None = None
    value: Any = None
    opens_span: bool = False

    def __init__(self, *, variable: ContextVar[Any] | None = None, value: Any = None, opens_span: bool = False) -> None:
        self.variable = variable
        self.value = value
        self.opens_span = opens_span

    def changed(self, call: Call) -> Arguments | None:
        """Return arguments to call the function with; None for those given."""

    def enter(self) -> None:
        """Run before the function's code, and before the code of a coroutine that it returned."""

    def started(self) -> None:
        """Run when the span has started and is current."""

    def end(self, result: Any) -> None:
        """Run when the call, or its coroutine, has returned; the span is current."""

    def fail(self, error: BaseException) -> None:
        """Run when an exception leaves the call; the span is current."""

    def wrapped(self, result: Any) -> Any:
        """Return a value for the caller in place of the result; None for the result."""

    def leave(self) -> None:
        """Run when the function's code has stopped or is suspended, as often as `enter`."""

    def close(self) -> None:
        """Run once, at the end."""


class _After(Observer):
    def __init__(self, function: Callable[[Call, Any], Any], call: Call) -> None:
        self._function = function
        self._call = call

    def wrapped(self, result: Any) -> Any:
        return self._function(self._call, result)


def after(function: Callable[[Call, Any], Any]) -> Callable[[Call], Observer]:
    """Make observers that run `function(call, result)` as `wrapped`: None leaves the result as it is."""
    return partial(_After, function)


@dataclass(frozen=True)
class Hook:
    """A function to observe.

    Args:
        module: The module that has the function, by definition or import.
        target: The function's name, with the class that defines it: `AgentLoopWorker.generate_sequences`.
        lost: A phrase for the log on what isn't traced without the hook.
        observer: Makes a call's observer; None if there is nothing to observe.
        needs: Required parameters; a function without one of them isn't hooked.
        kind: The span's kind, if the observer opens one.
        name: The span's name; None for the function's.
        captures: True if arguments and result are recorded.
        while_off: True if calls are observed while tracing is off in this process, as where it is started.
        lost_unknown: A phrase for the log on what isn't traced if the function's source isn't recorded in this package;
            empty if the hook adds no arguments.
    """

    module: str
    target: str
    lost: str
    observer: Callable[[Call], Observer | None]
    needs: tuple[str, ...] = ()
    kind: str = "CHAIN"
    name: str | None = None
    captures: tuple[bool, bool] = (False, False)
    while_off: bool = False
    lost_unknown: str = ""


@dataclass(frozen=True)
class Patch:
    """A change to a module other than around a function.

    Args:
        module: The module.
        target: The patched object's name.
        lost: A phrase for the log on what isn't traced without the patch.
        apply: Takes the module and patches it; may raise.
    """

    module: str
    target: str
    lost: str
    apply: Callable[[Any], None]
