"""What happens to queued spans when the process ends or forks."""

from __future__ import annotations

import atexit
import os
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing import util as multiprocessing_util
from types import FrameType
from typing import Any, ClassVar, Final

from otel_rollout import runtime

__all__ = ["install", "install_sigterm_handler"]


class _Exit:
    """Registers the shutdown with whatever ends this kind of process; a class, because its registrars want an owner."""

    is_installed = False
    previous_sigterm: Any = None
    is_delivering = False
    is_delivered = False
    shutting_down: ClassVar[set[int]] = set()
    """The threads that shut tracing down: the second one finds nothing to do, and must not end the wait."""
    must_end = False


_exit: Final = _Exit()


def install() -> None:
    """Deliver what is queued at the end of the process, and start empty in forked children; once per process."""
    if _exit.is_installed:
        return
    _exit.is_installed = True
    atexit.register(_at_exit)
    # A multiprocessing child leaves by os._exit, after these finalizers and without atexit.
    _finalize_in_child()
    multiprocessing_util.register_after_fork(_exit, lambda owner: _finalize_in_child())
    if hasattr(os, "register_at_fork"):
        os.register_at_fork(after_in_child=_after_fork)


def install_sigterm_handler() -> None:
    """On SIGTERM deliver what is queued, then do what the process did before; only possible in the main thread."""
    if threading.current_thread() is not threading.main_thread():
        from otel_rollout.log_once import warn_once

        warn_once("sigterm", "handle_sigterm: init was not called in the main thread; SIGTERM is left as it is")
        return
    current = signal.getsignal(signal.SIGTERM)
    if current is not _on_sigterm:
        _exit.previous_sigterm = current
        signal.signal(signal.SIGTERM, _on_sigterm)


def uninstall_sigterm_handler() -> None:
    """Put the previous SIGTERM handler back; for tests and `shutdown`."""
    if threading.current_thread() is threading.main_thread() and signal.getsignal(signal.SIGTERM) is _on_sigterm:
        signal.signal(signal.SIGTERM, _exit.previous_sigterm or signal.SIG_DFL)


def _finalize_in_child() -> None:
    multiprocessing_util.Finalize(None, _at_exit, exitpriority=100)


def _at_exit() -> None:
    from otel_rollout.config import shutdown

    if runtime.pipeline is not None:
        shutdown()


def _after_fork() -> None:
    from otel_rollout import config

    config.after_fork()
    _exit.is_delivering = _exit.is_delivered = _exit.must_end = False
    _exit.shutting_down.clear()
    if runtime.pipeline is not None:
        runtime.pipeline.after_fork()


@contextmanager
def sigterm_waits() -> Iterator[None]:
    """Let a SIGTERM that comes while tracing is shut down wait for the end of that; then our handler is gone."""
    thread = threading.get_ident()
    _exit.shutting_down.add(thread)
    try:
        yield
    finally:
        _exit.shutting_down.discard(thread)
        if not _exit.shutting_down:
            uninstall_sigterm_handler()
        if _exit.must_end and not _exit.shutting_down:
            _exit.must_end = False
            os.kill(os.getpid(), signal.SIGTERM)


def _on_sigterm(number: int, frame: FrameType | None) -> None:
    if _exit.is_delivering and not _exit.is_delivered:
        # Who ends a process may say so to its group as well: the second one waits for the first.
        return
    if _exit.shutting_down and not _exit.is_delivering:
        _exit.must_end = True
    elif runtime.pipeline is None or _exit.is_delivered:
        _exit.is_delivering = _exit.is_delivered = False
        _pass_on(number, frame)
    else:
        _exit.is_delivering = True
        # In a thread: the main thread is stopped anywhere, holding a lock perhaps that delivery needs, a logger's say.
        # Not a daemon, so that the interpreter doesn't exit meanwhile.
        try:
            threading.Thread(target=_deliver, name="otel-rollout-sigterm", daemon=False).start()
        except RuntimeError:
            # The interpreter is exiting, or there can't be more threads.
            _deliver()


def _deliver() -> None:
    """Deliver what is queued, then have the signal come again for the handler that was there before ours."""
    from otel_rollout.config import flush

    pipeline = runtime.pipeline
    try:
        if _exit.previous_sigterm in (signal.SIG_DFL, None):
            _at_exit()
        elif pipeline is not None:
            # The program may live on, or write its checkpoint first: it is traced until it ends.
            flush(pipeline.settings.shutdown_timeout_ms / 1000)
    finally:
        _exit.is_delivered = True
        main_thread = threading.main_thread().ident
        while _exit.is_delivered and main_thread is not None:
            # To the main thread, and again: one that comes just before a system call does not interrupt it.
            signal.pthread_kill(main_thread, signal.SIGTERM)
            time.sleep(0.1)


def _pass_on(number: int, frame: FrameType | None) -> None:
    previous = _exit.previous_sigterm
    if callable(previous):
        previous(number, frame)
    elif previous is not signal.SIG_IGN:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        os.kill(os.getpid(), signal.SIGTERM)
