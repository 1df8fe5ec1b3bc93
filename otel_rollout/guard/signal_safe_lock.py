"""A lock that an exception of a signal handler never leaves held."""

from __future__ import annotations

import sys
import threading
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from _thread import RLock
else:
    RLock = type(threading.RLock())


class SignalSafeLock(RLock):  # type: ignore[misc]
    """A reentrant lock for `with` statements that the traced program's threads run.

    From Python 3.14 on, a handler may raise between the taking of a lock and the beginning of the `with` block, which
    then never releases it: all other threads would wait for ever.

    Source: https://github.com/python/cpython/issues/148874
    """

    if sys.version_info >= (3, 14):
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
