"""The index beside a file of trajectories: what each is, and where, so that lists and filters need not read spans.

A line is a JSON object with the fields of `IndexEntry` by name, and a checksum as the last. Readers pass over names
that they don't know, and over lines that are damaged or of another form: the frames say the same.
"""

from __future__ import annotations

import math
import os
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from os import PathLike
from types import NoneType
from typing import Any, Final

import orjson
from opentelemetry.sdk.trace import ReadableSpan

from otel_rollout import semconv
from otel_rollout.sanitize import INT64_MAX, fits_int64, replace_surrogates
from otel_rollout.trace_folder.file_lock import open_to_read
from otel_rollout.trace_folder.index_entry import ATTRIBUTE_FIELDS, IndexEntry, Row, row_of
from otel_rollout.trace_folder.otlp_json import decode_line
from otel_rollout.trace_folder.sealed_line import is_whole, seal_of

__all__ = ["MAX_INDEX_LINE_BYTES", "TraceSummary", "entries_of", "index_line", "read_index", "read_rows"]

MAX_TEXT_CHARACTERS: Final = 1024
"""A longer text of the root stays out of the index."""
MAX_INDEX_LINE_BYTES: Final = 2**24
"""A longer line is not written, and read by nobody."""

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


class TraceSummary:
    """What the index will say of a trace, gathered as its spans come.

    Args:
        trace_id: The trace.
    """

    __slots__ = (
        "_attributes",
        "_end_time",
        "_has_tags",
        "_name",
        "_project_name",
        "_run_id",
        "_start_time",
        "_status_code",
        "has_root",
        "spans",
        "trace_id",
    )

    def __init__(self, trace_id: int) -> None:
        self.trace_id = trace_id
        self.spans = 0
        self.has_root = False
        self._name: str | None = None
        self._start_time: int | None = None
        self._end_time = 0
        self._status_code = 0
        self._project_name: str | None = None
        self._run_id: str | None = None
        self._attributes: dict[str, Any] = {}
        self._has_tags = False

    def add(self, spans: Iterable[ReadableSpan]) -> None:
        """Take note of spans of the trace.

        Args:
            spans: The spans.
        """
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

    @property
    def step(self) -> int | None:
        """The training step, where it is a whole number."""
        step = self._attributes.get(semconv.STEP)
        return step if type(step) is int else None

    @property
    def validate(self) -> bool:
        """Whether it is part of a validation pass."""
        return bool(self._attributes.get(semconv.VALIDATE))

    def entry(self, offset: int, length: int, size: int, checksum: str) -> IndexEntry:
        """Return what the index says.

        Args:
            offset: The frame's first byte.
            length: How many bytes the frame has.
            size: How many bytes the line has.
            checksum: The line's.
        """
        attributes = {_clean(key): _clean(value) for key, value in self._attributes.items()}
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
            _clean(self._name or ""),
            _clean(self._project_name),
            _clean(self._run_id),
            attributes,
        )
        for key, field in ATTRIBUTE_FIELDS.items():
            # Nothing but what the field says as it is: a step that is a text, a reward that is an integer stay.
            if key in attributes and attributes[key] is getattr(entry, field):
                del attributes[key]
        return entry


def index_line(entry: IndexEntry) -> bytes:
    """Return an entry as a line of an index, with its checksum and its line end."""
    start = orjson.dumps(entry._asdict())[:-1]
    return start + seal_of(start)


def read_index(path: str | PathLike[str]) -> list[IndexEntry]:
    """Return the entries of an index but for those that are damaged; none where there is no index.

    Args:
        path: The index.

    Raises:
        OSError: It can't be read.
    """
    return list(map(IndexEntry._make, read_rows(path)))


def read_rows(path: str | PathLike[str]) -> list[Row]:
    """Return the rows of an index but for those that are damaged; none where there is no index.

    Args:
        path: The index.

    Raises:
        OSError: It can't be read.
    """
    rows: list[Row] = []
    with suppress(FileNotFoundError):
        for lines in _read_lines(path):
            sound = [line for line in lines if is_whole(line)]
            try:
                rows += list(map(row_of, map(orjson.loads, sound)))
            except (LookupError, TypeError, ValueError):
                # Whole and no entry: somebody else's, or of a version to come.
                rows += _sound_rows(sound)
    return rows


def _read_lines(path: str | PathLike[str]) -> Iterator[list[bytes]]:
    """Yield the whole lines of an index, some thousands at once, up to one that is longer than any."""
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
    """Return what an index would say of a line, an entry for each of its traces.

    Args:
        line: The line, with or without its end.
        offset: Where it or its frame begins.
        length: How many bytes it or its frame has.
        checksum: The line's.

    Raises:
        ValueError: This is no line of OTLP JSON.
    """
    summaries: dict[int, TraceSummary] = {}
    for span in decode_line(line):
        if span.context is not None:
            trace_id = span.context.trace_id
            summaries.setdefault(trace_id, TraceSummary(trace_id)).add((span,))
    size = len(line.rstrip(b"\n")) // max(1, len(summaries))
    return [summary.entry(offset, length, size, checksum) for summary in summaries.values()]


def _scalars(attributes: Mapping[str, Any], trace_id: str) -> dict[str, Any]:
    """Return what fits into an index: texts, truth values and numbers; what says the trace id once more is left out."""
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


def _clean(value: Any) -> Any:
    return replace_surrogates(value) if isinstance(value, str) else value
