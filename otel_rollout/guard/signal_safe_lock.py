"""A lock that an exception of a signal handler never leaves held, and a condition that hides no such exception."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

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


class SignalSafeCondition(threading.Condition):
    """A condition that the traced program's threads notify.

    threading's own `notify` takes a RuntimeError or ValueError that a handler raises meanwhile for one of its own.
    """

    def notify(self, n: int = 1) -> None:
        """Wake all threads that wait, however few are asked for; called with the lock held."""
        waiters = self._waiters  # type: ignore[attr-defined]
        while waiters:
            # The first was woken before, if a handler raised between these two lines then.
            if waiters[0].locked():
                waiters[0].release()
            waiters.popleft()


def wait_for(condition: threading.Condition, is_done: Callable[[], bool], timeout: float) -> None:
    """Wait until `is_done`, or until the time is up; called with the condition's lock held once.

    Args:
        condition: A condition of a `SignalSafeLock`.
        is_done: Returns True once the wait is over.
        timeout: Seconds to wait at most.
    """
    try:
        condition.wait_for(is_done, min(max(0.0, timeout), threading.TIMEOUT_MAX))
    except BaseException:
        # A handler that raises as the wait begins leaves the lock released, and the caller's `with` would fail on that.
        if not condition._is_owned():  # type: ignore[attr-defined] # noqa: SLF001
            condition.acquire()
        raise


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
