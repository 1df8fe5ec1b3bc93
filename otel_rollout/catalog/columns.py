"""The columns of the catalog's public tables: names, types, units and meanings."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import NoneType, UnionType
from typing import Annotated, Any, Final, NamedTuple, Union, get_args, get_origin, get_type_hints

from otel_rollout.catalog import spans
from otel_rollout.catalog.figures import GROUPS, STEPS
from otel_rollout.catalog.schema import SECONDS
from otel_rollout.facts.table import FACTS, TrajectorySummary

_HINTS: Final = get_type_hints(TrajectorySummary, include_extras=True)


class TableColumn(NamedTuple):
    """A column of a public table.

    Args:
        name: Its name.
        type: Its type hint.
        unit: The unit of a number.
        meaning: A clause for the docs.
    """

    name: str
    type: Any
    unit: str
    meaning: str

    @property
    def kinds(self) -> Sequence[Any]:
        """The plain types of its values, without None; other than `bool`, `int`, `float` and `str` it is JSON text."""
        hints = get_args(self.type) if get_origin(self.type) in (UnionType, Union) else (self.type,)
        plain = [get_args(hint)[0] if get_origin(hint) is Annotated else hint for hint in hints]
        return [kind for kind in plain if kind is not NoneType]


def _listed(columns: Sequence[Any]) -> Sequence[TableColumn]:
    return [TableColumn(each.name, each.type, each.unit, each.meaning) for each in columns]


COLUMNS: Final[Mapping[str, Sequence[TableColumn]]] = {
    "trajectories": [
        *(TableColumn(each.name, _HINTS[each.name], each.unit, each.meaning) for each in FACTS),
        TableColumn(SECONDS, float, "s", "the seconds from its start to its end"),
    ],
    "rewards": [
        *_listed(spans.COMMON),
        TableColumn("name", str, "", "the part's name"),
        TableColumn("value", float, "", "its value; of a boolean, 0 or 1"),
    ],
    "tools": [
        *_listed(spans.COMMON),
        TableColumn("name", str, "", "the tool"),
        TableColumn("calls", int, "calls", "the calls"),
        TableColumn("errors", int, "calls", "those that failed"),
    ],
    "steps": _listed(STEPS.columns),
    "groups": _listed(GROUPS.columns),
    "spans": _listed((*spans.COMMON, *spans.SPANS)),
    "messages": _listed((*spans.COMMON, *spans.MESSAGES)),
    "conversations": _listed((*spans.COMMON, *spans.CONVERSATIONS)),
}
"""The columns of each table, in order."""
