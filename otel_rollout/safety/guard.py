"""Whose exception it is, by exact means: the class, and the frames that it went through."""

from __future__ import annotations

from typing import Final

__all__ = ["FAULTS", "is_of_call", "is_plain"]

FAULTS: Final = (AttributeError, IndexError, KeyError, NameError, OverflowError, RecursionError, TypeError, ValueError)
"""The classes of the faults of code that meets data that it wasn't written for."""


def is_plain(error: BaseException, kinds: tuple[type[BaseException], ...] = FAULTS) -> bool:
    """Return True if `error` is of one of these classes, not of a subclass, which would be the program's.

    Args:
        error: The exception.
        kinds: The classes.
    """
    return type(error) in kinds


def is_of_call(error: BaseException, *kinds: type[BaseException]) -> bool:
    """Return True if the function of C code that was called where `error` is caught has raised it.

    It has exactly one of these classes, and went through no other frame: an exception of a signal handler or of a trace
    function did.

    Args:
        error: The exception.
        *kinds: The classes that the function raises.
    """
    trace = error.__traceback__
    return type(error) in kinds and trace is not None and trace.tb_next is None
