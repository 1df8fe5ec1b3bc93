"""Messages that are worth one line in a log, not one per span."""

from __future__ import annotations

import logging
import os
from collections import Counter

__all__ = ["internal_error", "internal_errors", "warn_once"]

_logger = logging.getLogger("otel_rollout")
_seen: set[str] = set()
_MAX_KINDS = 1000


def warn_once(key: str, message: str, *arguments: object) -> None:
    """Log a warning the first time that `key` comes up.

    Args:
        key: What the message is about.
        message: The message, with `%s` for each argument.
        *arguments: Filled in by logging.
    """
    # Without a lock, which a fork or a signal handler could find held; at worst a message comes twice.
    if key not in _seen and len(_seen) < _MAX_KINDS:
        _seen.add(key)
        _logger.warning(message, *arguments)


def internal_error(where: str) -> None:
    """Report the exception that is being handled: a fault of ours, which must not reach the traced program.

    Under pytest it is raised, so that no test passes over it.

    Args:
        where: What was being done.

    Raises:
        Exception: The fault itself, in a test run of ours (`OTEL_ROLLOUT_RAISE_INTERNAL_ERRORS`).
    """
    internal_errors[where] += 1
    if internal_errors[where] == 1:
        _logger.error(
            "internal error while %s; the traced program goes on",
            where,
            exc_info=True,  # noqa: LOG014 - called from except blocks only
        )
    if os.environ.get("OTEL_ROLLOUT_RAISE_INTERNAL_ERRORS"):
        raise  # noqa: PLE0704 - called from except blocks only


internal_errors: Counter[str] = Counter()
"""How often each kind of internal error came up; part of `stats()`."""


def forget() -> None:
    """Forget what was logged and counted; for tests."""
    _seen.clear()
    internal_errors.clear()
