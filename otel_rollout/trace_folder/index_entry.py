"""What the index says of one line of a file of trajectories."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final, NamedTuple, TypeAlias

import orjson

from otel_rollout import semconv

__all__ = ["ATTRIBUTE_FIELDS", "Details", "IndexEntry", "Row", "details_of", "place_of"]


class IndexEntry(NamedTuple):
    """What the index says of a line.

    Args:
        trace_id: The trace id, 32 hexadecimal digits.
        start_time: When its first span started, in nanoseconds since 1970.
        end_time: When its last span ended, in nanoseconds since 1970.
        has_root: Whether the root is in it.
        step: The training step, where it is a whole number.
        sample_index: Which prompt.
        rollout_n: Which rollout of the prompt.
        validate: Whether it is part of a validation pass; None where nothing says so.
        experiment_name: The experiment.
        status: What became of it, where the root says so.
        reward: The reward, where the root has one.
        offset: The frame's first byte in its file.
        length: How many bytes the frame has.
        bytes: How many bytes the line has, without its end.
        spans: How many spans are in it.
        status_code: The root's status: 0 for unset, 1 for ok, 2 for an error.
        details: The fields of `Details` as JSON.
    """

    trace_id: str
    start_time: int
    end_time: int
    has_root: bool
    step: int | None
    sample_index: int | str | None
    rollout_n: int | str | None
    validate: bool | None
    experiment_name: str | None
    status: str | None
    reward: float | None
    offset: int
    length: int
    bytes: int
    spans: int
    status_code: int
    details: str


class Details(NamedTuple):
    """What the index says of a line beside what is asked of many.

    Args:
        name: The root's name; without a root, that of its first span.
        project_name: The project, where its resource names one.
        run_id: The run, where its resource names one.
        attributes: The root's scalar attributes without payload; without a root, the tags. On disk, without those that
            the entry has.
    """

    name: str
    project_name: str | None
    run_id: str | None
    attributes: dict[str, Any]


Row: TypeAlias = Sequence[Any]
"""The fields of an `IndexEntry` in order, as they were parsed: making entries of all takes a tenth of listing them."""

place_of: Final[Callable[[str], int]] = IndexEntry._fields.index
"""Where a field stands in a row."""

ATTRIBUTE_FIELDS: Final = {
    semconv.STEP: "step",
    semconv.SAMPLE_INDEX: "sample_index",
    semconv.ROLLOUT_N: "rollout_n",
    semconv.VALIDATE: "validate",
    semconv.EXPERIMENT_NAME: "experiment_name",
    semconv.STATUS: "status",
    semconv.REWARD: "reward",
}
"""The attributes that have a field, and its name."""


def details_of(row: Row) -> Details:
    """Return what the index says of a line beside what is asked of many, with all attributes.

    Args:
        row: Its entry.

    Raises:
        ValueError: The index is damaged.
    """
    entry = IndexEntry._make(row)
    details = Details(*orjson.loads(entry.details))
    fields = {key: getattr(entry, field) for key, field in ATTRIBUTE_FIELDS.items()}
    known = {key: value for key, value in fields.items() if value is not None}
    return details._replace(attributes=known | details.attributes)
