"""The columns that `otel-rollout ls --sort` knows, and their order."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final, TypeVar

from otel_rollout.catalog.grouping import sortable
from otel_rollout.catalog.step_summary import StepSummary
from otel_rollout.errors import ConfigurationError
from otel_rollout.facts.table import TrajectorySummary
from otel_rollout.text.near_miss import did_you_mean

__all__ = ["STEP_COLUMNS", "TRAJECTORY_COLUMNS", "sort_rows"]

_Row = TypeVar("_Row")

STEP_COLUMNS: Final[Mapping[str, Callable[[StepSummary], Any]]] = {
    "step": lambda step: step.step,
    "trajectories": lambda step: step.trajectories,
    "prompts": lambda step: step.groups,
    "reward": lambda step: step.reward_mean,
    "errors": lambda step: step.errors,
    "truncated": lambda step: step.truncated,
    "cancelled": lambda step: step.cancelled,
    "no-root": lambda step: step.rootless,
    "no-signal": lambda step: (
        sum(step.zero_variance.values()) / step.comparable_groups if step.comparable_groups else None
    ),
    "p99": lambda step: step.seconds and step.seconds.p99,
    "spans": lambda step: step.spans,
    "redacted": lambda step: step.redacted,
    "size": lambda step: step.bytes,
}
"""The columns of the steps, by the names of the table with `-` for a space."""

TRAJECTORY_COLUMNS: Final[Mapping[str, Callable[[TrajectorySummary], Any]]] = {
    "step": lambda each: each.step,
    "sample": lambda each: each.sample_index,
    "rollout": lambda each: each.rollout_n,
    "status": lambda each: each.status,
    "reward": lambda each: each.reward,
    "turns": lambda each: each.turns,
    "tokens": lambda each: each.output_tokens,
    "duration": lambda each: each.end_time - each.start_time,
    "spans": lambda each: each.spans,
    "redacted": lambda each: each.redacted,
    "size": lambda each: each.bytes,
    "start": lambda each: each.start_time,
}
"""The columns of the trajectories, and when each started; tokens are those that were generated."""


def sort_rows(
    rows: Iterable[_Row], columns: Mapping[str, Callable[[_Row], Any]], name: str, *, is_descending: bool
) -> list[_Row]:
    """Return rows in the order of a column; rows that have no value there come last.

    Args:
        rows: The rows; those with the same value keep their order.
        columns: The value of a row by the name of a column.
        name: The column.
        is_descending: The highest value comes first.

    Raises:
        ConfigurationError: There is no such column; the message lists them.
    """
    value_of = columns.get(name.lower().replace(" ", "-"))
    if value_of is None:
        hint = did_you_mean(name, columns) or f"; there are {', '.join(columns)}"
        raise ConfigurationError(f"--sort {name}: there is no such column{hint}")
    known, unknown = list[_Row](), list[_Row]()
    for row in rows:
        (unknown if value_of(row) is None else known).append(row)
    return sorted(known, key=lambda row: sortable(value_of(row)), reverse=is_descending) + unknown
