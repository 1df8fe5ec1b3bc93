"""A hook: one function of verl whose calls are observed, without a change to what its caller gets.

A hook says what it needs of a function, and makes an `Observer` of each call. `patching` runs the observer around the
call; nothing that an observer does wrong can change the call.
"""

from __future__ import annotations

from collections.abc import Callable
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any, ClassVar

__all__ = ["Call", "Hook", "Observer", "Patch"]

Arguments = tuple[tuple[Any, ...], dict[str, Any]]


class Call:
    """One call of a function of verl.

    Args:
        receiver: What it is a method of: `self` or `cls`; None for a function.
        arguments: Its arguments by name, defaults and those of `**kwargs` included.
        args: The positional arguments as given, `self` included.
        kwargs: The keyword arguments as given.
        positions: Where each parameter stands that can be given by position.
        named: All parameters that are named in the signature and can be given by keyword.
        is_known: Whether the function's body is one that we know, so that its arguments may be added to.
    """

    __slots__ = ("_named", "_positions", "args", "arguments", "is_known", "kwargs", "receiver")

    def __init__(
        self,
        receiver: Any,
        arguments: dict[str, Any],
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        positions: dict[str, int],
        named: frozenset[str],
        is_known: bool,
    ) -> None:
        self.receiver = receiver
        self.arguments = arguments
        self.args = args
        self.kwargs = kwargs
        self.is_known = is_known
        self._positions = positions
        self._named = named

    def replaced(self, values: dict[str, Any]) -> Arguments:
        """Return the arguments as given, but for these, as far as the function has parameters of these names."""
        args, kwargs = list(self.args), dict(self.kwargs)
        for name, value in values.items():
            position = self._positions.get(name)
            if position is not None and position < len(args):
                args[position] = value
            elif name in self._named:
                kwargs[name] = value
        return tuple(args), kwargs


class Observer:
    """What is done around one call; whatever goes wrong in it is one warning, and the call goes on as it was made.

    Made before the call, of the call. Then, in this order: `changed`, `enter`, the span's start, `started`, the call
    itself, `end` or `fail`, `wrapped`, the span's end, `leave`, `close`.
    """

    variable: ClassVar[ContextVar[Any] | None] = None
    """The context variable that is set while the call runs, if any; to `value`."""

    opens_span: ClassVar[bool] = False
    """Whether the call is a span; the hook says of what kind."""

    @property
    def value(self) -> Any:
        """What the context variable holds."""
        return self

    def changed(self, call: Call) -> Arguments | None:
        """Return the arguments that the function gets in place of those given; None for those given."""

    def enter(self) -> None:
        """Before the function's code begins to run, and before a coroutine that it returned does."""

    def started(self) -> None:
        """When the span has begun and is current."""

    def end(self, result: Any) -> None:
        """When the call has returned, or its coroutine has; the span is current."""

    def fail(self, error: BaseException) -> None:
        """When an exception leaves the call; the span is current."""

    settles: bool = False
    """Whether a coroutine function returns only after `settle`."""

    async def settle(self, result: Any) -> None:
        """Wait for something, before `end`."""

    wraps: ClassVar[bool] = False
    """Whether `wrapped` has anything to say."""

    def wrapped(self, result: Any) -> Any:
        """Return what the caller gets in place of the result; None for the result."""

    def leave(self) -> None:
        """When the function's code no longer runs, as often as `enter`."""

    def close(self) -> None:
        """When all is over, once."""


@dataclass(frozen=True)
class Hook:
    """One function that is observed.

    Args:
        module: The module that it is defined in.
        target: Its name there, with that of its class: `AgentLoopWorker.generate_sequences`.
        lost: What is not traced where it can't be observed.
        observer: Makes the observer of a call; None where there is nothing to observe.
        needs: The parameters without which there is nothing to observe.
        kind: The span's kind, where an observer opens one.
        name: The span's name; None for the function's.
        captures: Whether arguments and result are recorded as they are.
        while_off: Whether it is observed while tracing is off in this process too.
        lost_unknown: What is not traced where the function's body is not one that we know; empty where that makes
            no difference.
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
    """Something else that is put into a module; not around a function.

    Args:
        module: The module.
        target: What it is put on.
        lost: What is not traced where that doesn't go.
        apply: Takes the module and puts it there; may raise.
    """

    module: str
    target: str
    lost: str
    apply: Callable[[Any], None]
