"""The functions that SQLite lacks, for users' questions."""

from __future__ import annotations

import sqlite3
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime, timezone
from functools import lru_cache, partial
from importlib import import_module
from importlib.util import find_spec
from typing import Any, Final

import orjson

from otel_rollout.facts.amounts import deviation_of, mean_of

_NANOSECONDS_OF_1973: Final = 10**17
"""SQLite's functions of dates take days and seconds, which are far less; a time of a catalog is more."""
_NANOSECONDS: Final = 10**9


def add_functions(connection: sqlite3.Connection) -> None:
    """Give a connection the functions."""
    for columns, functions in ((1, _OF_COLUMN), (2, _OF_PAIRS)):
        for name, of_rows in functions.items():
            connection.create_aggregate(name, columns, aggregate(columns, of_rows))
    connection.create_function("utc", 1, utc_of, deterministic=True)
    for name, place in _OF_TIMES.items():
        connection.create_function(name, -1, partial(_of_time, name, place), deterministic=True)


def aggregate(columns: int, of_rows: Callable[[list[Any]], Any], *, keeps_null: bool = False) -> Any:
    """Return the class of an aggregate, which calls a function with a column's values that are not null, or with pairs.

    Args:
        columns: The number of columns.
        of_rows: The function; without a row, the aggregate is null.
        keeps_null: True if one of a pair may be null.
    """

    class Aggregate:
        """Collects the values of a column without a call of Python for each, or the pairs of two columns."""

        def __init__(self) -> None:
            self._rows: list[Any] = []
            self.step = self._rows.append if columns == 1 else self._add

        def _add(self, *row: Any) -> None:
            self._rows.append(row if keeps_null or None not in row else None)

        def finalize(self) -> Any:
            known = [row for row in self._rows if row is not None]
            return of_rows(known) if known else None

    return Aggregate


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


def utc_of(nanoseconds: Any) -> str | None:
    """Return a time as text, in UTC and to the millisecond; None if it is none."""
    if not isinstance(nanoseconds, int):
        return None
    seconds, rest = divmod(nanoseconds, _NANOSECONDS)
    try:
        return f"{datetime.fromtimestamp(seconds, timezone.utc):%Y-%m-%dT%H:%M:%S}.{rest // 10**6:03}Z"
    except (OverflowError, ValueError, OSError):
        return None


def regexp(pattern: Any, value: Any) -> bool | None:
    """Return True if a text has a match of a pattern: `value REGEXP pattern`; None if one of them is null.

    Raises:
        ValueError: It is no pattern.
    """
    return None if pattern is None or value is None else _search_of(str(pattern))(str(value)) is not None


@lru_cache(64)
def _search_of(pattern: str) -> Callable[[str], Any]:
    """Return the search of a pattern, by google-re2, whose time grows only with the text, or by `re` without it."""
    engine = import_module("re2" if find_spec("re2") is not None else "re")
    given: list[Any] = [pattern]
    if engine.__name__ == "re2":
        given.append(engine.Options())
        given[1].log_errors = False
    try:
        search: Callable[[str], Any] = engine.compile(*given).search
    except engine.error as error:
        said = error.args[0]
        raise ValueError(f"{pattern!r} is no pattern: {said.decode() if isinstance(said, bytes) else said}") from None
    return search


def _of_time(name: str, place: int, *given: Any) -> Any:
    """Call one of SQLite's functions of dates; a time of a catalog is taken as text."""
    values = list(given)
    if len(values) > place and isinstance(values[place], int) and values[place] > _NANOSECONDS_OF_1973:
        values[place:] = [utc_of(values[place]), *(each for each in values[place + 1 :] if each != "unixepoch")]
    [result] = _plain_sqlite().execute(f"SELECT {name}({', '.join('?' * len(values))})", values).fetchone()
    return result


@lru_cache(None)
def _plain_sqlite() -> sqlite3.Connection:
    return sqlite3.connect(":memory:", check_same_thread=False)


def _quantile(scale: int, pairs: Sequence[tuple[float, float]]) -> float:
    share = pairs[0][1] / scale
    if not 0 <= share <= 1:
        raise ValueError(share)
    return quantile_of([value for value, _ in pairs], share)


def _correlation(pairs: Sequence[tuple[float, float]]) -> float | None:
    from statistics import StatisticsError, correlation

    try:
        return correlation(*zip(*pairs, strict=True))
    except StatisticsError:
        # A single pair, or values that are all the same.
        return None


_OF_COLUMN: Final[Mapping[str, Callable[[list[Any]], Any]]] = {
    "mean": mean_of,
    **dict.fromkeys(("stddev", "stddev_pop", "std"), deviation_of),
    "median": partial(quantile_of, share=0.5),
    **{f"p{percent}": partial(quantile_of, share=percent / 100) for percent in (50, 75, 90, 95, 99)},
    "counts": lambda values: orjson.dumps(counts_of(list(map(str, values)))).decode(),
}
"""Functions of the values of a column that are not null; null without any."""
_OF_PAIRS: Final[Mapping[str, Callable[[list[Any]], Any]]] = {
    "percentile": partial(_quantile, 100),
    **dict.fromkeys(("quantile", "quantile_cont", "percentile_cont"), partial(_quantile, 1)),
    "corr": _correlation,
}
"""Functions of the pairs of two columns in which neither is null."""
_OF_TIMES: Final = {"date": 0, "time": 0, "datetime": 0, "julianday": 0, "strftime": 1, "unixepoch": 0}
"""SQLite's functions of dates, with the place of the time among their arguments."""
FUNCTIONS: Final = (*_OF_COLUMN, *_OF_PAIRS, "utc")
"""The functions that docs/reference/catalog.md names."""
