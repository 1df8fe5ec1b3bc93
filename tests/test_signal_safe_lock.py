"""Locks that the traced program's threads take, while signal handlers raise."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Iterator

import pytest

from otel_rollout.guard.signal_safe_lock import SignalSafeLock, notify, wait_for

pytestmark = pytest.mark.skipif(not hasattr(signal, "setitimer"), reason="this platform has no timers by signal")


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


def test_a_wait_that_is_interrupted_as_it_begins() -> None:
    """The exception passes through the `with` statement, though `wait` had let go of the lock."""

    class Interrupted(SignalSafeLock):  # type: ignore[misc]
        def _release_save(self) -> None:
            super()._release_save()
            raise AlarmError

    lock = Interrupted()
    condition = threading.Condition(lock)
    with pytest.raises(AlarmError), lock:
        wait_for(condition, lambda: False, 10)


@pytest.mark.parametrize("is_done", [True, False])
def test_a_wait(is_done: bool) -> None:
    """It ends when what it waits for is there, or when the time is up, also one that is up before."""
    lock = SignalSafeLock()
    condition = threading.Condition(lock)
    start = time.monotonic()
    with lock:
        wait_for(condition, lambda: is_done, 60 if is_done else -1)
    assert time.monotonic() - start < 30


def test_a_runtime_error_while_a_waiter_wakes() -> None:
    """A handler's RuntimeError passes as a waiter is woken; the next call wakes it."""

    class Interrupted:
        """A lock that a signal comes to as it is released."""

        def release(self) -> None:
            raise RuntimeError("time is up")

    condition = threading.Condition(SignalSafeLock())
    condition._waiters.append(Interrupted())  # type: ignore[attr-defined]
    with pytest.raises(RuntimeError, match="time is up"), condition:
        notify(condition)
    assert len(condition._waiters) == 1  # type: ignore[attr-defined]
