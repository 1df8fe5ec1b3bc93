"""A daemon thread that can be started from a traced call."""

from __future__ import annotations

import _thread
import builtins
import itertools
import threading
from collections.abc import Callable
from typing import Final, TypeVar

from otel_rollout.guard.guard import is_of_call
from otel_rollout.guard.signal_safe_lock import SignalSafeLock, wait_for

Result = TypeVar("Result")
_REFUSALS: Final[tuple[type[RuntimeError], ...]] = (
    RuntimeError,
    # Since Python 3.13.
    getattr(builtins, "PythonFinalizationError", RuntimeError),
)


class BackgroundThread:
    """Runs a function once, in a daemon thread, whatever signal handlers raise while it starts.

    `Thread.start` takes locks of the whole process and waits. An exception of a signal handler in there could leave
    them held, or start a second thread. So a thread of its own starts it: no handler runs in that one.

    Args:
        name: The thread's name.
        run: The function.
    """

    def __init__(self, name: str, run: Callable[[], None]) -> None:
        self._name = name
        self._run = run
        self._claims = itertools.count()
        self._ident: int | None = None
        self.is_started = False
        """False while no thread could be started: none can once the interpreter is exiting."""

    @property
    def is_current(self) -> bool:
        """True in the thread itself."""
        return self._ident == threading.get_ident()

    def start(self) -> None:
        """Start the thread, unless it is started."""
        if self.is_started:
            return
        self.is_started = True
        try:
            _thread.start_new_thread(self._start, ())
        except RuntimeError as error:
            # No thread can be had, or the interpreter is exiting.
            self.is_started = False
            if not is_of_call(error, *_REFUSALS):
                raise
        except BaseException:
            # The thread may be there all the same: of two the first one runs.
            self.is_started = False
            raise

    def run_here(self) -> None:
        """Run the function in the calling thread, unless it ran or runs already."""
        # One call of C code: of two threads only one gets the 0.
        if next(self._claims) == 0:
            self._ident = threading.get_ident()
            self._run()

    def _start(self) -> None:
        try:
            threading.Thread(target=self.run_here, name=self._name, daemon=True).start()
        except RuntimeError:
            # No further thread can be had.
            self.run_here()


def call_within(timeout: float, call: Callable[[], Result]) -> Result | None:
    """Return the result of `call`, which a background thread runs; None if it fails or takes longer.

    Args:
        timeout: Seconds to wait at most.
        call: The function.
    """
    results: list[Result | None] = []
    lock = SignalSafeLock()
    ended = threading.Condition(lock)

    def run() -> None:
        result = None
        try:
            result = call()
        finally:
            with lock:
                results.append(result)
                ended.notify()

    thread = BackgroundThread("otel-rollout-wait", run)
    thread.start()
    if not thread.is_started:
        thread.run_here()
    with lock:
        wait_for(ended, lambda: bool(results), timeout)
        return results[0] if results else None
