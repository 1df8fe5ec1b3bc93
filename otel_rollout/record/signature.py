"""Bind a call's arguments to their names, by a binder that is compiled once per function.

`inspect.signature(f).bind(*args, **kwargs)` costs a third of a whole span. Python binds arguments in C when it calls a
function, so the binder is a function with the same parameters that returns them.
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Sequence
from inspect import Parameter
from types import FunctionType
from typing import Any, Final, NamedTuple

from otel_rollout.guard.provenance import is_programs

Binder = Callable[..., dict[str, Any]]
"""Takes the arguments of a call and returns them by name; raises TypeError if they don't fit the signature."""

_RECEIVERS: Final = ("self", "cls")
_POSITIONAL: Final = (Parameter.POSITIONAL_ONLY, Parameter.POSITIONAL_OR_KEYWORD)
_STARS: Final[dict[Any, str]] = {Parameter.VAR_POSITIONAL: "*", Parameter.VAR_KEYWORD: "**"}
_ANY: Final = [Parameter("args", Parameter.VAR_POSITIONAL), Parameter("kwargs", Parameter.VAR_KEYWORD)]


def compile_binder(function: Callable[..., Any]) -> Binder:
    """Return a binder without `self` and `cls`; it returns `args` and `kwargs` if the signature can't be read."""
    parameters = read_parameters(function)
    return _bind_unnamed if parameters is None else _compile(parameters)


def begins_with_receiver(function: Callable[..., Any]) -> bool:
    """Return True if calls of a function begin with `self` or `cls`."""
    return any(each.name in _RECEIVERS for each in (read_parameters(function) or [])[:1])


def read_parameters(function: Callable[..., Any]) -> list[Parameter] | None:
    """Return a function's parameters; None if they can't be read."""
    try:
        return list(read_signature(function).parameters.values())
    except Exception as error:  # a function in C without a signature, or an object whose `__signature__` is none
        if is_programs(error):
            raise
        return None


def read_signature(function: Callable[..., Any]) -> inspect.Signature:
    """Return a function's signature, whatever its annotations are.

    Raises:
        TypeError: It is not callable.
        ValueError: It has no signature that can be read.
    """
    if sys.version_info >= (3, 14):
        # `inspect` evaluates annotations there, and names that exist only for type checkers would fail.
        import annotationlib

        return inspect.signature(function, annotation_format=annotationlib.Format.FORWARDREF)
    return inspect.signature(function)


class Declaration(NamedTuple):
    """The source of a function's parameters, and of a call that passes them on.

    Args:
        defaults: The names of the defaults in `declared`: a default is any object, and most have no source.
        by_place: The positional arguments of the call.
        by_name: Its keyword arguments, as the items of a dict.
    """

    declared: str
    defaults: tuple[str, ...]
    by_place: str
    by_name: str
    names: str


def declare(parameters: Sequence[Parameter]) -> tuple[Declaration, list[Any]]:
    """Return the source of parameters, and their defaults."""
    defaults: dict[str, Any] = {}
    declared: list[str] = []
    by_place: list[str] = []
    by_name: list[str] = []
    previous: Any = None
    for position, parameter in enumerate(parameters):
        kind, name = parameter.kind, parameter.name
        if previous is Parameter.POSITIONAL_ONLY and kind is not Parameter.POSITIONAL_ONLY:
            declared.append("/")
        if kind is Parameter.KEYWORD_ONLY and previous not in (Parameter.KEYWORD_ONLY, Parameter.VAR_POSITIONAL):
            declared.append("*")
        previous = kind
        text = _STARS.get(kind, "") + name
        if kind is Parameter.KEYWORD_ONLY:
            by_name.append(f"{name!r}: {name}, ")
        else:
            (by_name if kind is Parameter.VAR_KEYWORD else by_place).append(f"{text}, ")
        if parameter.default is not Parameter.empty:
            defaults[f"_default_{position}"] = parameter.default
            text = f"{text}=_default_{position}"
        declared.append(text)
    if previous is Parameter.POSITIONAL_ONLY:
        declared.append("/")
    names = ", ".join(parameter.name for parameter in parameters)
    source = Declaration(", ".join(declared), tuple(defaults), "".join(by_place), "".join(by_name), names)
    return source, list(defaults.values())


def own_parameters(function: Any) -> list[Parameter]:
    """Return the parameters by which Python checks a call, not those that a decorator shows; any, of an object."""
    if type(function) is not FunctionType:
        return _ANY
    bare = FunctionType(
        function.__code__, function.__globals__, argdefs=function.__defaults__, closure=function.__closure__
    )
    bare.__kwdefaults__ = function.__kwdefaults__
    return list(inspect.signature(bare).parameters.values())


def _compile(parameters: list[Parameter]) -> Binder:
    source, defaults = declare(parameters)
    captured = [
        each.name
        for position, each in enumerate(parameters)
        if position > 0 or each.name not in _RECEIVERS or each.kind not in _POSITIONAL
    ]
    body = ", ".join(f"{name!r}: {name}" for name in captured)
    # The source holds only parameter names, and `inspect.Parameter` takes nothing but identifiers.
    given = dict(zip(source.defaults, defaults, strict=True))
    binder: Binder = eval(f"lambda {source.declared}: {{{body}}}", given)  # noqa: S307
    return binder


def _bind_unnamed(*args: Any, **kwargs: Any) -> dict[str, Any]:
    return {"args": args, "kwargs": kwargs}
