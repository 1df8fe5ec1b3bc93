"""The ids of the spans in a trace folder; an import skips them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final, NamedTuple

from otel_rollout.errors import NoTracesError
from otel_rollout.folder.index import IndexEntry
from otel_rollout.folder.stored_file import LineCache, ReadProblem, StoredFile
from otel_rollout.folder.trace_files import find_trace_files
from otel_rollout.otlp import EncodedSpan
from otel_rollout.receive.open_trace import has_id

__all__ = ["StoredSpans"]

_NOTHING: Final = b""


class _Place(NamedTuple):
    """A line of a trace: the fields that reading it takes."""

    file: StoredFile
    offset: int
    length: int
    checksum: str


class StoredSpans:
    """The ids of a folder's spans; those of a trace are read when a span of it comes.

    Takes 8 bytes for each span and some hundred for each trace.

    Args:
        folder: The folder.
    """

    def __init__(self, folder: Path) -> None:
        self._places: dict[bytes, tuple[_Place, ...]] = {}
        self._ids: dict[bytes, bytearray] = {}
        cache = LineCache()
        with suppress(NoTracesError):
            for file in find_trace_files(folder):
                for stored, row in StoredFile(file, cache, _ignore).parts():
                    entry = IndexEntry._make(row)
                    trace_id = bytes.fromhex(entry.trace_id)
                    place = _Place(stored, entry.offset, entry.length, entry.checksum)
                    self._places[trace_id] = (*self._places.get(trace_id, ()), place)

    def __len__(self) -> int:
        """The number of traces."""
        return len(self._places.keys() | self._ids.keys())

    def new_of(self, spans: Iterable[EncodedSpan]) -> list[EncodedSpan]:
        """Return the spans that the folder does not have, each once."""
        return [span for span in spans if self._is_new(span)]

    def _is_new(self, span: EncodedSpan) -> bool:
        ids = self._ids.get(span.trace_id)
        if ids is None:
            ids = self._ids[span.trace_id] = self._read(span.trace_id)
        if has_id(ids, span.span_id):
            return False
        ids += span.span_id
        return True

    def _read(self, trace_id: bytes) -> bytearray:
        ids = bytearray()
        for place in self._places.get(trace_id, ()):
            # What can't be read is damaged, and comes again.
            with suppress(OSError, ValueError):
                for span in place.file.read_spans(_row(trace_id, place)):
                    if span.context is not None:
                        ids += span.context.span_id.to_bytes(8, "big")
        return ids


def _row(trace_id: bytes, place: _Place) -> Sequence[object]:
    known = {"trace_id": trace_id.hex(), "offset": place.offset, "length": place.length, "checksum": place.checksum}
    return [known.get(name) for name in IndexEntry._fields]


def _ignore(problem: ReadProblem) -> None:
    """Readers report it."""
