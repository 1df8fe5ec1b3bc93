"""Locks that the traced program's threads take, while signal handlers raise."""

from __future__ import annotations

import signal
import sys
import threading
import time
from collections.abc import Iterator
from types import FrameType
from typing import Any

import pytest

from otel_rollout.guard import SignalSafeCondition, SignalSafeLock, wait_for

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


@pytest.mark.parametrize("raised", [RuntimeError, ValueError, KeyboardInterrupt])
def test_a_notification_hides_no_exception(raised: type[BaseException]) -> None:
    """Whatever a handler raises at any line passes through, and the next notification wakes the thread that waits."""
    passed = 0
    for line in range(20):
        condition = SignalSafeCondition(SignalSafeLock())
        woken = threading.Event()

        def wait(condition: threading.Condition = condition, woken: threading.Event = woken) -> None:
            with condition:
                condition.wait(60)
            woken.set()

        waiting = threading.Thread(target=wait)
        waiting.start()
        while not condition._waiters:  # type: ignore[attr-defined]
            time.sleep(0.001)
        left = line

        def trace(frame: FrameType, event: str, argument: Any) -> Any:
            nonlocal left
            if frame.f_code.co_name != "notify":
                return None
            if event == "line":
                left -= 1
                if left < 0:
                    raise raised("time is up")
            return trace

        previous = sys.gettrace()
        with condition:
            sys.settrace(trace)
            try:
                condition.notify()
            except raised:
                passed += 1
            finally:
                sys.settrace(previous)
            condition.notify()
        waiting.join()
        assert woken.is_set()
        if left >= 0:
            break
        assert passed == line + 1
    assert passed >= 4
