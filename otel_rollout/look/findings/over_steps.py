"""The beginning and the end of a run, which checks over steps compare."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from statistics import median
from typing import Final, NamedTuple

from otel_rollout.catalog.step_signals import JudgedStep

LEAST_STEPS: Final = 4
"""The fewest steps that are compared."""
_PARTS: Final = 3
_LEAST_SHARE: Final = 0.5
"""The least trajectories of a step that is compared, by the number of a usual step."""
_ONSET: Final = 0.25
"""The part of a change that its first step must have."""


class Change(NamedTuple):
    """The mean of an amount in the first and in the last third of the steps.

    Args:
        first: The mean in the first third.
        last: The mean in the last third.
        steps: The steps that are compared.
        values: The amount in each.
    """

    first: float
    last: float
    steps: tuple[JudgedStep, ...]
    values: tuple[float, ...]

    @property
    def last_steps(self) -> tuple[JudgedStep, ...]:
        """The last third of the steps."""
        return self.steps[-(len(self.steps) // _PARTS) :]

    @property
    def onset(self) -> int | None:
        """The first step from which on the amount has changed by a quarter of the whole change or more."""
        mark, rises = self.first + _ONSET * (self.last - self.first), self.last > self.first
        start = len(self.values)
        while start and (self.values[start - 1] >= mark if rises else self.values[start - 1] <= mark):
            start -= 1
        return self.steps[min(start, len(self.steps) - 1)].step

    @property
    def trajectories(self) -> int:
        """The number of trajectories in the last third."""
        return sum(step.trajectories for step in self.last_steps)


def comparable_steps(steps: Sequence[JudgedStep]) -> list[JudgedStep]:
    """Return a run's training steps, without those that have begun or were cut off: few trajectories prove little.

    Args:
        steps: The steps, in order.
    """
    numbered = [step for step in steps if step.step is not None]
    usual = median(step.trajectories for step in numbered) if numbered else 0
    return [step for step in numbered if step.trajectories >= _LEAST_SHARE * usual]


def change_of(steps: Sequence[JudgedStep], amount: Callable[[JudgedStep], float | None]) -> Change | None:
    """Return the change of an amount over steps; None with fewer than four steps that have it.

    Args:
        steps: The steps, in order.
        amount: Returns a step's amount; None if it is unknown.
    """
    known = [(step, value) for step in steps if (value := amount(step)) is not None]
    if len(known) < LEAST_STEPS:
        return None
    third = len(known) // _PARTS
    values = [value for _, value in known]
    return Change(
        sum(values[:third]) / third, sum(values[-third:]) / third, tuple(step for step, _ in known), tuple(values)
    )
