"""The monotonic clock, also where the program replaces `time.monotonic`, as freezegun does in its tests."""

from __future__ import annotations

import time
from typing import Final

__all__ = ["monotonic"]

_REAL: Final = (time.monotonic,)
"""In a tuple: freezegun replaces the clocks that are attributes of modules."""


def monotonic() -> float:
    """Return the seconds of a clock that never goes back."""
    return _REAL[0]()
