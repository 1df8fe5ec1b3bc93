"""What happens to queued spans when the process ends or forks."""

from __future__ import annotations

import atexit
import os
from collections.abc import Callable
from multiprocessing import util as multiprocessing_util
from typing import Final

__all__ = ["install"]


class _Exit:
    """Owns what is registered; a class, because the registrars want an owner."""

    is_installed = False


_exit: Final = _Exit()


def install(at_exit: Callable[[], None], after_fork: Callable[[], None]) -> None:
    """Register what is called at the end of the process, and in forked children; once per process.

    Args:
        at_exit: Delivers what is queued.
        after_fork: Empties what the child has inherited.
    """
    if _exit.is_installed:
        return
    _exit.is_installed = True

    def finalize_in_child() -> None:
        multiprocessing_util.Finalize(None, at_exit, exitpriority=100)

    atexit.register(at_exit)
    # A multiprocessing child leaves by os._exit, after these finalizers and without atexit.
    finalize_in_child()
    multiprocessing_util.register_after_fork(_exit, lambda owner: finalize_in_child())
    if hasattr(os, "register_at_fork"):
        os.register_at_fork(after_in_child=after_fork)
