"""The clocks of spans and deadlines; `testing` replaces them in one place."""

from __future__ import annotations

import time
from typing import Final

monotonic: Final = time.monotonic
"""Return the seconds of a clock that never goes back."""
monotonic_ns: Final = time.monotonic_ns
"""Return its nanoseconds."""


def clock_offset() -> int:
    """Return the nanoseconds from the monotonic clock's time to the time since 1970."""
    return time.time_ns() - monotonic_ns()
