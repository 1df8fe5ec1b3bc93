"""Step and group summaries as JSON objects with names, and back."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any, Final

import orjson

from otel_rollout.catalog.field_types import check_fields
from otel_rollout.catalog.group_summary import GroupSummary, Spread
from otel_rollout.catalog.step_signals import StepSignals
from otel_rollout.catalog.step_summary import Percentiles, StepSummary
from otel_rollout.facts.span_shapes import Shapes
from otel_rollout.facts.trajectory_summary import ToolCounts

__all__ = ["FIELDS", "group_from", "step_from", "to_json"]

_Mapping = Mapping[str, Any]
_INTEGER: Final = re.compile("-?[0-9]{1,19}").fullmatch

FIELDS: Final = tuple(
    (each.__name__, *each.__annotations__)
    for each in (StepSummary, StepSignals, Percentiles, GroupSummary, Spread, ToolCounts)
)
"""The names of the objects."""


def to_json(summary: Any) -> bytes:
    """Return a summary, or a list of summaries, as JSON; a named tuple is an object with its names."""
    return orjson.dumps(summary, default=_as_object)


def step_from(fields: _Mapping) -> StepSummary:
    """Return the step summary that `to_json` has made an object of.

    Raises:
        TypeError: A name is missing or unknown, or a value has another type.
    """
    step = StepSummary(**_converted(fields, _STEP))
    check_fields(step)
    return step


def group_from(fields: _Mapping) -> GroupSummary:
    """Return the group summary that `to_json` has made an object of.

    Raises:
        TypeError: A name is missing or unknown, or a value has another type.
    """
    group = GroupSummary(**_converted(fields, _GROUP))
    check_fields(group)
    return group


def _as_object(value: Any) -> Any:
    if hasattr(value, "_asdict"):
        return value._asdict()
    if isinstance(value, Shapes):
        return tuple(value)
    raise TypeError


def _tuple(value: Any) -> tuple[Any, ...]:
    if type(value) is not list:
        raise TypeError("no list")
    return tuple(value)


def _percentiles(value: _Mapping | None) -> Percentiles | None:
    return None if value is None else Percentiles(**value)


def _spread(value: _Mapping | None) -> Spread | None:
    return None if value is None else Spread(**value)


def _tools(value: _Mapping) -> dict[str, ToolCounts]:
    return {name: ToolCounts(**counts) for name, counts in value.items()}


def _signals(value: _Mapping) -> StepSignals:
    signals = StepSignals(**value)
    if not all(map(_INTEGER, signals.staleness)):
        raise TypeError("a staleness is no integer")
    return signals


_STEP: Final[Mapping[str, Callable[[Any], Any]]] = {
    "signals": _signals,
    "tools": _tools,
    **dict.fromkeys(("turns", "tokens", "seconds", "staleness"), _percentiles),
}
_GROUP: Final[Mapping[str, Callable[[Any], Any]]] = {
    **dict.fromkeys(("trace_ids", "rollout_ns", "rewards", "statuses"), _tuple),
    **dict.fromkeys(("turns", "tokens", "seconds"), _spread),
}


def _converted(fields: _Mapping, conversions: Mapping[str, Callable[[Any], Any]]) -> dict[str, Any]:
    try:
        return {name: conversions[name](value) if name in conversions else value for name, value in fields.items()}
    except AttributeError as error:
        raise TypeError(str(error)) from error
