"""What the index says of one line of a file of trajectories."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from operator import itemgetter
from typing import Any, Final, NamedTuple, TypeAlias

from otel_rollout import semconv
from otel_rollout.trace_folder.frames import MAX_FRAME_BYTES, MAX_LINE_BYTES

__all__ = ["ATTRIBUTE_FIELDS", "IndexEntry", "Row", "attributes_of", "place_of", "row_of"]


class IndexEntry(NamedTuple):
    """What the index says of a line; the fields are the names on disk.

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
        checksum: That of the line, 8 hexadecimal digits: the end of its frame, or of a journal's line.
        spans: How many spans are in it.
        status_code: The root's status: 0 for unset, 1 for ok, 2 for an error.
        name: The root's name; without a root, that of its first span.
        project_name: The project, where its resource names one.
        run_id: The run, where its resource names one.
        attributes: The root's scalar attributes without payload; without a root, the tags. Without those that the other
            fields have.
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
    checksum: str
    spans: int
    status_code: int
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

_fields_of: Final[Callable[[Mapping[str, Any]], tuple[Any, ...]]] = itemgetter(*IndexEntry._fields)
_is_trace_id: Final = re.compile("[0-9a-f]{32}").fullmatch
_none: Final = type(None)
_SCALARS: Final = frozenset({str, int, float, bool, _none})
_TEXT: Final = frozenset({str, _none})
_TYPES: Final[Sequence[frozenset[Any]]] = tuple(
    {
        "has_root": frozenset({bool}),
        "step": frozenset({int, _none}),
        "sample_index": _SCALARS,
        "rollout_n": _SCALARS,
        "validate": frozenset({bool, _none}),
        "experiment_name": _SCALARS,
        "status": _SCALARS,
        "reward": frozenset({float, _none}),
        "trace_id": frozenset({str}),
        "checksum": frozenset({str}),
        "name": frozenset({str}),
        "project_name": _TEXT,
        "run_id": _TEXT,
        "attributes": frozenset({dict}),
    }.get(name, frozenset({int}))
    for name in IndexEntry._fields
)
_MAX_CACHED: Final = 1024
_sound_types: set[tuple[type, ...]] = set()


def row_of(message: Mapping[str, Any]) -> Row:
    """Return what a line of an index says; names that are not ours are passed over.

    Args:
        message: The line, parsed.

    Raises:
        LookupError: A field is missing.
        ValueError: A field has a value that no index has.
    """
    row = _fields_of(message)
    types = tuple(map(type, row))
    # Of thousands of rows nearly all are alike in this.
    if types not in _sound_types:
        if not all(each in allowed for each, allowed in zip(types, _TYPES, strict=True)):
            raise ValueError("a field has another type")
        if len(_sound_types) >= _MAX_CACHED:
            _sound_types.clear()
        _sound_types.add(types)
    trace_id, _, _, _, _, _, _, _, _, _, _, offset, length, size, _, spans, status, _, _, _, _ = row
    if (
        offset < 0
        or not 0 < length <= MAX_FRAME_BYTES
        or not 0 <= size <= MAX_LINE_BYTES
        or not 0 < spans <= MAX_LINE_BYTES
        or not 0 <= status <= 2
        or _is_trace_id(trace_id) is None
    ):
        raise ValueError("a field is out of range")
    return row


def attributes_of(row: Row) -> dict[str, Any]:
    """Return the root's scalar attributes, with those that have a field of their own.

    Args:
        row: The root's entry.
    """
    entry = IndexEntry._make(row)
    fields = {key: getattr(entry, field) for key, field in ATTRIBUTE_FIELDS.items()}
    known = {key: value for key, value in fields.items() if value is not None}
    return known | entry.attributes
