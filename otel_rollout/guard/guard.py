"""Decide if an exception is our own fault, by its exact class and the frames that it went through."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

from otel_rollout.guard.signal_handlers import is_from_signal_handler

FAULTS: Final = (AttributeError, IndexError, KeyError, NameError, OverflowError, RecursionError, TypeError, ValueError)
"""The classes of the faults of code that meets data that it wasn't written for."""


_PACKAGE: Final = f"{Path(__file__).parents[1]}{os.sep}"


def is_our_fault(error: BaseException) -> bool:
    """Return True if our own code has raised `error`, or C code that it called.

    It has exactly a class of `FAULTS` and went only through frames of this package. A handler of a signal and a trace
    function have frames of their own; an exception that another thread raises here comes without arguments.

    Args:
        error: The exception, where it is caught.
    """
    if type(error) not in FAULTS or not error.args:
        return False
    trace = error.__traceback__
    while trace is not None:
        if not trace.tb_frame.f_code.co_filename.startswith(_PACKAGE):
            return False
        trace = trace.tb_next
    return True


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
    function did, and one that another thread raises here comes without arguments.

    Args:
        error: The exception.
        *kinds: The classes that the function raises.
    """
    trace = error.__traceback__
    return type(error) in kinds and bool(error.args) and trace is not None and trace.tb_next is None


def is_of_program(error: BaseException) -> bool:
    """Return True if an exception that we caught is the program's: it goes on, whatever we were at.

    So are all but an `Exception`, what a signal handler has raised, and what another thread raises here, which comes
    without arguments. All else is a fault of ours, or of a library that we called.
    """
    if not isinstance(error, Exception) or is_from_signal_handler(error):
        return True
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    is_ours = trace is not None and trace.tb_frame.f_code.co_filename.startswith(_PACKAGE)
    return not error.args and (is_ours or type(error).__module__ != "builtins")
