"""`guarded`: tracing never reaches the traced program."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, TypeVar, cast

from otel_rollout.safety.log_once import internal_error

__all__ = ["guarded"]

Function = TypeVar("Function", bound=Callable[..., Any])


def guarded(doing: str) -> Callable[[Function], Function]:
    """Decorate a function that the traced program's thread runs: its exception is logged once, counted and dropped.

    The function returns None then. Exceptions of the program's signal handlers pass, and so does any other
    BaseException.

    Args:
        doing: The function's work for the log, such as "ending a span".
    """

    def guard(function: Function) -> Function:
        @functools.wraps(function)
        def guarded_function(*args: Any, **kwargs: Any) -> Any:
            try:
                return function(*args, **kwargs)
            except Exception:
                internal_error(doing)
                return None

        return cast("Function", guarded_function)

    return guard
