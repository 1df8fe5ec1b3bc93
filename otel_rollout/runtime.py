"""The one piece of global state: what the process traces with, or None while tracing is off.

Decorated functions look it up through this module on each call, so that they pickle by reference to it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from otel_rollout.pipeline import Pipeline

__all__ = ["pipeline"]

pipeline: Pipeline | None = None
