"""Log from one background thread: what the application's log handlers do reaches no other thread."""

from __future__ import annotations

import _thread
import atexit
import contextlib
import logging
import os
import sys
from collections.abc import Callable
from queue import SimpleQueue
from typing import Final, NamedTuple

from otel_rollout.guard.background_thread import BackgroundThread

_NAME: Final = "otel_rollout"
_SECONDS_TO_WAIT: Final = 1.0
MAX_MESSAGES: Final = 1000
"""Messages that wait for a log handler; further ones are dropped and counted."""


class _Message(NamedTuple):
    level: int
    text: str
    error: BaseException | None
    logger: str


class _Log:
    """The messages of one process, and the thread that logs them."""

    def __init__(self) -> None:
        # Its `put` is one call of C code, which a signal handler, the collector or a fork can't find half done.
        self.waiting: SimpleQueue[_Message | Callable[[], object]] = SimpleQueue()
        self.thread = BackgroundThread("otel-rollout-log", self._run)
        self.dropped = 0

    def put(self, message: _Message) -> None:
        if self.waiting.qsize() >= MAX_MESSAGES:
            self.dropped += 1
            return
        self.waiting.put(message)
        self.start()

    def start(self) -> None:
        """Start the thread; at interpreter exit, where none can be started any more, log here what waits."""
        self.thread.start()
        if not self.thread.is_started:
            while not self.waiting.empty():
                self._write(self.waiting.get())

    def await_rest(self, seconds: float) -> None:
        """Wait until the messages put before are logged, at most this many seconds."""
        if self.thread.is_current:
            return
        # Use a new lock for each wait: a signal handler that raises during one affects no other.
        written = _thread.allocate_lock()
        written.acquire()
        self.waiting.put(written.release)
        self.start()
        written.acquire(timeout=seconds)

    def _run(self) -> None:
        while True:
            self._write(self.waiting.get())

    def _write(self, message: _Message | Callable[[], object]) -> None:
        if not isinstance(message, _Message):
            message()
            return
        _write(message)
        dropped, self.dropped = self.dropped, 0
        if dropped:
            text = f"{dropped:,} log messages were dropped: the log handlers take too long"
            _write(_Message(logging.WARNING, text, None, _NAME))


class BackgroundLogger:
    """Logs each message soon, from the one background thread; never waits and never raises.

    A log handler of the application may wait for a disk or a network, raise, or trace; and `logging` drops what a
    signal handler raises while a record is made.

    Args:
        name: The logger's name.
    """

    def __init__(self, name: str = _NAME) -> None:
        self._name = name

    def log(self, level: int, message: str, *arguments: object, error: BaseException | None = None) -> None:
        """Log a message.

        Args:
            level: The level, such as `logging.WARNING`.
            message: The message, with `%s` for each argument.
            *arguments: The arguments.
            error: An exception to log with its traceback.
        """
        # Formatted here: logging calls `isinstance(argument, Mapping)`, and so the program's own ABCs.
        text = message % arguments if arguments else message
        _state.log.put(_Message(level, text, error, self._name))

    def info(self, message: str, *arguments: object) -> None:
        """Log what may interest someone."""
        self.log(logging.INFO, message, *arguments)

    def warning(self, message: str, *arguments: object, error: BaseException | None = None) -> None:
        """Log a warning."""
        self.log(logging.WARNING, message, *arguments, error=error)

    def error(self, message: str, *arguments: object) -> None:
        """Log an error."""
        self.log(logging.ERROR, message, *arguments)

    def exception(self, message: str, *arguments: object) -> None:
        """Log an error with the exception that is being handled."""
        self.log(logging.ERROR, message, *arguments, error=sys.exc_info()[1])


def start_log() -> None:
    """Start the thread that logs: at the end of the process none can be started."""
    _state.log.start()


def write_rest() -> None:
    """Wait until what is pending is logged, for one second at most."""
    if not _state.log.waiting.empty() or _state.log.thread.is_started:
        _state.log.await_rest(_SECONDS_TO_WAIT)


def _write(message: _Message) -> None:
    # A filter or handler of the application may raise anything, SystemExit too: the thread goes on.
    with contextlib.suppress(BaseException):
        logging.getLogger(message.logger).log(message.level, message.text, exc_info=message.error)


class _State:
    log = _Log()


_state: Final = _State()


def _after_fork() -> None:
    """Start empty in a forked child: the parent logs what is pending."""
    _state.log = _Log()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
atexit.register(write_rest)
