"""Trace and span ids from the operating system's randomness.

Trainers seed `random` alike in every worker, and the SDK's generator draws from it: workers would make the same ids
and overwrite each other's traces. `os.urandom` needs no reset in a forked child.
"""

from __future__ import annotations

import os

from opentelemetry.sdk.trace.id_generator import IdGenerator

__all__ = ["SystemIdGenerator"]


class SystemIdGenerator(IdGenerator):
    """An id generator that no seed reaches."""

    def generate_trace_id(self) -> int:
        """Return a non-zero 128-bit id."""
        return int.from_bytes(os.urandom(16), "big") or 1

    def generate_span_id(self) -> int:
        """Return a non-zero 64-bit id."""
        return int.from_bytes(os.urandom(8), "big") or 1

    def is_trace_id_random(self) -> bool:
        """Return True: all bits are random (W3C Trace Context level 2)."""
        return True
