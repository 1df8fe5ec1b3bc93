"""The index beside a file of trajectories, so that lists and filters need not read spans.

A line is a JSON object with the fields of `IndexEntry`, and its checksum. Readers ignore unknown names, and skip lines
that are damaged or of another form: the frames say the same.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from os import PathLike
from pathlib import Path
from typing import Final

import orjson

from otel_rollout import semconv
from otel_rollout.facts.summary_builder import SummaryBuilder
from otel_rollout.facts.summary_columns import FIRST_COLUMN
from otel_rollout.files.file_lock import exclusive_lock, open_to_read
from otel_rollout.files.file_modes import open_private
from otel_rollout.folder.index_entry import ATTRIBUTE_FIELDS, IndexEntry, Row, row_of
from otel_rollout.folder.layout import NEW, index_path
from otel_rollout.folder.lines import SEAL_BYTES, is_whole, seal_of
from otel_rollout.guard.log_once import internal_error
from otel_rollout.otlp import decode_spans
from otel_rollout.text.sanitize import clean

__all__ = [
    "MAX_INDEX_LINE_BYTES",
    "entries_of",
    "entry_of",
    "index_line",
    "read_index",
    "read_rows",
    "write_index",
]

MAX_INDEX_LINE_BYTES: Final = 2**24
"""Longer lines are neither written nor read."""

_SUMMARY: Final = b',"%b":' % FIRST_COLUMN.encode()
_READ_BYTES: Final = 2**20


def entry_of(builder: SummaryBuilder, offset: int, length: int, size: int, checksum: str) -> IndexEntry:
    """Return the entry of a trajectory's line.

    Args:
        builder: What is said of its spans.
        offset: The entry's `offset`.
        length: Its `length`.
        size: Its `bytes`.
        checksum: Its `checksum`.
    """
    attributes = {clean(key): clean(value) for key, value in builder.attributes.items()}
    validate = attributes.get(semconv.VALIDATE)
    entry = IndexEntry(
        f"{builder.trace_id:032x}",
        builder.start_time,
        builder.end_time,
        builder.has_root,
        builder.step,
        attributes.get(semconv.SAMPLE_INDEX),
        attributes.get(semconv.ROLLOUT_N),
        None if validate is None else bool(validate),
        attributes.get(semconv.EXPERIMENT_NAME),
        attributes.get(semconv.STATUS),
        builder.reward,
        offset,
        length,
        size,
        checksum,
        builder.spans,
        builder.status_code,
        builder.name,
        builder.project_name,
        builder.run_id,
        attributes,
        _columns_of(builder),
    )
    for key, name in ATTRIBUTE_FIELDS.items():
        # Only if the field has the same value: a step that is a string, a reward that is an integer stay.
        if key in attributes and attributes[key] is getattr(entry, name):
            del attributes[key]
    return entry


def _columns_of(builder: SummaryBuilder) -> bytes:
    """Return the columns of a summary; none if it can't be made, since the spans are stored already."""
    if not builder.is_complete:
        return b""
    try:
        return orjson.dumps(builder.columns())[1:-1]
    except Exception:
        internal_error("summarising a trajectory")
        return b""


def index_line(entry: IndexEntry) -> bytes:
    """Return an entry as a sealed line, with its line end."""
    fields = entry._asdict()
    summary = fields.pop("summary")
    start = orjson.dumps(fields)[:-1]
    if summary:
        start = b"%b,%b" % (start, summary)
    return start + seal_of(start)


def read_index(path: str | PathLike[str]) -> list[IndexEntry]:
    """Return the sound entries of an index; none if there is no index."""
    return list(map(IndexEntry._make, read_rows(path)))


def read_rows(path: str | PathLike[str]) -> list[Row]:
    """Return the sound rows of an index; none if there is no index."""
    rows: list[Row] = []
    with suppress(FileNotFoundError):
        for lines in _read_lines(path):
            sound = [line for line in lines if is_whole(line)]
            try:
                rows += list(map(_parse, sound))
            except (LookupError, TypeError, ValueError):
                # Whole, but no entry: of another program or version.
                rows += _sound_rows(sound)
    return rows


def _parse(line: bytes) -> Row:
    """Return the row of a line, whose summary stays unparsed: lists don't need it.

    Raises:
        LookupError: A field is missing.
        TypeError: It is no object.
        ValueError: It is no JSON, or a field has another type.
    """
    at = line.find(_SUMMARY)
    if at < 0:
        return row_of(orjson.loads(line))
    try:
        return row_of(orjson.loads(line[:at] + b"}"), line[at + 1 : -SEAL_BYTES])
    except orjson.JSONDecodeError:
        # An attribute of the root has the name.
        return row_of(orjson.loads(line))


def _read_lines(path: str | PathLike[str]) -> Iterator[list[bytes]]:
    """Yield the complete lines of an index, thousands at once, up to one that is too long."""
    descriptor = open_to_read(path)
    try:
        rest = b""
        size = max(1, min(_READ_BYTES, os.fstat(descriptor).st_size))
        while data := os.read(descriptor, size):
            lines = (rest + data).split(b"\n") if rest else data.split(b"\n")
            rest = lines.pop()
            yield lines
            if len(rest) > MAX_INDEX_LINE_BYTES:
                return
    finally:
        os.close(descriptor)


def _sound_rows(lines: Iterable[bytes]) -> Iterator[Row]:
    for line in lines:
        with suppress(LookupError, TypeError, ValueError):
            yield _parse(line)


def entries_of(request: bytes, offset: int, length: int, checksum: str) -> list[IndexEntry]:
    """Return an entry for each trace in a request; the other arguments are fields of all of them.

    Raises:
        ValueError: It is no OTLP request, or a span in it is malformed.
    """
    builders: dict[int, SummaryBuilder] = {}
    for span in decode_spans(request):
        if span.context is not None:
            trace_id = span.context.trace_id
            builders.setdefault(trace_id, SummaryBuilder(trace_id)).add((span,))
    size = len(request) // max(1, len(builders))
    return [entry_of(builder, offset, length, size, checksum) for builder in builders.values()]


def write_index(lines: Path, rows: Sequence[Row]) -> None:
    """Write the index of a file whose process has ended; failing is no error: readers parse the file then.

    Args:
        lines: The journal, or the file of frames.
        rows: The rows of all its lines.
    """
    path = index_path(lines)
    new = path.with_name(f".{path.name}{NEW}")
    # Locked meanwhile, so that no two readers write it at once.
    with suppress(OSError), exclusive_lock(lines) as descriptor:
        if descriptor is None:
            return
        try:
            with os.fdopen(open_private(new, os.O_WRONLY | os.O_TRUNC), "wb") as file:
                file.writelines(index_line(IndexEntry._make(row)) for row in rows)
            new.replace(path)
        except OSError:
            new.unlink()
            raise
