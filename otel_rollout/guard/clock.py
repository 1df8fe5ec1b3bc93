"""The monotonic clock, also where the program replaces `time.monotonic`, as freezegun does in its tests."""

from __future__ import annotations

import time
from functools import partial
from typing import Final

# Partials: freezegun replaces the clocks that are attributes of modules, and a function would cost more.
monotonic: Final = partial(time.monotonic)
"""Return the seconds of a clock that never goes back."""
monotonic_ns: Final = partial(time.monotonic_ns)
"""Return its nanoseconds."""
_time_ns: Final = partial(time.time_ns)


def clock_offset() -> int:
    """Return the nanoseconds from the monotonic clock's time to the time since 1970."""
    return _time_ns() - monotonic_ns()
