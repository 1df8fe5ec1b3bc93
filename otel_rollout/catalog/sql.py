"""The functions that SQLite lacks, for users' questions."""

from __future__ import annotations

import sqlite3
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, cast

import orjson

from otel_rollout.facts.amounts import deviation_of, mean_of

FUNCTIONS: Final = ("counts", "mean", "median", "percentile", "stddev")
"""The functions that docs/reference/catalog.md names."""


def prepare(connection: sqlite3.Connection) -> None:
    """Give a connection the functions."""
    for name, of_values in _OF_COLUMN.items():
        connection.create_aggregate(name, 1, _collector(of_values))
    connection.create_aggregate("percentile", 2, cast("Any", _Percentile))


def _collector(of_values: Callable[[list[Any]], Any]) -> Any:
    class Collector:
        """Collects the values of a column, without a call of Python for each."""

        __slots__ = ("_values", "step")

        def __init__(self) -> None:
            self._values: list[Any] = []
            self.step = self._values.append

        def finalize(self) -> Any:
            known = [value for value in self._values if value is not None]
            return of_values(known) if known else None

    return Collector


class _Percentile:
    """A percentile, interpolated as in numpy."""

    def __init__(self) -> None:
        self._values: list[Any] = []
        self._percent = 0.0

    def step(self, value: Any, percent: float) -> None:
        if not 0 <= percent <= 100:
            raise ValueError(percent)
        if value is not None:
            self._values.append(value)
            self._percent = percent

    def finalize(self) -> Any:
        return quantile_of(self._values, self._percent / 100) if self._values else None


def quantile_of(values: Sequence[float], share: float) -> float:
    """Return a quantile of one value or more, interpolated as in numpy."""
    ordered = sorted(values)
    place = share * (len(ordered) - 1)
    below = int(place)
    above = min(below + 1, len(ordered) - 1)
    return ordered[below] + (ordered[above] - ordered[below]) * (place - below)


def counts_of(values: Sequence[str]) -> dict[str, int]:
    """Return the number of each value, the most frequent first."""
    return dict(sorted(Counter(values).items(), key=lambda item: (-item[1], item[0])))


_OF_COLUMN: Final[Mapping[str, Callable[[list[Any]], Any]]] = {
    "mean": mean_of,
    "stddev": deviation_of,
    "median": lambda values: quantile_of(values, 0.5),
    "p99": lambda values: quantile_of(values, 0.99),
    "counts": lambda values: orjson.dumps(counts_of(values)).decode(),
}
"""Functions of the values of a column that are not null; null without any."""
