"""Letting other threads run while a long piece of work is done in small steps."""

from __future__ import annotations

import time
from typing import Final

__all__ = ["Breather"]

BYTES_BETWEEN: Final = 128 * 1024
SECONDS: Final = 50e-6


class Breather:
    """Gives up the GIL for a moment after every 128 KiB of work, so that an event loop stands still for less.

    A thread that only waits for its turn gets it after 5 ms at the earliest (`sys.getswitchinterval`). One that sleeps
    hands it over at once; the time that this takes is waiting, no work.
    """

    def __init__(self) -> None:
        self._bytes = 0

    def worked(self, size: int) -> None:
        """Count `size` bytes as worked on, and take a breath where it is time."""
        self._bytes += size
        if self._bytes > BYTES_BETWEEN:
            self._bytes = 0
            time.sleep(SECONDS)
