"""A daemon thread that is started when there is work."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TypeVar

Result = TypeVar("Result")


class BackgroundThread:
    """Runs a function once, in a daemon thread."""

    def __init__(self, name: str, run: Callable[[], None]) -> None:
        self._name = name
        self._run = run
        self._claim = threading.Lock()
        self._ident: int | None = None
        self._thread: threading.Thread | None = None
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
            self._thread = threading.Thread(target=self.run_here, name=self._name, daemon=True)
            self._thread.start()
        except RuntimeError:
            # No thread can be had, or the interpreter is exiting.
            self.is_started = False

    def join(self, timeout: float) -> None:
        """Wait until the thread ends."""
        if self._thread is not None and self.is_started:
            self._thread.join(min(max(0.0, timeout), threading.TIMEOUT_MAX))

    def run_here(self) -> None:
        """Run the function in the calling thread, unless it ran or runs already."""
        if self._claim.acquire(blocking=False):
            self._ident = threading.get_ident()
            self._run()


def call_within(timeout: float, call: Callable[[], Result]) -> Result | None:
    """Return the result of `call`, which a background thread runs; None if it fails or takes longer."""
    results: list[Result] = []
    thread = BackgroundThread("otel-rollout-wait", lambda: results.append(call()))
    thread.start()
    if not thread.is_started:
        thread.run_here()
    thread.join(timeout)
    return results[0] if results else None
