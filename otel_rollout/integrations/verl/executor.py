"""Threads that keep their trajectory: `run_in_executor` drops the context of whoever calls it.

`asyncio.to_thread` keeps it; verl's reward managers and tool parsers use `loop.run_in_executor(None, …)`.
"""

from __future__ import annotations

import asyncio
import contextvars
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, Final
from weakref import WeakSet

from otel_rollout.log_once import internal_error

__all__ = ["keep_context"]

_loops: Final[WeakSet[Any]] = WeakSet()


class _ContextThreadPoolExecutor(ThreadPoolExecutor):
    """A thread pool whose work runs in a copy of its submitter's context."""

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        """Run a function in a thread."""
        return super().submit(contextvars.copy_context().run, fn, *args, **kwargs)


def keep_context() -> None:
    """Give the running event loop a default executor that keeps the context, unless it has an executor already."""
    try:
        loop = asyncio.get_running_loop()
        if loop in _loops:
            return
        _loops.add(loop)
        if getattr(loop, "_default_executor", None) is None:
            loop.set_default_executor(_ContextThreadPoolExecutor(thread_name_prefix="asyncio"))
    except Exception:  # noqa: BLE001, RUF100 - tracing never reaches the traced program
        internal_error("keeping the context in threads")
