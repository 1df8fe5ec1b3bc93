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

__all__ = ["Binder", "compile_binder"]

Binder = Callable[..., dict[str, Any]]
"""Takes the arguments of a call and returns them by name; raises TypeError where the call itself would."""

_RECEIVERS: Final = ("self", "cls")
_POSITIONAL: Final = (Parameter.POSITIONAL_ONLY, Parameter.POSITIONAL_OR_KEYWORD)


def compile_binder(function: Callable[..., Any]) -> Binder:
    """Return a binder for `function`; `self` and `cls` are left out of what it returns.

    Args:
        function: Any callable. One whose signature can't be read gets a binder that returns `args` and `kwargs`.
    """
    try:
        binder = _compile(list(_signature(function).parameters.values()))
    except Exception:  # noqa: BLE001, RUF100 - a callable may do anything when it is looked at
        return _bind_unnamed
    return _lenient(binder) if _shows_another_signature(function) else binder


def _signature(function: Callable[..., Any]) -> inspect.Signature:
    if sys.version_info >= (3, 14):
        # Annotations are evaluated there; names that exist for type checkers only would fail.
        import annotationlib

        return inspect.signature(function, annotation_format=annotationlib.Format.FORWARDREF)
    return inspect.signature(function)


def _shows_another_signature(function: Any) -> bool:
    """Whether the signature may not be the one that calls are bound by, as with a decorator that adds arguments."""
    return hasattr(function, "__wrapped__") or hasattr(function, "__signature__")


def _lenient(binder: Binder) -> Binder:
    def bind_or_list(*args: Any, **kwargs: Any) -> dict[str, Any]:
        try:
            return binder(*args, **kwargs)
        except TypeError:
            return _bind_unnamed(*args, **kwargs)

    return bind_or_list


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
