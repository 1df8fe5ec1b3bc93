"""The callables that a decorator takes and returns: their kinds, results that run later, and the wrapper's looks."""

from __future__ import annotations

import functools
import inspect
import sys
from collections.abc import Callable
from types import (
    AsyncGeneratorType,
    BuiltinFunctionType,
    CodeType,
    CoroutineType,
    FrameType,
    FunctionType,
    GeneratorType,
    MethodType,
)
from typing import Any, Final

_RUNNING: Final = (AsyncGeneratorType, CoroutineType, GeneratorType)
_FUNCTIONS: Final = (FunctionType, MethodType, BuiltinFunctionType)
_OWN: Final = frozenset(
    f"__{name}__"
    for name in (
        *("call", "class", "class_getitem", "del", "delattr", "delete", "dict", "doc", "get", "getattr"),
        *("getattribute", "getnewargs", "getnewargs_ex", "getstate", "init", "init_subclass", "instancecheck"),
        *("module", "mro_entries", "new", "prepare", "reduce", "reduce_ex", "set", "set_name", "setattr"),
        *("setstate", "slots", "subclasscheck", "subclasshook", "weakref"),
    )
)
"""Special methods that a stand-in defines itself, or that concern classes."""


def require_function(target: Any, decorator: str) -> None:
    """Check that a decorator is put on something that is called.

    Args:
        target: The decorated object.
        decorator: The decorator's name, for the message.

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
    elif isinstance(target, _RUNNING):
        advice = ": decorate the function that makes it"
    raise TypeError(f"{decorator} takes a function, not {target!r}{advice}")


def is_undecorated_yet(function: Any, caller: FrameType) -> bool:
    """Return True if the caller's line is one that defines the function: `@decorator` without parentheses.

    Args:
        function: The argument of a decorator's maker.
        caller: The frame that called it.
    """
    code = getattr(inspect.unwrap(getattr(function, "__func__", function)), "__code__", None)
    if not isinstance(code, CodeType) or code.co_name == "<lambda>" or code is caller.f_code:
        return False
    # A definition begins at its first decorator.
    lines = [line for _, _, line in code.co_lines() if line is not None]
    return code.co_filename == caller.f_code.co_filename and code.co_firstlineno <= caller.f_lineno <= max(lines)


def is_kind(test: Callable[[Any], bool], function: Any) -> bool:
    """Return True if a test of `inspect` holds for a callable, or for the `__call__` of its class."""
    return test(function) or test(type(function).__call__)


def is_generator_function(function: Any) -> bool:
    """Return True for a generator function whose items are the caller's: not a `types.coroutine`, which is awaited."""
    if not inspect.isgeneratorfunction(function):
        return False
    while isinstance(function, functools.partial):
        function = function.func
    return not is_generator_coroutine(getattr(function, "__func__", function).__code__)


def is_generator_coroutine(code: CodeType) -> bool:
    """Return True for the code of a `types.coroutine`, whose items are the event loop's."""
    return bool(code.co_flags & inspect.CO_ITERABLE_COROUTINE)


def is_untouched(result: Any, references: int) -> bool:
    """Return True if a coroutine or generator has not begun, and only the code that asks refers to it.

    Nobody can notice then that another one is handed on in its place.

    Args:
        result: The value that a function returned, in a local variable of the code that asks.
        references: `sys.getrefcount` of that variable, called there.
    """
    if references > _UNSHARED:
        return False
    kind = type(result)
    if kind is CoroutineType:
        return inspect.getcoroutinestate(result) == inspect.CORO_CREATED
    if kind is GeneratorType:
        return inspect.getgeneratorstate(result) == inspect.GEN_CREATED
    # `inspect.getasyncgenstate` is Python 3.12's; before its first step, a frame is at its first line.
    return kind is AsyncGeneratorType and _is_at_start(result)


