"""Letting other threads run while a long piece of work is done in small steps."""

from __future__ import annotations

import time
from typing import Final

__all__ = ["GilYielder"]

BYTES_BETWEEN: Final = 256 * 1024
LARGE_BYTES: Final = 16 * 1024
SECONDS: Final = 50e-6


class GilYielder:
    """Gives up the GIL for a moment after every 256 KiB of large pieces, so that an event loop stands still for less.

    A thread that waits for its turn asks for it after 5 ms (`sys.getswitchinterval`), and gets it when the piece at
    hand is done; one that sleeps hands it over at once. Small pieces are done soon enough, and handing over costs more.
    """

    def __init__(self) -> None:
        self._bytes = 0

    def worked(self, size: int) -> None:
        """Count a piece of `size` bytes as done, and take a breath where it is time."""
        if size > LARGE_BYTES:
            self._bytes += size
            if self._bytes > BYTES_BETWEEN:
                self._bytes = 0
                time.sleep(SECONDS)
