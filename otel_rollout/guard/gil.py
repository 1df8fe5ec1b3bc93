"""Release the GIL now and then during a long piece of work."""

from __future__ import annotations

import time


class GilYielder:
    """Gives up the GIL for a moment after every 256 KiB of large pieces, so that an event loop is blocked for less.

    A waiting thread requests the GIL after 5 ms (`sys.getswitchinterval`) and gets it after the current piece; a sleep
    releases it immediately. Small pieces end soon enough, and cost less than a release.
    """

    def __init__(self) -> None:
        self._bytes = 0

    def worked(self, size: int) -> None:
        """Count a finished piece of `size` bytes, and release the GIL if it is time."""
        if size > 16 * 1024:
            self._bytes += size
            if self._bytes > 256 * 1024:
                self._bytes = 0
                time.sleep(50e-6)
