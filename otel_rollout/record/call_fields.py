"""The fields of a trajectory that a decorated function's arguments decide, such as its sample index."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, Final

from otel_rollout.guard.log_once import call_user_function, warn_once
from otel_rollout.record.signature import read_parameters

_DEFAULTS: Final = {
    "sample_index": None,
    "step": None,
    "rollout_n": None,
    "name": "rollout_trace",
    "validate": False,
    "trace": True,
}
"""The arguments of `rollout_trace_attr` in their order, and the value of one that is left out."""
_IDENTITY: Final = ("sample_index", "step", "rollout_n")


def with_parameters(given: tuple[Any, ...], function: Callable[..., Any]) -> tuple[Any, ...]:
    """Return the arguments; a part of the identity that isn't given is read from the parameter of its name."""
    readers = {
        each.name: partial(_argument, each.name, None if each.default is each.empty else each.default, place)
        for place, each in enumerate(read_parameters(function) or ())
        if each.name in _IDENTITY and each.kind not in (each.VAR_POSITIONAL, each.VAR_KEYWORD)
    }
    return tuple(readers.get(name) if value is None else value for name, value in zip(_DEFAULTS, given, strict=True))


def _argument(name: str, default: Any, place: int, /, *args: Any, **kwargs: Any) -> Any:
    return kwargs[name] if name in kwargs else args[place] if place < len(args) else default


def fields_of_call(name: str, given: tuple[Any, ...], args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Any, ...]:
    """Return the arguments of `rollout_trace_attr` for one call: the results of functions among them.

    A function that raises, or returns None, leaves its field out; the first error of each is a warning.
    """
    return tuple(
        _result(f"{name}: {field}", value, default, args, kwargs) if callable(value) else value
        for value, (field, default) in zip(given, _DEFAULTS.items(), strict=True)
    )


def _result(label: str, function: Any, default: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    result = call_user_function(label, partial(function, *args, **kwargs), with_note=False)
    return default if result is None else result


def without_functions(given: tuple[Any, ...]) -> tuple[Any, ...]:
    """Return the arguments of `rollout_trace_attr` without functions, which are logged once: nothing calls them."""
    for value, field in zip(given, _DEFAULTS, strict=True):
        if callable(value):
            warn_once(
                f"function as {field}",
                "rollout_trace_attr(%s=…): a function is for the decorator, which calls it with the decorated "
                "function's arguments; it is ignored",
                field,
            )
    pairs = zip(given, _DEFAULTS.values(), strict=True)
    return tuple(default if callable(value) else value for value, default in pairs)
