"""One entry of an index: the fields of a trajectory, and where its line stands."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from operator import itemgetter
from types import UnionType
from typing import Any, Final, NamedTuple, TypeAlias, get_args, get_origin, get_type_hints

from otel_rollout import semconv
from otel_rollout.facts.span_figures import text_of
from otel_rollout.facts.span_rows import ERROR
from otel_rollout.facts.summary_columns import summary_of_json, tag_of
from otel_rollout.facts.trajectory_summary import TrajectorySummary
from otel_rollout.folder.frames import MAX_FRAME_BYTES, MAX_LINE_BYTES
from otel_rollout.text.sanitize import INT64_MAX, INT64_MIN

__all__ = ["ATTRIBUTE_FIELDS", "IndexEntry", "Row", "attributes_of", "place_of", "row_of", "summary_of_row"]


Scalar: TypeAlias = str | int | float | bool | None
Json: TypeAlias = bytes


class IndexEntry(NamedTuple):
    """The index's fields for the spans of one trace in one line; docs/reference/trace-folder.md has their meaning."""

    trace_id: str
    start_time: int
    end_time: int
    has_root: bool
    step: int | None
    sample_index: Scalar
    rollout_n: Scalar
    validate: bool | None
    experiment_name: Scalar
    status: Scalar
    reward: float | None
    offset: int
    length: int
    bytes: int
    checksum: str
    spans: int
    status_code: int
    name: str
    project_name: str | None
    run_id: str | None
    attributes: dict[str, Any]
    summary: Json = b""
    """The columns of its summary, as members of a JSON object; empty if the index is of an earlier version."""


Row: TypeAlias = Sequence[Any]
"""The fields of an `IndexEntry` in order; converting all rows takes a tenth of the time of listing them."""

place_of: Final[Callable[[str], int]] = IndexEntry._fields.index
"""Returns the position of a field in a row."""

ATTRIBUTE_FIELDS: Final = {
    semconv.STEP: "step",
    semconv.SAMPLE_INDEX: "sample_index",
    semconv.ROLLOUT_N: "rollout_n",
    semconv.VALIDATE: "validate",
    semconv.EXPERIMENT_NAME: "experiment_name",
    semconv.STATUS: "status",
    semconv.REWARD: "reward",
}
"""The attributes that have a field of their own."""

_fields_of: Final[Callable[[Mapping[str, Any]], tuple[Any, ...]]] = itemgetter(*IndexEntry._fields[:-1])
_is_trace_id: Final = re.compile("[0-9a-f]{32}").fullmatch
_TYPES: Final[Sequence[frozenset[Any]]] = [
    frozenset(get_args(hint) if get_origin(hint) is UnionType else (get_origin(hint) or hint,))
    for hint in list(get_type_hints(IndexEntry).values())[:-1]
]
_MAX_CACHED: Final = 1024
_sound_types: set[tuple[type, ...]] = set()


def row_of(message: Mapping[str, Any], summary: bytes = b"") -> Row:
    """Return the row of a parsed line of an index; unknown names are ignored.

    Args:
        message: The line.
        summary: The columns of its summary, not parsed.

    Raises:
        LookupError: A field is missing.
        ValueError: A field has another type, or is out of range.
    """
    row = _fields_of(message)
    types = tuple(map(type, row))
    # Nearly all rows have the same types.
    if types not in _sound_types:
        if not all(each in allowed for each, allowed in zip(types, _TYPES, strict=True)):
            raise ValueError("a field has another type")
        if len(_sound_types) >= _MAX_CACHED:
            _sound_types.clear()
        _sound_types.add(types)
    trace_id, start, end, _, step, _, _, _, _, _, _, offset, length, size, _, spans, status, _, _, _, _ = row
    if (
        not 0 <= start <= INT64_MAX
        or not 0 <= end <= INT64_MAX
        or (step is not None and not INT64_MIN <= step <= INT64_MAX)
        or offset < 0
        or not 0 < length <= MAX_FRAME_BYTES
        or not 0 <= size <= MAX_LINE_BYTES
        or not 0 < spans <= MAX_LINE_BYTES
        or not 0 <= status <= 2
        or _is_trace_id(trace_id) is None
    ):
        raise ValueError("a field is out of range")
    return (*row, summary)


def summary_of_row(
    row: Row, worker: str, shape_of_spans: Callable[[], Mapping[str, Any]] | None = None
) -> TrajectorySummary | None:
    """Return the summary of a row's spans; None if the index doesn't have it.

    Args:
        row: The row.
        worker: The process that wrote the file.
        shape_of_spans: Returns the columns of the shape if that of the index has another form.
    """
    entry = IndexEntry._make(row)
    if not entry.summary:
        return None
    identity = {
        "trace_id": entry.trace_id,
        "step": entry.step,
        "sample_index": tag_of(entry.sample_index),
        "rollout_n": tag_of(entry.rollout_n),
        "validate": entry.validate is True,
        "experiment_name": text_of(entry.experiment_name),
        "project_name": entry.project_name,
        "run_id": entry.run_id,
        "worker": worker,
        "name": entry.name,
        "start_time": entry.start_time,
        "end_time": entry.end_time,
        "has_root": entry.has_root,
        "status": text_of(entry.status) or ("error" if entry.has_root and entry.status_code == ERROR else None),
        "reward": entry.reward,
        "spans": entry.spans,
        "bytes": entry.bytes,
        "stored_bytes": entry.length,
    }
    try:
        return summary_of_json(identity, entry.summary, shape_of_spans)
    except ValueError:
        # Of another program or version.
        return None


def attributes_of(row: Row) -> dict[str, Any]:
    """Return the root's scalar attributes, with those that have a field of their own."""
    entry = IndexEntry._make(row)
    fields = {key: getattr(entry, field) for key, field in ATTRIBUTE_FIELDS.items()}
    known = {key: value for key, value in fields.items() if value is not None}
    return known | entry.attributes
