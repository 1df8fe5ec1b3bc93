"""Words that go with numbers."""

from __future__ import annotations

__all__ = ["counted", "trajectories"]


def counted(number: int, noun: str) -> str:
    """Return the number with its noun, in the plural where that is due."""
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"


def trajectories(number: int) -> str:
    """Return a number of trajectories in words."""
    return f"{number:,} {'trajectory' if number == 1 else 'trajectories'}"
