"""Trace and span ids from the operating system's randomness.

Trainers seed `random` alike in every worker, and the SDK's generator draws from it: workers would make the same ids
and overwrite each other's traces.
"""

from __future__ import annotations

import os
import struct
from typing import Final

from opentelemetry.sdk.trace.id_generator import IdGenerator

__all__ = ["SystemIdGenerator"]

# Drawn many at a time: os.urandom gives up the interpreter lock, and whoever waits for it takes milliseconds.
_BATCH: Final = struct.Struct("512Q")
_drawn: Final[list[int]] = []

if hasattr(os, "register_at_fork"):
    # A forked child has a copy of what its parent has drawn, and would make the same ids.
    os.register_at_fork(after_in_child=_drawn.clear)


def _draw() -> int:
    """Return 64 random bits, not all zero."""
    try:
        return _drawn.pop()
    except IndexError:
        numbers = [number for number in _BATCH.unpack(os.urandom(_BATCH.size)) if number]
        own: int = numbers.pop()
        _drawn.extend(numbers)
        return own


class SystemIdGenerator(IdGenerator):
    """An id generator that no seed reaches."""

    def generate_trace_id(self) -> int:
        """Return a non-zero 128-bit id."""
        return _draw() << 64 | _draw()

    def generate_span_id(self) -> int:
        """Return a non-zero 64-bit id."""
        return _draw()

    def is_trace_id_random(self) -> bool:
        """Return True: all bits are random (W3C Trace Context level 2)."""
        return True
