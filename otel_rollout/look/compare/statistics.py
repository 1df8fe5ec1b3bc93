"""Intervals and tests for the change of a mean, by the standard library alone.

A change is tested by Student's t over prompts: of prompts that both runs have, over their differences; else by Welch's
unequal variances (Biometrika 34, 1947). Rollouts of one prompt are alike, and so are the trajectories of one step, so a
standard error over either alone may be too small. With two ways of clustering the larger one is taken, which is safe
where few clusters make the two-way estimate of Cameron, Gelbach and Miller (JBES 29, 2011) unreliable. Flipped prompts
are counted by the exact sign test, which is McNemar's test of pairs (Psychometrika 12, 1947). Several figures are
looked at once, and so their p-values are adjusted by Holm's step-down method (Scandinavian Journal of Statistics 6,
1979): the chance that any of them is called a change although none is one stays below 5 percent.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import lru_cache
from typing import Final, NamedTuple

from otel_rollout.facts.amounts import deviation_of, mean_of

LEVEL: Final = 0.95
"""The level of intervals, and of the test."""
LEAST_UNITS: Final = 8
"""The fewest prompts, of each run if they aren't paired, that an interval is made of."""
LEAST_STEPS: Final = 4
"""The fewest steps that an interval is made of."""
_MOST_FREEDOM: Final = 500
"""Beyond it Student's t differs from itself by less than 0.1 percent."""

_ROUNDING: Final = 1e-9


class Estimate(NamedTuple):
    """The change of a mean.

    Args:
        change: The second mean minus the first.
        low: The lower end of its interval.
        high: The upper end.
        p: The probability of such a change, or a larger one, if there is none.
    """

    change: float
    low: float
    high: float
    p: float

    def wider(self, other: Estimate | None) -> Estimate:
        """Return this change with the wider one of two intervals, and the higher p."""
        if other is None:
            return self
        half = max(self.high - self.change, other.high - other.change)
        return Estimate(self.change, self.change - half, self.change + half, max(self.p, other.p))


def paired(pairs: Sequence[tuple[float, float]], least: int) -> Estimate | None:
    """Return the mean of the changes from the first to the second of each pair; None for fewer pairs than `least`."""
    if len(pairs) < least:
        return None
    changes = [after - before for before, after in pairs]
    size = max(abs(value) for pair in pairs for value in pair)
    return _estimate(mean_of(changes), _error(changes), len(pairs) - 1, size)


def unpaired(before: Sequence[float], after: Sequence[float], least: int) -> Estimate | None:
    """Return the change of the mean between two samples; None if one has fewer than `least`."""
    if min(len(before), len(after)) < least:
        return None
    one, other = _error(before), _error(after)
    both = one**4 / (len(before) - 1) + other**4 / (len(after) - 1)
    # Welch and Satterthwaite; a whole number of degrees below it is safe.
    freedom = (one**2 + other**2) ** 2 / both if both else math.inf
    size = max(map(abs, (*before, *after)))
    return _estimate(mean_of(after) - mean_of(before), math.hypot(one, other), freedom, size)


def sign_test(more: int, fewer: int) -> float:
    """Return the probability of counts as uneven as these, or more so, if both signs are as likely."""
    total, least = more + fewer, min(more, fewer)
    tail = sum(math.comb(total, count) for count in range(least + 1))
    return min(1.0, float(tail / 2 ** (total - 1)))


def holm(values: Sequence[float]) -> list[float]:
    """Return p-values adjusted for their number."""
    adjusted = [0.0] * len(values)
    highest = 0.0
    for rank, at in enumerate(sorted(range(len(values)), key=lambda at: values[at])):
        highest = max(highest, min(1.0, (len(values) - rank) * values[at]))
        adjusted[at] = highest
    return adjusted


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


def _error(values: Sequence[float]) -> float:
    return deviation_of(values) / math.sqrt(len(values) - 1)


def _estimate(change: float, error: float, freedom: float, size: float) -> Estimate:
    # Means of equal values differ in their last digits.
    change, error = (0.0 if abs(value) <= _ROUNDING * size else value for value in (change, error))
    whole = max(1, int(min(freedom, _MOST_FREEDOM)))
    half = quantile_of_t(whole) * error
    p = tail_of_t(change / error if error else math.inf, whole) if change else 1.0
    return Estimate(change, change - half, change + half, p)
