"""A function's arguments by name, by a binder that is compiled once per function.

`inspect.signature(f).bind(*args, **kwargs)` on each call costs a third of what a whole span costs. Python binds
arguments in C when it calls a function, so the binder is a function with the same parameters that returns them.
"""

from __future__ import annotations

import inspect
import keyword
from collections.abc import Callable
from inspect import Parameter
from typing import Any, Final

__all__ = ["Binder", "compile_binder"]

Binder = Callable[..., dict[str, Any]]
"""Takes the arguments of a call and returns them by name; raises TypeError where the call itself would."""

_RECEIVERS: Final = ("self", "cls")


def compile_binder(function: Callable[..., Any]) -> Binder:
    """Return a binder for `function`; `self` and `cls` are left out of what it returns.

    Args:
        function: A Python function. A callable whose signature can't be read gets a binder that returns
            `args` and `kwargs`.
    """
    try:
        parameters = list(inspect.signature(function).parameters.values())
    except (TypeError, ValueError):
        return _bind_unnamed
    if any(keyword.iskeyword(parameter.name) or not parameter.name.isidentifier() for parameter in parameters):
        return _bind_unnamed

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
        if not (position == 0 and parameter.name in _RECEIVERS):
            captured.append(parameter.name)
    if previous is Parameter.POSITIONAL_ONLY:
        declared.append("/")

    body = ", ".join(f"{name!r}: {name}" for name in captured)
    source = f"def bind({', '.join(declared)}):\n    return {{{body}}}\n"
    namespace: dict[str, Any] = dict(defaults)
    # The source holds parameter names only, and those were checked to be identifiers.
    exec(compile(source, f"<arguments of {getattr(function, '__qualname__', function)!s}>", "exec"), namespace)  # noqa: S102
    binder: Binder = namespace["bind"]
    return binder


def _bind_unnamed(*args: Any, **kwargs: Any) -> dict[str, Any]:
    return {"args": args, "kwargs": kwargs}
