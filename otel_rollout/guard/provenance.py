"""Decides whose an exception in our code is: the program's passes on, a fault of ours is logged and counted."""

from __future__ import annotations

import dis
import functools
import signal
import threading
from types import CodeType
from typing import Any, Final

_RAISE: Final = dis.opmap["RAISE_VARARGS"]
_WITHOUT_ARGUMENTS: Final = (MemoryError, StopIteration, StopAsyncIteration)
"""C code raises these without arguments."""


def is_programs(error: BaseException) -> bool:
    """Return True if an exception that our code meets is the program's, and so must pass.

    It is if it isn't an `Exception`, such as KeyboardInterrupt or a cancellation; if a signal handler raised it, as
    graders do by `signal.alarm`; or if another thread did (`PyThreadState_SetAsyncExc`), which gives no arguments and
    needs no `raise` statement. All else is a fault of ours, or of a library that we called.
    """
    if not isinstance(error, Exception):
        return True
    # Python runs signal handlers in the main thread.
    handlers = _handler_codes() if threading.current_thread() is threading.main_thread() else ()
    trace, last = error.__traceback__, None
    while trace is not None:
        if trace.tb_frame.f_code in handlers:
            return True
        trace, last = trace.tb_next, trace
    if error.args or isinstance(error, _WITHOUT_ARGUMENTS) or last is None:
        return False
    return last.tb_frame.f_code.co_code[last.tb_lasti] != _RAISE


def _handler_codes() -> set[CodeType]:
    """Return the code of the signal handlers that are registered."""
    codes = set()
    for number in signal.valid_signals():
        handler: Any = signal.getsignal(number)
        while isinstance(handler, functools.partial):
            handler = handler.func
        for candidate in (handler, getattr(handler, "__func__", None), vars(type(handler)).get("__call__")):
            code = getattr(candidate, "__code__", None)
            if isinstance(code, CodeType):
                codes.add(code)
    return codes
