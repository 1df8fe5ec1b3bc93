"""Make the garbage collector run less often, and detect that it runs on the calling thread.

The context must not be changed meanwhile. Before Python 3.12 it may run inside C code that allocates,
`ContextVar.set` included. If it closes a generator there whose `finally` sets a variable, memory that the interrupted
call still reads is freed: the process crashes.
"""

from __future__ import annotations

import gc
import sys
import threading
from collections import OrderedDict
from collections.abc import Callable
from functools import partial
from typing import Any, Final

FIRST_GENERATION: Final = 100_000
"""The new objects between two collections: a step has a million, none of them garbage."""


def collect_rarely() -> None:
    """Let the collector run less often, in a process of ours that reads many trajectories."""
    gc.set_threshold(FIRST_GENERATION, 50, 50)


if sys.version_info >= (3, 12):

    def is_collecting() -> bool:
        """Return False: the collector runs between two instructions."""
        return False

else:
    # The collector calls these with its phase, `start` or `stop`, and a new dict each time. All are C code: the
    # exception of a signal handler would be lost in a callback that is Python code.
    _phases: OrderedDict[str, None] = OrderedDict(start=None, stop=None)
    _RUNNING: Final[OrderedDict[str, None]] = OrderedDict(stop=None, start=None)
    _details: dict[str, Any] = {}
    _of_thread = threading.local()
    _to_end: Callable[[str, Any], None] = _phases.move_to_end
    # gevent's local is no C code, and fails at the end of the process: under gevent, all threads count as collecting.
    _IS_OF_THREAD: Final = type(_of_thread).__module__ == "_thread"
    gc.callbacks += [_details.__setitem__, *([partial(setattr, _of_thread)] if _IS_OF_THREAD else []), _to_end]

    def is_collecting() -> bool:
        """Return True inside a collection, which may have interrupted a change of the context."""
        if not _IS_OF_THREAD:
            return _phases == _RUNNING
        # The order of the phases is compared in one step: a collection may begin between two.
        return _phases == _RUNNING and getattr(_of_thread, "start", None) is _details["start"]
