"""Reads an index: its rows, and the summaries in them.

Readers ignore unknown names, and skip lines that are damaged or of another form: the frames have the same facts.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import lru_cache
from operator import itemgetter
from os import PathLike
from types import NoneType
from typing import Any, Final, get_args, get_type_hints

import orjson

# Their names are imported at first use: lists need none of them.
from otel_rollout import facts, otlp
from otel_rollout.facts.compact_spans import ERROR
from otel_rollout.facts.span_values import tag_of, text_of
from otel_rollout.facts.summaries import summary_of_json
from otel_rollout.facts.table import LISTED, TrajectorySummary
from otel_rollout.files.file_lock import size_of
from otel_rollout.folder.frames import MAX_FRAME_BYTES, MAX_LINE_BYTES, Frame, scan_frames
from otel_rollout.folder.index import FACTS, IndexEntry, entry_of
from otel_rollout.folder.layout import ZST
from otel_rollout.folder.lines import read_lines
from otel_rollout.text.sanitize import INT64_MAX, INT64_MIN

_ABSENT: Final[Mapping[str, Any]] = {
    name: False if name == "has_root" else None
    for name, hint in get_type_hints(IndexEntry).items()
    if hint is bool or NoneType in get_args(hint)
}
_fields_of: Final[Callable[[Mapping[str, Any]], tuple[Any, ...]]] = itemgetter(*IndexEntry._fields[:-1])
_is_trace_id: Final = re.compile("[0-9a-f]{32}").fullmatch
_TYPES: Final[Sequence[frozenset[Any]]] = [
    frozenset(get_args(hint) or (hint,)) for hint in list(get_type_hints(IndexEntry).values())[:-1]
]


def read_index(path: str | PathLike[str]) -> list[IndexEntry]:
    """Return the sound entries of an index, closed and open, by the path of the open one; none if there is no index."""
    return read_rows_from(path, 0)[0]


def read_rows_from(path: str | PathLike[str] | None, start: int) -> tuple[list[IndexEntry], int]:
    """Return the sound rows of an index, and the end of the last whole line in the open one.

    Args:
        path: The open one; None if there is none.
        start: The offset of a line in it: lines before are not read, unless they have moved into the closed one.
    """
    if path is None:
        return [], start
    # One that became shorter is another one, whose lines don't go on where the others ended.
    try:
        start = start if start and size_of(path) >= start else 0
    except FileNotFoundError:
        start = 0
    rows: list[IndexEntry] = []
    end = start
    # The open one first: a worker moves lines from it to the closed one.
    with suppress(FileNotFoundError):
        for size, lines in read_lines(path, start):
            end += size
            rows += _rows_of(lines)
    if start:
        return rows, end
    closed: list[IndexEntry] = []
    with suppress(FileNotFoundError):
        for frame in scan_frames(f"{os.fspath(path)}{ZST}"):
            # A torn block is still in the open index.
            if frame.request is not None:
                closed += _rows_of(line[:-1] for line in frame.request.splitlines())
    if rows and closed:
        # After a crash in between they are in both.
        known = {row.offset for row in closed}
        rows = [row for row in rows if row.offset not in known]
    return closed + rows, end


def _rows_of(lines: Iterable[bytes]) -> Iterator[IndexEntry]:
    """Yield the rows of lines without their last brace; a line of another program or version is left out."""
    for line in lines:
        try:
            yield _row_of(line)
        except (LookupError, TypeError, ValueError):  # noqa: PERF203 - `suppress` takes as long as the rest
            continue


def _row_of(line: bytes) -> IndexEntry:
    """Return the row of a line, whose facts stay unparsed: lists don't need them.

    Raises:
        LookupError: A field is missing.
        TypeError: It is no object.
        ValueError: It is no JSON, or a field has another type or is out of range.
    """
    fields, _, summary = line.partition(FACTS)
    row = _fields_of({**_ABSENT, **orjson.loads(fields + b"}")})
    trace_id, start, end, _, step, _, _, _, _, _, _, offset, length, size, _, spans, status, _, _, _ = row
    if (
        not _are_sound(tuple(map(type, row)))
        or not 0 <= start <= INT64_MAX
        or not 0 <= end <= INT64_MAX
        or (step is not None and not INT64_MIN <= step <= INT64_MAX)
        or offset < 0
        or not 0 < length <= MAX_FRAME_BYTES
        or not 0 <= size <= MAX_LINE_BYTES
        or not 0 < spans <= MAX_LINE_BYTES
        or not 0 <= status <= 2
        or _is_trace_id(trace_id) is None
    ):
        raise ValueError("a field has another type, or is out of range")
    # Without the check of `_make`, which takes as long again.
    return tuple.__new__(IndexEntry, (*row, summary))


@lru_cache(1024)
def _are_sound(types: tuple[type, ...]) -> bool:
    return all(each in allowed for each, allowed in zip(types, _TYPES, strict=True))


def entries_of(request: bytes, frame: Frame) -> list[IndexEntry]:
    """Return an entry for each trace in a request; `frame` has its place and checksum.

    Raises:
        ValueError: It is no OTLP request, or a span in it is malformed.
    """
    builders: dict[int, facts.SummaryBuilder] = {}
    for span in otlp.decode_spans(request):
        if span.context is not None:
            trace_id = span.context.trace_id
            builders.setdefault(trace_id, facts.SummaryBuilder(trace_id)).add((span,))
    size = len(request) // max(1, len(builders))
    return [entry_of(builder, frame, size) for builder in builders.values()]


def summary_of_row(row: IndexEntry, worker: str) -> TrajectorySummary | None:
    """Return the summary of a row's spans, as far as the index has it; None if it has no facts.

    Args:
        row: The row.
        worker: The process that wrote the file.
    """
    if not row.summary:
        return None
    try:
        return summary_of_json(listed_of(row, worker), row.summary)
    except ValueError:
        # Another program or version wrote it.
        return None


def listed_of(row: IndexEntry, worker: str) -> dict[str, Any]:
    """Return the facts of a row that need no summary; other programs write tags of any type."""
    status = text_of(row.status) or ("error" if row.has_root and row.status_code == ERROR else None)
    return {
        **{name: getattr(row, name) for name in LISTED},
        "sample_index": tag_of(row.sample_index),
        "rollout_n": tag_of(row.rollout_n),
        "validate": row.validate is True,
        "experiment_name": text_of(row.experiment_name),
        "worker": worker,
        "status": status,
        "bytes": row.bytes,
        "stored_bytes": row.length,
    }
