"""A lock that an exception of a signal handler never leaves held."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

from otel_rollout.guard.guard import is_of_call

__all__ = ["SignalSafeLock", "notify", "renew_locks", "wait_for"]

if TYPE_CHECKING:
    from _thread import RLock
else:
    RLock = type(threading.RLock())


_LOCKS: Final = (type(threading.Lock()), type(threading.RLock()))
_IS_NEEDED: Final = sys.version_info >= (3, 14)


class SignalSafeLock(RLock):  # type: ignore[misc]
    """A reentrant lock for `with` statements that the traced program's threads run.

    From Python 3.14 on, a handler may raise between the taking of a lock and the beginning of the `with` block, which
    then never releases it: all other threads would wait for ever.

    Source: https://github.com/python/cpython/issues/148874
    """

    if _IS_NEEDED:
        # Only taking is mended: Python code in `__exit__` could be interrupted before it releases.
        def __enter__(self) -> bool:  # type: ignore[override]
            """Take the lock; an exception that comes after that releases it."""
            try:
                self.acquire()
            except BaseException:
                if self._is_owned():  # type: ignore[attr-defined]
                    self.release()
                raise
            return True


def wait_for(condition: threading.Condition, is_done: Callable[[], bool], timeout: float) -> None:
    """Wait until `is_done`, or until the time is up; called with the condition's lock held once.

    Args:
        condition: A condition of a `SignalSafeLock`.
        is_done: What is waited for.
        timeout: Seconds to wait at most.
    """
    try:
        condition.wait_for(is_done, min(max(0.0, timeout), threading.TIMEOUT_MAX))
    except BaseException:
        # A handler that raises as the wait begins leaves the lock released, and the caller's `with` would fail on that.
        if not condition._is_owned():  # type: ignore[attr-defined] # noqa: SLF001
            condition.acquire()
        raise


def notify(condition: threading.Condition) -> None:
    """Wake whoever waits; called with the condition's lock held.

    `Condition.notify` takes a RuntimeError of a signal handler for the one of a lock that is released twice.
    """
    waiters = condition._waiters  # type: ignore[attr-defined] # noqa: SLF001
    for waiter in [*waiters]:
        try:
            waiter.release()
        except RuntimeError as error:
            # Released by a call that was interrupted before it removed the lock.
            if not is_of_call(error, RuntimeError):
                raise
        if waiter in waiters:
            waiters.remove(waiter)


def renew_locks(*owners: Any) -> None:
    """Give objects of other packages a `SignalSafeLock` for the lock `_lock` that they made; before they are used.

    Args:
        owners: The objects; one without such a lock stays as it is.
    """
    if not _IS_NEEDED:
        return
    for owner in owners:
        if type(getattr(owner, "_lock", None)) in _LOCKS:
            owner._lock = SignalSafeLock()  # noqa: SLF001
