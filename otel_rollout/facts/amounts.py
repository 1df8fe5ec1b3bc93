"""The mean and the standard deviation of amounts, and the sum of counts: other programs write any number."""

from __future__ import annotations

import math
import sys
from collections.abc import Iterable, Sequence

from otel_rollout.text.sanitize import INT64_MAX


def mean_of(amounts: Sequence[float]) -> float:
    """Return the mean of one amount or more; the mean of finite ones is finite."""
    count = len(amounts)
    try:
        return math.fsum(amounts) / count
    except OverflowError:
        return _doubled(math.fsum(amount / count / 2 for amount in amounts))


def deviation_of(amounts: Sequence[float]) -> float:
    """Return the standard deviation of one amount or more; the deviation of finite ones is finite."""
    mean, count = mean_of(amounts), len(amounts)
    try:
        return math.sqrt(math.fsum((amount - mean) ** 2 for amount in amounts) / count)
    except OverflowError:
        root = math.sqrt(count)
        return _doubled(math.hypot(*((amount / 2 - mean / 2) / root for amount in amounts)))


def error_of_mean(amounts: Sequence[float]) -> float:
    """Return the standard error of the mean of amounts; 0 for fewer than two."""
    return deviation_of(amounts) / math.sqrt(len(amounts) - 1) if len(amounts) > 1 else 0.0


def is_same_reward(one: float, other: float) -> bool:
    """Return True if two rewards differ by rounding at most, as sums of the same parts in another order do."""
    return one == other or math.isclose(one, other, rel_tol=1e-9, abs_tol=1e-12)


def sum_of(counts: Iterable[int]) -> int:
    """Return the sum of counts, at most the largest integer that JSON readers take."""
    return min(sum(counts), INT64_MAX)


def _doubled(half: float) -> float:
    limit = sys.float_info.max
    return max(-limit, min(limit, 2 * half))
