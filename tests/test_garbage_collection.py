"""Detecting the garbage collector on this thread."""

from __future__ import annotations

import gc
import sys
import threading

import pytest

from otel_rollout.guard import is_collecting

pytestmark = pytest.mark.skipif(sys.version_info >= (3, 12), reason="it runs between two instructions there")


class Garbage:
    """Is freed by the collector alone."""

    def __init__(self, seen: list[bool], *, in_thread: bool = False) -> None:
        self.itself = self
        self.seen = seen
        self.in_thread = in_thread

    def look(self) -> None:
        """Note whether a collection runs here."""
        self.seen.append(is_collecting())

    def __del__(self) -> None:
        if self.in_thread:
            thread = threading.Thread(target=self.look)
            thread.start()
            thread.join()
        else:
            self.look()


class TestIsCollecting:
    """Inside and outside of a collection."""

    def test_in_a_collection(self) -> None:
        """It is true for code that the collector runs, and false before and after."""
        seen: list[bool] = []
        Garbage(seen)
        assert not is_collecting()
        gc.collect()
        assert seen == [True]
        assert not is_collecting()

    def test_on_another_thread(self) -> None:
        """It is false on a thread that runs meanwhile."""
        seen: list[bool] = []
        Garbage(seen, in_thread=True)
        gc.collect()
        assert seen == [False]
