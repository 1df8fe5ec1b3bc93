"""What happens to queued spans when the process ends or forks."""

from __future__ import annotations

import atexit
import os
from multiprocessing import util as multiprocessing_util
from typing import Final

__all__ = ["install"]


class _Exit:
    """Registers the shutdown with whatever ends this kind of process; a class, because its registrars want an owner."""

    is_installed = False


_exit: Final = _Exit()


def install() -> None:
    """Deliver what is queued at the end of the process, and start empty in forked children; once per process."""
    if _exit.is_installed:
        return
    _exit.is_installed = True
    atexit.register(_at_exit)
    # A multiprocessing child leaves by os._exit, after these finalizers and without atexit.
    _finalize_in_child()
    multiprocessing_util.register_after_fork(_exit, lambda owner: _finalize_in_child())
    if hasattr(os, "register_at_fork"):
        os.register_at_fork(after_in_child=_after_fork)


def _finalize_in_child() -> None:
    multiprocessing_util.Finalize(None, _at_exit, exitpriority=100)


def _at_exit() -> None:
    from otel_rollout.config import shutdown_at_exit

    shutdown_at_exit()


def _after_fork() -> None:
    from otel_rollout import config

    config.after_fork()
