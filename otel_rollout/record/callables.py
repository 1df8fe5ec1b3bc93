"""The callables that a decorator takes, and the looks of what it returns."""

from __future__ import annotations

import copy
import functools
import inspect
import sys
from collections.abc import Callable
from types import BuiltinFunctionType, CodeType, FrameType, FunctionType, MethodType
from typing import Any, Final

from otel_rollout.record.driver import RUNNING

_FUNCTIONS: Final = (FunctionType, MethodType, BuiltinFunctionType)


def require_function(target: Any, decorator: str) -> None:
    """Check that a decorator is put on something that is called.

    Raises:
        TypeError: It is a class, a property, or not callable; the message says what to decorate instead.
    """
    if callable(target) and not isinstance(target, type):
        return
    advice = ""
    if isinstance(target, type):
        advice = ": decorate its methods"
    elif isinstance(target, (property, functools.cached_property)):
        advice = f": put @{type(target).__name__} above @{decorator}"
    elif isinstance(target, RUNNING):
        advice = ": decorate the function that makes it"
    elif hasattr(type(target), "invoke"):
        # A tool of LangChain's or another framework's.
        advice = f": put the decorator that makes it above @{decorator}"
    raise TypeError(f"{decorator} takes a function, not {target!r}{advice}")


def is_undecorated_yet(function: Any, caller: FrameType) -> bool:
    """Return True if the caller's line is one that defines the function: `@decorator` without parentheses."""
    code = getattr(inspect.unwrap(getattr(function, "__func__", function)), "__code__", None)
    if not isinstance(code, CodeType) or code.co_name == "<lambda>" or code is caller.f_code:
        return False
    # A definition begins at its first decorator.
    lines = [line for _, _, line in code.co_lines() if line is not None]
    return code.co_filename == caller.f_code.co_filename and code.co_firstlineno <= caller.f_lineno <= max(lines)


def like(function: Any, traced: Callable[..., Any], decorate: Callable[[Any], Any]) -> Any:
    """Return the traced form of a callable, which looks like the callable itself.

    A function gets `functools.wraps`. An object that is called (a scorer, a cached function, numpy's ufunc) gets a
    stand-in: its attributes are the object's own, also when they are set.
    """
    if isinstance(function, _FUNCTIONS):
        return functools.wraps(function)(traced)
    return _stand_in(function, traced, decorate)


def _stand_in(target: Any, traced: Callable[..., Any], decorate: Callable[[Any], Any]) -> Any:
    # Only objects need it.
    import wrapt

    class StandIn(wrapt.AutoObjectProxy):  # type: ignore[type-arg]  # of any
        # A call has no `self`, and `inspect` finds a coroutine function if it is one.
        __call__ = staticmethod(traced)

        def __repr__(self) -> str:
            return repr(target)

        def __reduce_ex__(self, protocol: Any) -> Any:
            return _reduce(self, target, decorate)

        def __copy__(self) -> Any:
            return decorate(copy.copy(target))

        def __deepcopy__(self, known: dict[int, Any]) -> Any:
            return decorate(copy.deepcopy(target, known))

    if not hasattr(type(target), "__get__"):
        return StandIn(target)

    class StandInMethod(StandIn):
        # A cached function in a class becomes a method.
        def __get__(self, instance: Any, owner: Any = None) -> Any:
            return self if instance is None else MethodType(self, instance)

    return StandInMethod(target)


def _reduce(stand_in: Any, target: Any, decorate: Callable[[Any], Any]) -> Any:
    """Pickle a stand-in by its name if it has one, as functions are; else as its target, decorated again."""
    name = getattr(target, "__qualname__", None)
    if isinstance(name, str):
        found: Any = sys.modules.get(getattr(target, "__module__", None) or "")
        for part in name.split("."):
            found = getattr(found, part, None)
        if found is stand_in:
            return name
    return decorate, (target,)
