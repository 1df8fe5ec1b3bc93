"""The index beside a file of trajectories, so that lists and filters need not read spans.

A line is a JSON object with the fields of `IndexEntry`, and its checksum. Readers ignore unknown names, and skip lines
that are damaged or of another form: the frames say the same.
"""

from __future__ import annotations

import math
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from os import PathLike
from pathlib import Path
from types import NoneType
from typing import Any, Final

import orjson
from opentelemetry.sdk.trace import ReadableSpan

from otel_rollout import semconv
from otel_rollout.export.file_modes import open_private
from otel_rollout.trace_folder.file_lock import exclusive_lock, open_to_read
from otel_rollout.trace_folder.index_entry import ATTRIBUTE_FIELDS, IndexEntry, Row, row_of
from otel_rollout.trace_folder.layout import NEW, index_path
from otel_rollout.trace_folder.lines import is_whole, seal_of
from otel_rollout.trace_folder.otlp_json import clean, decode_line
from otel_rollout.values.sanitize import INT64_MAX, fits_int64

__all__ = [
    "MAX_INDEX_LINE_BYTES",
    "TraceSummary",
    "entries_of",
    "index_line",
    "read_index",
    "read_rows",
    "write_journal_index",
]

MAX_TEXT_CHARACTERS: Final = 1024
"""Longer strings of the root are left out."""
MAX_INDEX_LINE_BYTES: Final = 2**24
"""Longer lines are neither written nor read."""

_LEFT_OUT: Final = frozenset(
    {
        semconv.INPUT_VALUE,
        semconv.OUTPUT_VALUE,
        semconv.INPUT_MIME_TYPE,
        semconv.OUTPUT_MIME_TYPE,
        semconv.METADATA,
        semconv.SPAN_KIND,
        semconv.OPERATION_NAME,
    }
)
_READ_BYTES: Final = 2**20


@dataclass(slots=True)
class TraceSummary:
    """Collects the fields of a trace's index entry from its spans."""

    trace_id: int
    spans: int = 0
    has_root: bool = False
    _name: str | None = None
    _start_time: int | None = None
    _end_time: int = 0
    _status_code: int = 0
    _project_name: str | None = None
    _run_id: str | None = None
    _attributes: dict[str, Any] = field(default_factory=dict)
    _has_tags: bool = False

    def add(self, spans: Iterable[ReadableSpan]) -> None:
        """Add spans of the trace."""
        for span in spans:
            self.spans += 1
            start, end = span.start_time, span.end_time
            if start is not None and (self._start_time is None or start < self._start_time):
                self._start_time = start
            if end is not None and end > self._end_time:
                self._end_time = end
            if self._name is None:
                self._name = span.name
                resource = span.resource.attributes
                self._project_name = _text(resource.get(semconv.PROJECT_NAME))
                self._run_id = _text(resource.get(semconv.RUN_ID))
            if span.parent is None:
                self.has_root = self._has_tags = True
                self._name = span.name
                self._status_code = span.status.status_code.value
                self._attributes = _scalars(span.attributes or {}, f"{self.trace_id:032x}")
            elif not self._has_tags and (span.attributes or {}).get(semconv.STEP) is not None:
                self._has_tags = True
                tags = {key: (span.attributes or {}).get(key) for key in semconv.TAGS}
                self._attributes = _scalars({key: value for key, value in tags.items() if value is not None}, "")

    def set_place(self, step: int | None, *, validate: bool) -> None:
        """Give it the step of the trajectory that its spans belong to, if they have none themselves.

        Args:
            step: The training step.
            validate: Whether it is a validation pass.
        """
        if step is not None and self._attributes.get(semconv.STEP) is None:
            self._attributes[semconv.STEP] = step
            self._attributes[semconv.VALIDATE] = validate

    @property
    def step(self) -> int | None:
        """The training step, if it is an integer."""
        step = self._attributes.get(semconv.STEP)
        return step if type(step) is int else None

    @property
    def validate(self) -> bool:
        """True if it is part of a validation pass."""
        return bool(self._attributes.get(semconv.VALIDATE))

    def entry(self, offset: int, length: int, size: int, checksum: str) -> IndexEntry:
        """Return the entry; the arguments are its fields `offset`, `length`, `bytes` and `checksum`."""
        attributes = {clean(key): clean(value) for key, value in self._attributes.items()}
        validate, reward = attributes.get(semconv.VALIDATE), attributes.get(semconv.REWARD)
        entry = IndexEntry(
            f"{self.trace_id:032x}",
            min(self._start_time or 0, INT64_MAX),
            min(self._end_time, INT64_MAX),
            self.has_root,
            self.step,
            attributes.get(semconv.SAMPLE_INDEX),
            attributes.get(semconv.ROLLOUT_N),
            None if validate is None else bool(validate),
            attributes.get(semconv.EXPERIMENT_NAME),
            attributes.get(semconv.STATUS),
            None if isinstance(reward, (str, NoneType)) else float(reward),
            offset,
            length,
            size,
            checksum,
            self.spans,
            self._status_code,
            clean(self._name or ""),
            clean(self._project_name),
            clean(self._run_id),
            attributes,
        )
        for key, name in ATTRIBUTE_FIELDS.items():
            # Only if the field has the same object: a step that is a string, a reward that is an integer stay.
            if key in attributes and attributes[key] is getattr(entry, name):
                del attributes[key]
        return entry


