"""A function's arguments by name, by a binder that is compiled once per function.

`inspect.signature(f).bind(*args, **kwargs)` on each call costs a third of what a whole span costs. Python binds
arguments in C when it calls a function, so the binder is a function with the same parameters that returns them.
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable
from inspect import Parameter
from typing import Any, Final

__all__ = ["Binder", "compile_binder", "read_signature"]

Binder = Callable[..., dict[str, Any]]
"""Takes the arguments of a call and returns them by name; raises TypeError where they don't fit the signature."""

_RECEIVERS: Final = ("self", "cls")
_POSITIONAL: Final = (Parameter.POSITIONAL_ONLY, Parameter.POSITIONAL_OR_KEYWORD)


def compile_binder(function: Callable[..., Any]) -> Binder:
    """Return a binder for `function`; `self` and `cls` are left out of what it returns.

    Args:
        function: Any callable. One whose signature can't be read, or shows the receiver at another place than calls
            have it, gets a binder that returns `args` and `kwargs`.
    """
    try:
        parameters = list(read_signature(function).parameters.values())
        return _bind_after_receiver if _hides_receiver(function, parameters) else _compile(parameters)
    except Exception:  # a callable may do anything when it is looked at
        return _bind_after_receiver if _takes_receiver(function) else _bind_unnamed


def read_signature(function: Callable[..., Any]) -> inspect.Signature:
    """Return a function's signature, whatever its annotations are.

    Args:
        function: The function.

    Raises:
        TypeError: It is not callable.
        ValueError: It has no signature that can be read.
    """
    if sys.version_info >= (3, 14):
        # Annotations are evaluated there; names that exist for type checkers only would fail.
        import annotationlib

        return inspect.signature(function, annotation_format=annotationlib.Format.FORWARDREF)
    return inspect.signature(function)


def _hides_receiver(function: Any, parameters: list[Parameter]) -> bool:
    """Whether calls begin with a receiver and the signature doesn't, as with a decorator that adds arguments."""
    if inspect.ismethod(function) or not (hasattr(function, "__wrapped__") or hasattr(function, "__signature__")):
        return False
    names = [parameter.name for parameter in parameters if parameter.kind in _POSITIONAL]
    if names[:1] and names[0] in _RECEIVERS:
        return False
    return any(name in _RECEIVERS for name in names) or _takes_receiver(inspect.unwrap(function, stop=_takes_receiver))


def _takes_receiver(function: Any) -> bool:
    """Whether the first parameter is a receiver, whatever signature the function shows."""
    try:
        code = None if inspect.ismethod(function) else function.__code__
        return code is not None and code.co_argcount > 0 and code.co_varnames[0] in _RECEIVERS
    except Exception:  # a callable may do anything when it is looked at
        return False


def _compile(parameters: list[Parameter]) -> Binder:
    defaults: dict[str, Any] = {}
    declared: list[str] = []
    captured: list[str] = []
    previous: Any = None
    for position, parameter in enumerate(parameters):
        kind = parameter.kind
        if previous is Parameter.POSITIONAL_ONLY and kind is not Parameter.POSITIONAL_ONLY:
            declared.append("/")
        if kind is Parameter.KEYWORD_ONLY and previous not in (
            Parameter.KEYWORD_ONLY,
            Parameter.VAR_POSITIONAL,
        ):
            declared.append("*")
        previous = kind
        text = parameter.name
        if kind is Parameter.VAR_POSITIONAL:
            text = f"*{text}"
        elif kind is Parameter.VAR_KEYWORD:
            text = f"**{text}"
        elif parameter.default is not Parameter.empty:
            # Held in the binder's globals: a default is any object, not something that can be written as source.
            name = f"_default_{position}"
            defaults[name] = parameter.default
            text = f"{text}={name}"
        declared.append(text)
        if position > 0 or parameter.name not in _RECEIVERS or kind not in _POSITIONAL:
            captured.append(parameter.name)
    if previous is Parameter.POSITIONAL_ONLY:
        declared.append("/")

    body = ", ".join(f"{name!r}: {name}" for name in captured)
    source = f"def bind({', '.join(declared)}):\n    return {{{body}}}\n"
    namespace: dict[str, Any] = dict(defaults)
    # The source holds parameter names only, and `inspect.Parameter` takes nothing but identifiers.
    exec(compile(source, "<arguments>", "exec"), namespace)  # noqa: S102
    binder: Binder = namespace["bind"]
    return binder


def _bind_unnamed(*args: Any, **kwargs: Any) -> dict[str, Any]:
    return {"args": args, "kwargs": kwargs}


def _bind_after_receiver(*args: Any, **kwargs: Any) -> dict[str, Any]:
    return {"args": args[1:], "kwargs": kwargs}
