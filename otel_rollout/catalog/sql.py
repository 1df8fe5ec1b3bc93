"""The SQL that figures are written in: functions that SQLite lacks, conditions that have a name here, and columns."""

from __future__ import annotations

import sqlite3
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import field
from functools import lru_cache
from itertools import zip_longest
from typing import Any, Final, Literal, NamedTuple, TypeAlias, cast

import orjson

from otel_rollout.facts.amounts import deviation_of, mean_of
from otel_rollout.text.sanitize import INT64_MAX

Source: TypeAlias = Literal["runs", "trajectories", "groups", "scale"]


class Figure(NamedTuple):
    """A figure of a step or of a group.

    Args:
        meaning: A clause for the docs.
        sql: The SQL that computes it, over the facts of its trajectories; of an amount that has a column for each of
            its statistics, the amount.
        unit: The unit of a number.
        of: The rows that it is computed over: the trajectories of a step, before its groups are known (`runs`: groups
            compare with these figures, as `run.…`) or after; its groups; or of a group, its trajectories. `scale`: the
            figure compares the rewards in the row with the run's scale, `:lowest` to `:highest`.
    """

    meaning: str
    sql: str
    unit: str
    of: Source


def figure(meaning: str, sql: str, *, unit: str = "", of: Source = "trajectories") -> Any:
    """Return the dataclass field of a figure, with the arguments of `Figure`."""
    return field(metadata={"figure": Figure(meaning, sql, unit, of)})


def count_if(condition: str) -> str:
    """Return the number of rows with a condition."""
    return f"count(CASE WHEN {condition} THEN 1 END)"


def sum_of(fact: str) -> str:
    """Return the sum of counts, at most the largest integer: SQLite's own sum fails beyond it."""
    halves = f"(sum({fact} >> 32) << 32) + sum({fact} & 4294967295)"
    return f"CASE WHEN total({fact}) < 9.2e18 THEN {halves} ELSE {INT64_MAX} END"


def is_same(one: str, other: str) -> str:
    """Return the condition of `is_same_reward`."""
    return f"abs({one} - {other}) <= max(1e-9 * max(abs({one}), abs({other})), 1e-12)"


FUNCTIONS: Final = ("counts", "mean", "median", "percentile", "stddev")
"""The functions that docs/reference/catalog.md names, for users' questions."""


def prepare(connection: sqlite3.Connection) -> None:
    """Give a connection the functions that figures use; users' queries have them too."""
    for name, of_values in _OF_COLUMN.items():
        connection.create_aggregate(name, 1, _collector(of_values))
    for name, of_places in _OF_PLACES.items():
        connection.create_aggregate(name, 2, _placed_collector(of_places))
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


def _placed_collector(of_places: Callable[[dict[Any, Any]], Any]) -> Any:
    class PlacedCollector:
        """Collects the values of a column by their places, without a call of Python for each."""

        __slots__ = ("_values", "step")

        def __init__(self) -> None:
            self._values: dict[Any, Any] = {}
            self.step = self._values.__setitem__

        def finalize(self) -> Any:
            return of_places(self._values)

    return PlacedCollector


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
        return _quantile(sorted(self._values), self._percent / 100) if self._values else None


def _counts(values: Sequence[str]) -> str:
    counts = sorted(Counter(values).items(), key=lambda item: (-item[1], item[0]))
    return _json(dict(counts))


def _means_by_name(texts: Sequence[str]) -> str:
    found: dict[str, list[float]] = {}
    for text in texts:
        for name, value in orjson.loads(text).items():
            found.setdefault(name, []).append(value)
    return _json({name: mean_of(values) for name, values in found.items()})


@lru_cache(4096)
def _tools_in(text: str) -> Mapping[str, tuple[int, int]]:
    """Return the calls and errors by tool; thousands of trajectories have the same."""
    found: Mapping[str, tuple[int, int]] = orjson.loads(text)
    return found


def _tool_counts(texts: Sequence[str]) -> str:
    """Return the calls and errors by tool, the busiest tool first."""
    sums: dict[str, tuple[int, int]] = {}
    for text, number in Counter(texts).items():
        for name, (calls, errors) in _tools_in(text).items():
            known = sums.get(name, (0, 0))
            sums[name] = min(known[0] + calls * number, INT64_MAX), min(known[1] + errors * number, INT64_MAX)
    return _json(dict(sorted(sums.items(), key=lambda tool: (-tool[1][0], tool[0]))))


def _of_tools(texts: Sequence[str], at: int) -> int:
    return min(sum(counts[at] for text in texts for counts in _tools_in(text).values()), INT64_MAX)


def _in_order(values: dict[int, Any]) -> str:
    return _json([values[place] for place in sorted(values)])


def _first(values: dict[int, Any]) -> Any:
    return next((values[place] for place in sorted(values) if values[place] is not None), None)


def _json(value: Any) -> str:
    return orjson.dumps(value).decode()


def _quantile(ordered: Sequence[float], share: float) -> float:
    place = share * (len(ordered) - 1)
    below = int(place)
    above = min(below + 1, len(ordered) - 1)
    return ordered[below] + (ordered[above] - ordered[below]) * (place - below)


def _first_divergence(hashes: Sequence[Sequence[str]]) -> int | None:
    """Return the first turn that differs: a missing turn does, a turn without a hash doesn't."""
    known = [each for each in hashes if any(each)]
    for turn, said in enumerate(zip_longest(*known), 1):
        if len(set(said) - {""}) > 1 or (None in said and set(said) != {None}):
            return turn
    return None


_OF_COLUMN: Final[Mapping[str, Callable[[list[Any]], Any]]] = {
    "mean": mean_of,
    "stddev": deviation_of,
    "median": lambda values: _quantile(sorted(values), 0.5),
    "p99": lambda values: _quantile(sorted(values), 0.99),
    "highest_of_95_percent": lambda values: sorted(values)[-1 - len(values) // 20],
    "counts": _counts,
    "means_by_name": _means_by_name,
    "tool_counts": _tool_counts,
    "tool_calls": lambda texts: _of_tools(texts, 0),
    "tool_errors": lambda texts: _of_tools(texts, 1),
    "first_divergence": lambda texts: _first_divergence([orjson.loads(text) for text in texts]),
}
"""Functions of the values of a column that are not null; null without any."""
_OF_PLACES: Final[Mapping[str, Callable[[dict[int, Any]], Any]]] = {"in_order": _in_order, "first": _first}
"""Functions of places and the values of a column there."""
