"""Replacing a function of verl by one that calls it, so that nobody can tell but by the spans."""

from __future__ import annotations

import functools
import inspect
import logging
from collections.abc import Callable
from typing import Any, Final

__all__ = ["is_replaced", "replace", "report"]

_logger: Final = logging.getLogger("otel_rollout")
_MARK: Final = "__otel_rollout_hook__"


def replace(owner: Any, name: str, make: Callable[[Callable[..., Any]], Callable[..., Any]], *parameters: str) -> None:
    """Replace a function of a module or class by `make(function)`, once.

    Args:
        owner: The module or class that defines it itself.
        name: The function's name.
        make: Takes the original and returns the replacement, which gets the original's name, module and signature:
            verl and Ray look at these, and cloudpickle finds classes by them.
        *parameters: The names of the first parameters after `self`, where the replacement needs them: other versions
            of verl have functions of the same name that take something else.

    Raises:
        AttributeError: The owner doesn't define it.
        TypeError: It takes something else.
    """
    try:
        original = vars(owner)[name]
    except KeyError:
        raise AttributeError(f"{getattr(owner, '__name__', owner)} has no {name}") from None
    if is_replaced(original):
        return
    found = tuple(inspect.signature(original).parameters)[1 : len(parameters) + 1]
    if found != parameters:
        raise TypeError(f"{name} takes {', '.join(found)}")
    replacement = functools.wraps(original)(make(original))
    setattr(replacement, _MARK, True)
    setattr(owner, name, replacement)


def is_replaced(function: Any) -> bool:
    """Whether this is what `replace` has put in place of a function."""
    return hasattr(function, _MARK)


def report(what: str, error: BaseException) -> None:
    """Log that something of verl can't be hooked, and what is therefore not traced."""
    _logger.warning("verl: %s, as this verl is not as expected (%s: %s)", what, type(error).__name__, error)
