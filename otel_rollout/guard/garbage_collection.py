"""Make the garbage collector run less often."""

from __future__ import annotations

import gc
from typing import Final

FIRST_GENERATION: Final = 100_000
"""The new objects between two collections: a step has a million, none of them garbage."""


def collect_rarely() -> None:
    """Let the collector run less often, in a process of ours that reads many trajectories."""
    gc.set_threshold(FIRST_GENERATION, 50, 50)
