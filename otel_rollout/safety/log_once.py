"""Messages that are worth one line in a log, not one per span."""

from __future__ import annotations

import logging
import os
import sys
from collections import Counter
from collections.abc import Callable
from typing import Any

from otel_rollout.safety.signal_handlers import is_from_signal_handler

__all__ = ["call_user_function", "internal_error", "internal_errors", "warn_once"]

_logger = logging.getLogger("otel_rollout")
_seen: set[str] = set()
_MAX_KINDS = 1000


def warn_once(key: str, message: str, *arguments: object, exc_info: BaseException | None = None) -> None:
    """Log a warning the first time that `key` comes up.

    Args:
        key: What the message is about.
        message: The message, with `%s` for each argument.
        *arguments: Filled in by logging.
        exc_info: An exception whose traceback belongs to the message.
    """
    # Without a lock, which a fork or a signal handler could find held; at worst a message comes twice.
    if key not in _seen and len(_seen) < _MAX_KINDS:
        _seen.add(key)
        _logger.warning(_whole(message, *arguments), exc_info=exc_info)


def internal_error(where: str) -> None:
    """Report the exception that is being handled: a fault of ours, which must not reach the traced program.

    Under pytest it is raised, so that no test passes over it.

    Args:
        where: What was being done.

    Raises:
        Exception: What a signal handler of the program raised; and the fault itself, in a test run of ours
            (`OTEL_ROLLOUT_RAISE_INTERNAL_ERRORS`).
    """
    error = sys.exc_info()[1]
    if error is not None and is_from_signal_handler(error):
        raise  # noqa: PLE0704 - called from except blocks only
    internal_errors[where] += 1
    if internal_errors[where] == 1:
        _logger.error(
            f"internal error while {where}; the traced program goes on",
            exc_info=True,  # noqa: LOG014 - called from except blocks only
        )
    if os.environ.get("OTEL_ROLLOUT_RAISE_INTERNAL_ERRORS"):
        raise  # noqa: PLE0704 - called from except blocks only


def call_user_function(name: str, function: Callable[..., Any], *arguments: Any) -> Any:
    """Return what a function of the user's returns, or a note if it fails: its error is a warning, once.

    Args:
        name: What the function is to us.
        function: What to call; a BaseException that is no Exception passes.
        *arguments: What it takes.
    """
    try:
        return function(*arguments)
    except Exception as error:
        if is_from_signal_handler(error):
            raise
        warn_once(f"user function {name}", "%s failed: its value is left out", name, exc_info=error)
        return f"[{name} failed: {type(error).__qualname__}]"


def _whole(message: str, *arguments: object) -> str:
    """Return a message with its arguments: logging asks ABCs, which may be the program's, whether one is a mapping."""
    return message % arguments if arguments else message


internal_errors: Counter[str] = Counter()
"""How often each kind of internal error came up; part of `stats()`."""


def forget() -> None:
    """Forget what was logged and counted; for tests."""
    _seen.clear()
    internal_errors.clear()
