"""Locks that the traced program's threads take, while signal handlers raise."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator

import pytest

from otel_rollout.guard import SignalSafeLock

pytestmark = [
    pytest.mark.every_python,
    pytest.mark.skipif(not hasattr(signal, "setitimer"), reason="this platform has no timers by signal"),
]


class AlarmError(Exception):
    """The exception of a handler of SIGALRM."""


@pytest.fixture
def _alarm() -> Iterator[None]:
    """A handler that raises."""

    def on_alarm(number: int, frame: object) -> None:
        raise AlarmError

    previous = signal.signal(signal.SIGALRM, on_alarm)
    yield
    signal.signal(signal.SIGALRM, previous)


def _is_free(lock: SignalSafeLock) -> bool:
    """Return whether another thread gets the lock."""
    found: list[bool] = []
    other = threading.Thread(target=lambda: found.append(lock.acquire(timeout=0)))
    other.start()
    other.join()
    return found == [True]


def _take_until_alarm(lock: SignalSafeLock) -> None:
    signal.setitimer(signal.ITIMER_REAL, 0.0001)
    while True:
        for _ in range(1000):
            with lock:
                pass


@pytest.mark.usefixtures("_alarm")
def test_a_handler_that_raises_leaves_the_lock_free() -> None:
    """Wherever a handler raises in a `with` statement, another thread gets the lock after it."""
    for _ in range(300):
        lock = SignalSafeLock()
        with pytest.raises(AlarmError):
            _take_until_alarm(lock)
        assert _is_free(lock)


def test_it_is_reentrant() -> None:
    """A signal handler, or the garbage collector, may take it while its thread has it."""
    lock = SignalSafeLock()
    with lock, lock:
        pass
    assert lock.acquire(blocking=False)
