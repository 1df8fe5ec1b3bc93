"""Whether the garbage collector runs on the calling thread, where that forbids to change the context.

Before Python 3.12 it runs in the middle of C code that allocates, `ContextVar.set` included. A generator that it closes
there, and that sets a variable on its way out, frees what the interrupted call is about to read: the process crashes.
"""

from __future__ import annotations

import gc
import os
import sys
from threading import get_ident
from typing import Any, Final

__all__ = ["is_collecting"]

_threads: Final[set[int]] = set()


def is_collecting() -> bool:
    """Return whether this code runs inside a collection that may have interrupted a change of the context."""
    return bool(_threads) and get_ident() in _threads


def _on_collection(phase: str, info: dict[str, Any]) -> None:
    if phase == "start":
        _threads.add(get_ident())
    else:
        _threads.discard(get_ident())


if sys.version_info < (3, 12):
    gc.callbacks.append(_on_collection)
    os.register_at_fork(after_in_child=_threads.clear)
