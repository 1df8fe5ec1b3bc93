"""The columns of tables: names, types, units and meanings."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import field, fields
from functools import lru_cache
from operator import attrgetter
from types import NoneType, UnionType
from typing import Annotated, Any, Final, NamedTuple, Union, get_args, get_origin, get_type_hints

from otel_rollout.facts.table import FACTS, Sum, TrajectorySummary

_WORDS: Final = {int: "integer", float: "real", str: "text", bool: "0 or 1"}
_UNITS: Final = {**{each.name: each.unit for each in FACTS}, "seconds": "s"}
_SUMS: Final[Mapping[Sum, tuple[str, str]]] = {
    "mean": ("the mean of `{}`", "mean({})"),
    "percentiles": ("`{}`", "{}"),
    "sum": ("the sum of `{}`", "CAST(total({}) AS INTEGER)"),
    "above 0": ("the trajectories whose `{}` is above 0", "sum({} > 0)"),
    "by value": ("the number of trajectories by `{}`", "ifnull(counts({}), '{{}}')"),
    "mean by name": ("the mean of `{}` by name", "means_by_name({})"),
    "sum by name": ("the sum of `{}` by name", "tool_counts({})"),
}
"""The meaning and the SQL of each way to sum a fact."""
_STATISTICS: Final = {
    "lowest": ("the lowest of {}", "min({})"),
    "mean": ("the mean of {}", "avg({})"),
    "p50": ("the median of {}", "p50({})"),
    "p99": ("the 99th percentile of {}", "p99({})"),
    "highest": ("the highest of {}", "max({})"),
}


class Column(NamedTuple):
    """A column.

    Args:
        name: Its name.
        type: Its type hint.
        meaning: A clause for the docs.
        of: Returns its value, of a span, of a message or of a conversation; or the attribute that has it, if that is
            not one of the same name. Of a figure, the SQL that computes it of trajectories `t`.
        unit: The unit of a number.
    """

    name: str
    type: Any
    meaning: str
    of: Callable[[Any], Any] | str = ""
    unit: str = ""

    @property
    def value_of(self) -> Callable[[Any], Any]:
        """The function that returns its value; an empty text that may be None is None."""
        read = attrgetter(self.of or self.name) if isinstance(self.of, str) else self.of
        return (lambda it: read(it) or None) if self.type == str | None else read

    @property
    def kinds(self) -> Sequence[Any]:
        """The plain types of its values, without None."""
        return kinds_of(self.type)

    @property
    def is_nullable(self) -> bool:
        """True if a value may be None."""
        return NoneType in get_args(self.type)

    @property
    def is_json(self) -> bool:
        """True if it has JSON text."""
        return not _WORDS.keys() >= set(self.kinds)

    @property
    def type_words(self) -> str:
        """The type of its values in SQL, in words."""
        return "JSON text" if self.is_json else " or ".join(_WORDS[kind] for kind in self.kinds)


@lru_cache(None)
def kinds_of(hint: Any) -> Sequence[Any]:
    """Return the plain types of a type hint, without None."""
    hints = get_args(hint) if get_origin(hint) in (UnionType, Union) else (hint,)
    plain = [get_args(each)[0] if get_origin(each) is Annotated else each for each in hints]
    return [kind for kind in plain if kind is not NoneType]


def figure(meaning: str, sql: str = "", *, unit: str = "") -> Any:
    """Return the dataclass field of a figure.

    Args:
        meaning: A clause for the docs.
        sql: The SQL that computes it of trajectories `t`; an amount's, of one trajectory.
        unit: The unit of a number.
    """
    return field(metadata={"meaning": meaning, "sql": sql, "unit": unit})


def amount_of(hint: Any) -> Any:
    """Return the class of an amount that has a column for each of its statistics, such as `Percentiles`; else None."""
    return next((kind for kind in kinds_of(hint) if hasattr(kind, "_fields")), None)


def facts_columns() -> list[Column]:
    """Return a column for each fact, one for the seconds, and three of attempts."""
    hints = get_type_hints(TrajectorySummary, include_extras=True)
    facts = [Column(each.name, hints[each.name], each.meaning, unit=each.unit) for each in FACTS]
    return [
        *facts,
        Column("seconds", float, "the seconds from its start to its end", unit="s"),
        Column("process_run_id", str | None, "the run id of its process; `run_id` is the first of a resumed run"),
        Column("attempt", int | None, "the attempt of a resumed run, from 1; null if it was not resumed"),
        Column("overtaken", bool, "true if a later attempt has overtaken it: it counts in no step"),
    ]


def figures_columns(kind: Any) -> list[Column]:
    """Return the columns of a class of figures."""
    hints, found = get_type_hints(kind, include_extras=True), []
    for each in fields(kind):
        if "meaning" in each.metadata:
            meaning, sql, unit = each.metadata["meaning"], each.metadata["sql"] or each.name, each.metadata["unit"]
        else:
            fact, how = each.metadata["fact"], each.metadata["sum"]
            meaning, sql = (form.format(fact) for form in _SUMS[how])
            unit = "" if how in ("above 0", "by value") else _UNITS[fact]
        amount = amount_of(hints[each.name])
        if amount is None:
            found.append(Column(each.name, hints[each.name], meaning, sql, unit))
        for statistic in () if amount is None else amount._fields:
            words, of_amounts = _STATISTICS[statistic]
            name = f"{each.name}_{statistic}"
            found.append(Column(name, float | None, words.format(meaning), of_amounts.format(sql), unit))
    return found
