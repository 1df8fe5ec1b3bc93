"""An event loop whose time passes only while all its tasks wait: a deadline is never missed for want of a processor."""

from __future__ import annotations

import asyncio
import selectors
from collections.abc import Coroutine
from typing import Any, TypeVar

T = TypeVar("T")


class _Selector(selectors.DefaultSelector):
    skipped = 0.0

    def select(self, timeout: float | None = None) -> Any:
        """Return what is ready now; where nothing is, the time that would have been waited has passed."""
        ready = super().select(0 if timeout is not None else None)
        if not ready and timeout:
            self.skipped += timeout
        return ready


class _Loop(asyncio.SelectorEventLoop):
    def __init__(self) -> None:
        self._own_selector = _Selector()
        super().__init__(self._own_selector)

    def time(self) -> float:
        """Return how many seconds all tasks have waited together."""
        return self._own_selector.skipped


def run(coroutine: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine as `asyncio.run` does."""
    loop = _Loop()
    try:
        return loop.run_until_complete(coroutine)
    finally:
        loop.close()
