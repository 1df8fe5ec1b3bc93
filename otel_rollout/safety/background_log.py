"""Log from a background thread: what the application's log handlers do never happens in a traced call."""

from __future__ import annotations

import atexit
import contextlib
import logging
import os
from collections import deque

from otel_rollout.safety.background_thread import BackgroundThread, call_within
from otel_rollout.safety.signal_safe_lock import SignalSafeLock

__all__ = ["log_in_background", "write_rest"]

_logger = logging.getLogger("otel_rollout")
_pending: deque[tuple[int, str, BaseException | None]] = deque()
_lock = SignalSafeLock()
_SECONDS_AT_EXIT = 1.0


def log_in_background(level: int, text: str, error: BaseException | None = None) -> None:
    """Log a message soon, and at the latest at the end of the process.

    A log handler may wait for a disk. `logging` drops what a signal handler raises while a record is made, and from
    Python 3.14 on its locks may stay held. No signal handler runs in the thread that logs.

    Args:
        level: The level, such as `logging.WARNING`.
        text: The whole message.
        error: An exception to log with its traceback.
    """
    _pending.append((level, text, error))
    thread = BackgroundThread("otel-rollout-log", _write_pending)
    thread.start()
    if not thread.is_started:
        thread.run_here()


def write_rest() -> None:
    """Wait until what is pending is logged, for one second at most."""
    call_within(_SECONDS_AT_EXIT, _write_pending)


def _write_pending() -> None:
    with _lock:
        while _pending:
            level, text, error = _pending.popleft()
            # A filter of the application may raise.
            with contextlib.suppress(Exception):
                _logger.log(level, text, exc_info=error)


def _after_fork() -> None:
    """Start empty in a forked child: the parent logs what is pending."""
    global _lock  # noqa: PLW0603 - only the thread that holds a lock can release it
    _lock = SignalSafeLock()
    _pending.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
atexit.register(write_rest)
