"""The beginning and the end of a run, which checks over steps compare."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from statistics import median
from typing import Final, NamedTuple

from otel_rollout.catalog.step_signals import JudgedStep
from otel_rollout.facts.amounts import error_of_mean

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
        first_error: The standard error of the first mean.
        last_error: The same of the last.
    """

    first: float
    last: float
    steps: tuple[JudgedStep, ...]
    values: tuple[float, ...]
    first_error: float
    last_error: float

    @property
    def error(self) -> float:
        """The standard error of the change."""
        return math.hypot(self.first_error, self.last_error)

    @property
    def ratio_error(self) -> float:
        """The standard error of the last mean by the first, which is above 0."""
        return math.hypot(self.last_error, self.last / self.first * self.first_error) / self.first

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


def change_of(
    steps: Sequence[JudgedStep],
    amount: Callable[[JudgedStep], float | None],
    error: Callable[[JudgedStep], float] = lambda _step: 0.0,
) -> Change | None:
    """Return the change of an amount over steps; None with fewer than four steps that have it.

    Args:
        steps: The steps, in order.
        amount: Returns a step's amount; None if it is unknown.
        error: Returns the standard error of a step's amount.
    """
    known = [(step, value) for step in steps if (value := amount(step)) is not None]
    if len(known) < LEAST_STEPS:
        return None
    third = len(known) // _PARTS
    compared, values = tuple(step for step, _ in known), tuple(value for _, value in known)
    first, last = sum(values[:third]) / third, sum(values[-third:]) / third
    errors = (math.hypot(*map(error, part)) / third for part in (compared[:third], compared[-third:]))
    return Change(first, last, compared, values, *errors)


def error_of_share(number: int, total: int) -> float:
    """Return the standard error of a share, which is above 0 also for a share of none or of all."""
    share = (number + 1) / (total + 2)
    return math.sqrt(share * (1 - share) / max(1, total))


def error_of_tokens(step: JudgedStep) -> float:
    """Return the standard error of the mean output tokens of a step; the rollouts of a prompt count as one."""
    known = [tokens for _, _, tokens in step.signals.prompts.values() if tokens is not None]
    return error_of_mean(known)
