"""The beginning and the end of a run, which checks over steps compare."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

from otel_rollout.analysis.step_summary import StepSummary

__all__ = ["LEAST_STEPS", "Change", "change_of"]

LEAST_STEPS: Final = 4
"""The fewest steps that are compared."""
_PARTS: Final = 3


class Change(NamedTuple):
    """The mean of an amount in the first and in the last third of the steps."""

    first: float
    last: float


def change_of(steps: Sequence[StepSummary], amount: Callable[[StepSummary], float | None]) -> Change | None:
    """Return the change of an amount over steps; None with fewer than four steps that have it.

    Args:
        steps: The steps, in order.
        amount: Returns a step's amount; None if it is unknown.
    """
    known = [value for value in map(amount, steps) if value is not None]
    if len(known) < LEAST_STEPS:
        return None
    third = len(known) // _PARTS
    return Change(sum(known[:third]) / third, sum(known[-third:]) / third)
