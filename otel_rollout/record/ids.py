"""Trace and span ids from the operating system's randomness.

The SDK's generator draws from `random`, which trainers seed alike in every worker: workers would make the same ids and
overwrite each other's traces.
"""

from __future__ import annotations

import os
import struct
from typing import Final

from opentelemetry.sdk.trace.id_generator import IdGenerator

# Drawn many at a time: os.urandom releases the GIL, and getting it back may take milliseconds.
_BATCH: Final = struct.Struct("512Q")
_drawn: Final[list[int]] = []

if hasattr(os, "register_at_fork"):
    # A forked child has a copy of its parent's numbers, and would make the same ids.
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
    """Generates ids that don't depend on a seed."""

    def generate_trace_id(self) -> int:
        """Return a non-zero 128-bit id."""
        return _draw() << 64 | _draw()

    def generate_span_id(self) -> int:
        """Return a non-zero 64-bit id."""
        return _draw()

    def is_trace_id_random(self) -> bool:
        """Return True: all bits are random (W3C Trace Context level 2)."""
        return True
