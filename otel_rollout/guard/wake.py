"""A wait of a thread, which ends in time whatever signal handlers do meanwhile."""

from __future__ import annotations

import threading

from otel_rollout.guard.provenance import is_programs


class Wake:
    """Ends one wait, also one that begins later.

    `SimpleQueue.get` waits for ever in Python up to 3.12, once a signal handler has taken longer than its timeout.
    A lock looks at the time again.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._lock.acquire()

    def set(self) -> None:
        """End the wait; from any thread, and from a signal handler inside this call."""
        if self._lock.locked():
            try:
                self._lock.release()
            except RuntimeError as error:
                # Another thread, or a handler in between, was first.
                if is_programs(error):
                    raise

    def wait(self, timeout: float | None = None) -> None:
        """Wait for `set`, at most `timeout` seconds; None: without end."""
        self._lock.acquire(timeout=-1 if timeout is None else max(0.0, timeout))