def index_line(entry: IndexEntry) -> bytes:
    """Return an entry as a sealed line, with its line end."""
    start = orjson.dumps(entry._asdict())[:-1]
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
                rows += list(map(row_of, map(orjson.loads, sound)))
            except (LookupError, TypeError, ValueError):
                # Whole, but no entry: of another program or version.
                rows += _sound_rows(sound)
    return rows


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
            yield row_of(orjson.loads(line))


def entries_of(line: bytes, offset: int, length: int, checksum: str) -> list[IndexEntry]:
    """Return an entry for each trace in a line; the other arguments are fields of all of them.

    Raises:
        ValueError: It is not a line of OTLP JSON.
    """
    summaries: dict[int, TraceSummary] = {}
    for span in decode_line(line):
        if span.context is not None:
            trace_id = span.context.trace_id
            summaries.setdefault(trace_id, TraceSummary(trace_id)).add((span,))
    size = len(line.rstrip(b"\n")) // max(1, len(summaries))
    return [summary.entry(offset, length, size, checksum) for summary in summaries.values()]


def write_journal_index(journal: Path, rows: Sequence[Row]) -> None:
    """Write the index of a journal whose process has ended; failing is no error: readers parse the journal then.

    Args:
        journal: The journal.
        rows: The rows of all its lines.
    """
    path = index_path(journal)
    new = path.with_name(f".{path.name}{NEW}")
    # Locked meanwhile, so that no two readers write it at once.
    with suppress(OSError), exclusive_lock(journal) as descriptor:
        if descriptor is None:
            return
        try:
            with os.fdopen(open_private(new, os.O_WRONLY | os.O_TRUNC), "wb") as file:
                file.writelines(index_line(IndexEntry._make(row)) for row in rows)
            new.replace(path)
        except OSError:
            new.unlink()
            raise


def _scalars(attributes: Mapping[str, Any], trace_id: str) -> dict[str, Any]:
    """Return the attributes that fit into an index: strings other than the trace id, booleans and numbers."""
    scalars: dict[str, Any] = {}
    for key, value in attributes.items():
        if key in _LEFT_OUT:
            continue
        if isinstance(value, str):
            if len(value) <= MAX_TEXT_CHARACTERS and value != trace_id:
                scalars[key] = value
        elif isinstance(value, float):
            if math.isfinite(value):
                scalars[key] = float(value)
        elif isinstance(value, int) and fits_int64(value):
            scalars[key] = value
    return scalars


def _text(value: Any) -> str | None:
    return value if isinstance(value, str) else None
