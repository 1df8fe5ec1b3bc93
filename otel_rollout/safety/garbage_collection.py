"""Whether the garbage collector runs on the calling thread, where that forbids to change the context.

Before Python 3.12 it runs in the middle of C code that allocates, `ContextVar.set` included. A generator that it closes
there, and that sets a variable on its way out, frees what the interrupted call is about to read: the process crashes.
"""

from __future__ import annotations

import gc
import sys
import threading
from collections import OrderedDict
from collections.abc import Callable
from functools import partial
from typing import Any, Final

__all__ = ["is_collecting"]

if sys.version_info >= (3, 12):

    def is_collecting() -> bool:
        """Return False: the collector runs between two instructions."""
        return False

else:
    # The collector calls these with its phase, `start` or `stop`, and a dict that is new each time. All are C code:
    # what a signal handler raises in a callback that is Python code would be lost.
    _phases: OrderedDict[str, None] = OrderedDict(start=None, stop=None)
    _RUNNING: Final[OrderedDict[str, None]] = OrderedDict(stop=None, start=None)
    _details: dict[str, Any] = {}
    _of_thread = threading.local()
    _to_end: Callable[[str, Any], None] = _phases.move_to_end
    gc.callbacks += [_details.__setitem__, partial(setattr, _of_thread), _to_end]

    def is_collecting() -> bool:
        """Return whether this code runs inside a collection that may have interrupted a change of the context."""
        # Compared with their order, and in one step: a collection may begin between any two.
        return _phases == _RUNNING and getattr(_of_thread, "start", None) is _details["start"]
