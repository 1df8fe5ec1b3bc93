"""Intervals and tests for the change of a mean, from the standard library only.

A change is tested by Student's t over prompts: of prompts that both runs have, over their differences; else by Welch's
unequal variances (Biometrika 34, 1947). The rollouts of one prompt are alike, and so count as one. Durations are alike
in one step too, as they share a machine and its load: of the errors over prompts and over steps the larger one is
taken, which is safe where few clusters make the two-way estimate of Cameron, Gelbach and Miller (JBES 29, 2011)
unreliable. Flipped prompts are counted by the exact sign test, which is McNemar's test of pairs (Psychometrika 12,
1947). The p-values of all figures are adjusted for their number by Holm's step-down method (Scandinavian
Journal of Statistics 6, 1979), rewards apart from all others: the chance of calling anything a change while
nothing is one stays below 5 percent.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import lru_cache
from typing import Final, NamedTuple

from otel_rollout.facts.amounts import error_of_mean, mean_of

LEVEL: Final = 0.95
"""The level of intervals, and of the test."""
LEAST_UNITS: Final = 8
"""The fewest prompts, of each run if they aren't paired, that an interval is made of."""
LEAST_STEPS: Final = 4
"""The fewest steps that an interval is made of."""
_MOST_FREEDOM: Final = 500
"""Beyond it Student's t differs from itself by less than 0.1 percent."""

_ROUNDING: Final = 1e-9
_DIGITS: Final = 12


class Estimate(NamedTuple):
    """The change of a mean.

    Args:
        change: The second mean minus the first.
        error: Its standard error.
        freedom: The degrees of freedom of the error.
    """

    change: float
    error: float
    freedom: int

    @property
    def low(self) -> float:
        """The lower end of the change's interval."""
        return self.change - quantile_of_t(self.freedom) * self.error

    @property
    def high(self) -> float:
        """The upper end."""
        return self.change + quantile_of_t(self.freedom) * self.error

    @property
    def p(self) -> float:
        """The probability of such a change, or a larger one, if there is none."""
        if not self.change:
            return 1.0
        return tail_of_t(self.change / self.error if self.error else math.inf, self.freedom)

    def with_error_of(self, other: Estimate | None) -> Estimate:
        """Return this change with the larger one of two errors."""
        if other is None or other.error <= self.error:
            return self
        return Estimate(self.change, other.error, other.freedom)


def paired(pairs: Sequence[tuple[float, float]], least: int) -> Estimate | None:
    """Return the mean of the changes from the first to the second of each pair; None for fewer pairs than `least`."""
    if len(pairs) < least:
        return None
    changes = [after - before for before, after in pairs]
    size = max(abs(value) for pair in pairs for value in pair)
    return _estimate(mean_of(changes), error_of_mean(changes), len(pairs) - 1, size)


def unpaired(before: Sequence[float], after: Sequence[float], least: int) -> Estimate | None:
    """Return the change of the mean between two samples; None if one has fewer than `least`."""
    if min(len(before), len(after)) < least:
        return None
    one, other = error_of_mean(before), error_of_mean(after)
    error = math.hypot(one, other)
    freedom = math.inf
    if error:
        # Welch and Satterthwaite, of shares, whose powers don't overflow; a whole number of degrees below it is safe.
        freedom = 1 / ((one / error) ** 4 / (len(before) - 1) + (other / error) ** 4 / (len(after) - 1))
    size = max(map(abs, (*before, *after)))
    return _estimate(mean_of(after) - mean_of(before), error, freedom, size)


def sign_test(more: int, fewer: int) -> float:
    """Return the probability of counts as uneven as these, or more so, if both signs are as likely."""
    total, least = more + fewer, min(more, fewer)
    tail = sum(math.comb(total, count) for count in range(least + 1))
    return min(1.0, float(tail / 2 ** (total - 1)))


def holm(values: Sequence[float]) -> list[float]:
    """Return p-values adjusted for their number; equal ones are of one test: of turns and spans, solved and rewards."""
    tests = sorted({round(value, _DIGITS) for value in values})
    adjusted: dict[float, float] = {}
    highest = 0.0
    for rank, value in enumerate(tests):
        highest = adjusted[value] = max(highest, min(1.0, (len(tests) - rank) * value))
    return [adjusted[round(value, _DIGITS)] for value in values]


def tail_of_t(t: float, freedom: int) -> float:
    """Return the probability of a value farther from 0 than `t`, by Abramowitz and Stegun 26.7.3 and 26.7.4."""
    if math.isinf(t):
        return 0.0
    angle = math.atan2(abs(t), math.sqrt(freedom))
    square, term, total = math.cos(angle) ** 2, math.cos(angle) if freedom % 2 else 1.0, 0.0
    for number in range(1 + freedom % 2, freedom, 2):
        total += term
        term *= square * number / (number + 1)
    inside = (2 / math.pi) * (angle + math.sin(angle) * total) if freedom % 2 else math.sin(angle) * total
    return min(1.0, max(0.0, 1 - inside))


@lru_cache
def quantile_of_t(freedom: int) -> float:
    """Return the distance from 0 that 95 percent of values are within."""
    low, high = 0.0, 1000.0
    while high - low > 1e-6:
        middle = (low + high) / 2
        low, high = (middle, high) if tail_of_t(middle, freedom) > 1 - LEVEL else (low, middle)
    return high


def _estimate(change: float, error: float, freedom: float, size: float) -> Estimate:
    # Means of equal values differ in their last digits.
    change, error = (0.0 if abs(value) <= _ROUNDING * size else value for value in (change, error))
    return Estimate(change, error, max(1, int(min(freedom, _MOST_FREEDOM))))
