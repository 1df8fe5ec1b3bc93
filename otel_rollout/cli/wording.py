"""Sizes and steps in words."""

from __future__ import annotations

__all__ = ["size", "step_name"]


def size(count: int) -> str:
    """Return a number of bytes in a unit that suits it."""
    amount = float(count)
    for unit in ("B", "kB", "MB"):
        if amount < 999.5:
            return f"{amount:.0f} B" if unit == "B" else f"{amount:.3g} {unit}"
        amount /= 1000
    return f"{amount:.3g} GB" if amount < 999.5 else f"{amount / 1000:.4g} TB"


def step_name(step: int | None, *, validate: bool) -> str:
    """Return what a step is called in a table: its number, and whether it is the step's validation."""
    name = "none" if step is None else str(step)
    return f"{name} val" if validate else name
