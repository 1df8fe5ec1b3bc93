"""Log a message once, not once per span."""

from __future__ import annotations

import logging
import os
import sys
from collections import Counter
from collections.abc import Callable
from typing import Any

from otel_rollout.guard.provenance import is_programs
from otel_rollout.guard.safe_logger import SafeLogger

_logger = SafeLogger()
_seen: set[str] = set()


def warn_once(
    key: str, message: str, *arguments: object, exc_info: BaseException | None = None, level: int = logging.WARNING
) -> None:
    """Log a warning the first time that `key` is seen."""
    # No lock, which a fork could find held; at worst a message is logged twice.
    if key not in _seen and len(_seen) < 1000:
        _seen.add(key)
        _logger.log(level, message, *arguments, error=exc_info)


def pass_on(where: str) -> None:
    """Raise the exception being handled if it is the program's; else log and count it: the one decision of each door.

    Raises:
        BaseException: The program's exception.
    """
    error = sys.exc_info()[1]
    if error is not None and is_programs(error):
        raise  # noqa: PLE0704 - called from except blocks only
    internal_error(where)


def internal_error(where: str) -> None:
    """Log and count the exception being handled: a fault of ours, which must not reach the traced program.

    Raises:
        Exception: The exception, with `OTEL_ROLLOUT_RAISE_INTERNAL_ERRORS`, which our own tests set.
    """
    error = sys.exc_info()[1]
    internal_errors[where] += 1
    if internal_errors[where] == 1:
        _logger.log(logging.ERROR, "internal error while %s; the traced program goes on", where, error=error)
    if os.environ.get("OTEL_ROLLOUT_RAISE_INTERNAL_ERRORS"):
        raise  # noqa: PLE0704 - called from except blocks only


def call_user_function(name: str, function: Callable[..., Any], *arguments: Any, with_note: bool = True) -> Any:
    """Return the result of a user's function; if it raises, log one warning and return a note, or None."""
    try:
        return function(*arguments)
    except BaseException as error:
        if is_programs(error):
            raise
        warn_once(f"user function {name}", "%s failed: its value is left out", name, exc_info=error)
        return f"[{name} failed: {type(error).__qualname__}]" if with_note else None


internal_errors: Counter[str] = Counter()
"""The count of each kind of internal error, for `stats()`."""


def forget_warnings() -> None:
    """Forget all messages and counts; for tests."""
    _seen.clear()
    internal_errors.clear()
