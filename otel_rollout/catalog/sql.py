"""The SQL that figures are written in: functions that SQLite lacks, conditions that have a name here, and columns."""

from __future__ import annotations

import sqlite3
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import field
from itertools import zip_longest
from typing import Any, Final, Literal, NamedTuple, TypeAlias

import orjson

from otel_rollout.facts.amounts import deviation_of, mean_of, sum_of

Source: TypeAlias = Literal["runs", "trajectories", "groups"]


class Figure(NamedTuple):
    """A figure of a step or of a group.

    Args:
        meaning: A clause for the docs.
        sql: The SQL that computes it, over the facts of its trajectories; of an amount that has a column for each of
            its statistics, the amount.
        unit: The unit of a number.
        of: The rows that it is computed over: the trajectories of a step, before its groups are known (`runs`: groups
            compare with these figures, as `run.…`) or after; its groups; or of a group, its trajectories.
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


def is_same(one: str, other: str) -> str:
    """Return the condition of `is_same_reward`."""
    return f"abs({one} - {other}) <= max(1e-9 * max(abs({one}), abs({other})), 1e-12)"


SOLVED: Final = (
    f"CASE WHEN {is_same('run.reward_lowest', 'run.reward_highest')} THEN reward > 0 "
    "ELSE reward > run.reward_lowest / 2 + run.reward_highest / 2 END"
)
"""A reward in the upper half of the step's range; if all rewards of the step are the same, one above 0."""
SOLVED_SHARE: Final = f"1.0 * {count_if(SOLVED)} / nullif(count(reward), 0)"


def prepare(connection: sqlite3.Connection) -> None:
    """Give a connection the functions that figures use; users' queries have them too."""
    for name, of_values in _OF_COLUMN.items():
        connection.create_aggregate(name, 1, _collector(of_values))
    for name, of_pairs in _OF_PAIRS.items():
        connection.create_aggregate(name, 2, _pair_collector(of_pairs))


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


def _pair_collector(of_pairs: Callable[[list[tuple[Any, Any]]], Any]) -> Any:
    class PairCollector:
        """Collects the pairs of two columns."""

        __slots__ = ("_pairs",)

        def __init__(self) -> None:
            self._pairs: list[tuple[Any, Any]] = []

        def step(self, *pair: Any) -> None:
            self._pairs.append(pair)

        def finalize(self) -> Any:
            return of_pairs(self._pairs)

    return PairCollector


def _counts(values: Sequence[str]) -> str:
    counts = sorted(Counter(values).items(), key=lambda item: (-item[1], item[0]))
    return _json(dict(counts))


def _means_by_name(texts: Sequence[str]) -> str:
    found: dict[str, list[float]] = {}
    for text in texts:
        for name, value in orjson.loads(text).items():
            found.setdefault(name, []).append(value)
    return _json({name: mean_of(values) for name, values in found.items()})


def _tools(texts: Iterable[str]) -> dict[str, tuple[int, int]]:
    """Return the calls and errors by tool, the busiest tool first."""
    found: dict[str, list[tuple[int, int]]] = {}
    # Thousands of trajectories have the same counts.
    for text, number in Counter(texts).items():
        for name, (calls, errors) in orjson.loads(text).items():
            found.setdefault(name, []).append((calls * number, errors * number))
    sums = {
        name: (sum_of(calls for calls, _ in each), sum_of(errors for _, errors in each)) for name, each in found.items()
    }
    return dict(sorted(sums.items(), key=lambda tool: (-tool[1][0], tool[0])))


def _in_order(pairs: list[tuple[Any, Any]]) -> str:
    return _json([value for value, _ in sorted(pairs, key=_place)])


def _first(pairs: list[tuple[Any, Any]]) -> Any:
    return min((pair for pair in pairs if pair[0] is not None), key=_place, default=(None,))[0]


def _highest(pairs: list[tuple[Any, Any]]) -> Any:
    return sorted(value for value, _ in pairs)[-pairs[0][1]]


def _place(pair: tuple[Any, Any]) -> Any:
    return pair[1]


def _json(value: Any) -> str:
    return orjson.dumps(value).decode()


def _percentile(pairs: list[tuple[Any, Any]]) -> Any:
    known = sorted(value for value, _ in pairs if value is not None)
    return _quantile(known, pairs[0][1] / 100) if known else None


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
    "sum_of": sum_of,
    "counts": _counts,
    "means_by_name": _means_by_name,
    "tool_counts": lambda texts: _json(_tools(texts)),
    "tool_calls": lambda texts: sum_of(calls for calls, _ in _tools(texts).values()),
    "tool_errors": lambda texts: sum_of(errors for _, errors in _tools(texts).values()),
    "first_divergence": lambda texts: _first_divergence([orjson.loads(text) for text in texts]),
}
"""Functions of the values of a column that are not null; null without any."""
_OF_PAIRS: Final[Mapping[str, Callable[[list[tuple[Any, Any]]], Any]]] = {
    "percentile": _percentile,
    "in_order": _in_order,
    "first": _first,
    "highest": _highest,
}
"""Functions of the pairs of two columns: values with a percentage, their places, or the place from the highest."""