def _is_at_start(generator: AsyncGeneratorType[Any, Any]) -> bool:
    if sys.version_info >= (3, 12):
        return inspect.getasyncgenstate(generator) == inspect.AGEN_CREATED
    frame = generator.ag_frame
    return frame is not None and not generator.ag_running and frame.f_lineno == generator.ag_code.co_firstlineno


class Unawaited:
    """A coroutine that another one will await; closed if the other is dropped, as Python would warn of both.

    Args:
        coroutine: The coroutine.
    """

    __slots__ = ("coroutine",)

    def __init__(self, coroutine: Any) -> None:
        self.coroutine: Any = coroutine

    def __del__(self) -> None:
        if self.coroutine is not None:
            self.coroutine.close()

    def take(self) -> Any:
        """Return the coroutine, which is now the caller's to await."""
        coroutine, self.coroutine = self.coroutine, None
        return coroutine


def _references_of_a_result(make: Callable[[], Any]) -> int:
    result = make()
    return sys.getrefcount(result)


_UNSHARED: Final = _references_of_a_result(object)
"""The count of references to a new object in a local variable; it differs between versions of Python."""


def like(function: Any, traced: Callable[..., Any], decorate: Callable[[Any], Any]) -> Any:
    """Return the traced form of a callable, which looks like the callable itself.

    A function gets `functools.wraps`. An object that is called (a scorer, a cached function, numpy's ufunc) gets a
    stand-in: its attributes are the object's own, also when they are set.

    Args:
        function: The callable.
        traced: A function that traces a call of it.
        decorate: The decorator, for a copy of the stand-in in another process.
    """
    if isinstance(function, _FUNCTIONS):
        return functools.wraps(function)(traced)
    return _stand_in(function, traced, decorate)


def _stand_in(target: Any, traced: Callable[..., Any], decorate: Callable[[Any], Any]) -> Any:
    kind = type(target)

    def get_attribute(stand_in: Any, name: str) -> Any:
        if name == "__call__":
            return traced
        if name == "__wrapped__":
            return target
        if name == "__reduce_ex__":
            return functools.partial(_reduce, stand_in, target, decorate)
        return getattr(target, name)

    namespace: dict[str, Any] = {
        "__slots__": (),
        # A call has no `self`, and `inspect` finds a coroutine function if it is one.
        "__call__": staticmethod(traced),
        "__getattribute__": get_attribute,
        "__setattr__": lambda stand_in, name, value: setattr(target, name, value),
        "__delattr__": lambda stand_in, name: delattr(target, name),
    }
    if hasattr(kind, "__get__"):
        # A cached function in a class becomes a method.
        namespace["__get__"] = lambda stand_in, instance, owner=None: (
            stand_in if instance is None else MethodType(stand_in, instance)
        )
    for name in special_methods(kind):
        namespace[name] = _forward(target, name)
    if kind.__hash__ is None:
        namespace["__hash__"] = None
    return type(kind.__name__, (), namespace)()


def special_methods(kind: type) -> list[str]:
    """Return the special methods that a stand-in for an object forwards: operators look for them in the class."""
    names = {name for ancestor in kind.__mro__ for name in vars(ancestor)}
    return [
        name for name in sorted(names - _OWN) if name[:2] == name[-2:] == "__" and callable(getattr(kind, name, None))
    ]


def _forward(target: Any, name: str) -> Callable[..., Any]:
    method = getattr(type(target), name)
    return lambda stand_in, *args, **kwargs: method(target, *args, **kwargs)


def _reduce(stand_in: Any, target: Any, decorate: Callable[[Any], Any], protocol: int) -> Any:
    """Pickle a stand-in by its name if it has one, as functions are; else as its target, decorated again."""
    name = getattr(target, "__qualname__", None)
    if isinstance(name, str):
        found: Any = sys.modules.get(getattr(target, "__module__", None) or "")
        for part in name.split("."):
            found = getattr(found, part, None)
        if found is stand_in:
            return name
    return decorate, (target,)
