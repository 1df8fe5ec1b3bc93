"""Starting a thread from a traced call."""

from __future__ import annotations

import _thread
import signal
import threading
from collections.abc import Callable
from typing import Any

import pytest

from otel_rollout.guard import BackgroundThread
from tests.delivery.queues import until

pytestmark = pytest.mark.every_python


class Work:
    """Notes the names of the threads that ran it."""

    def __init__(self) -> None:
        self.threads: list[str] = []

    def __call__(self) -> None:
        """Run."""
        self.threads.append(threading.current_thread().name)


def test_it_runs_once() -> None:
    """A thread that is started again runs no second time."""
    work = Work()
    thread = BackgroundThread("worker", work)
    assert not thread.is_started
    for _ in range(3):
        thread.start()
    until(lambda: bool(work.threads))
    thread.run_here()
    assert (thread.is_started, work.threads) == (True, ["worker"])


def test_without_a_thread() -> None:
    """If no thread can be started, it isn't started, and can be run by the caller."""
    work = Work()
    thread = BackgroundThread("worker", work)
    usual = threading.stack_size(1 << 46)
    try:
        thread.start()
    finally:
        threading.stack_size(usual)
    assert not thread.is_started
    thread.run_here()
    assert work.threads == [threading.current_thread().name]
    assert thread.is_current


def test_without_a_second_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    """If the thread that starts it can't, that one runs it."""

    def refuse(_: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    work = Work()
    thread = BackgroundThread("worker", work)
    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", refuse)
        thread.start()
        until(lambda: bool(work.threads))
    assert thread.is_started
    assert work.threads != [threading.current_thread().name]


class AlarmError(RuntimeError):
    """The exception of a handler; of a class that `start_new_thread` raises too."""


@pytest.mark.parametrize("raised", [AlarmError, RuntimeError])
@pytest.mark.parametrize("is_started", [False, True], ids=["before", "after"])
def test_interrupted_start(monkeypatch: pytest.MonkeyPatch, is_started: bool, raised: type[RuntimeError]) -> None:
    """A handler's exception passes, and the next start begins where no thread runs: never two."""
    start_new_thread: Callable[..., int] = _thread.start_new_thread

    def on_alarm(number: int, frame: object) -> None:
        raise raised("time is up")

    def interrupted(*arguments: Any) -> int:
        if is_started:
            start_new_thread(*arguments)
        signal.raise_signal(signal.SIGUSR1)
        raise AssertionError("not reached")

    work = Work()
    thread = BackgroundThread("worker", work)
    previous = signal.signal(signal.SIGUSR1, on_alarm)
    try:
        with monkeypatch.context() as patch:
            patch.setattr(_thread, "start_new_thread", interrupted)
            with pytest.raises(raised):
                thread.start()
    finally:
        signal.signal(signal.SIGUSR1, previous)
    assert not thread.is_started
    thread.start()
    until(lambda: bool(work.threads))
    until(lambda: not any(other.name == "worker" for other in threading.enumerate()))
    assert work.threads == ["worker"]
