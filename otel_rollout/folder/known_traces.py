"""A writer's record of traces: those that may still get spans, and those that were written a while ago."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Final

from otel_rollout.facts.builder import SummaryBuilder
from otel_rollout.folder.journal import JournalPart
from otel_rollout.guard.clock import monotonic

MIN_SET_BYTES: Final = 2**22
"""With fewer bytes to search, making a set takes longer."""
MAX_ID_BYTES: Final = 2**20
"""If a trace has more, its oldest ids are forgotten; readers pass over the doubles."""
TRACE_BYTES: Final = 512
PART_BYTES: Final = 256
"""The memory that a trace takes without ids and summary, and the place of a line, roughly."""


@dataclass(eq=False, slots=True)
class KnownTrace:
    """A trace whose spans are in the journal, in frames, or both.

    Args:
        ids: The ids of all its spans that are known, one after the other: a set would take ten times the memory.
        has_ended: True if the span that ends it has come.
        step: The training step of the part that was written.
        validate: True if that part is of a validation pass.
        summary: The summary of its spans in the journal; None if there are none, or they have to be read for it.
        parts: The places of its lines in the journal, the end's last.
        size: The size of their requests in bytes.
        last_seen: The time of its last new span, on the monotonic clock.
        memory: The memory that it took when `KnownTraces` counted it last.
    """

    ids: bytearray = field(default_factory=bytearray)
    has_ended: bool = False
    step: int | None = None
    validate: bool = False
    summary: SummaryBuilder | None = None
    parts: list[JournalPart] = field(default_factory=list)
    size: int = 0
    last_seen: float = 0.0
    memory: int = 0

    def add_ids(self, ids: Iterable[bytes]) -> None:
        """Add the ids of new spans, among which each later one is looked up."""
        self.ids += b"".join(ids)
        if len(self.ids) > MAX_ID_BYTES:
            del self.ids[: len(self.ids) - MAX_ID_BYTES // 2]

    def add_part(self, part: JournalPart, *, ends: bool) -> None:
        """Add the place of a line in the journal; `ends` is True if it has the span that ends the trace."""
        if ends or not self.has_ended or not self.parts:
            self.parts.append(part)
        else:
            self.parts.insert(len(self.parts) - 1, part)
        self.size += part.size
        self.has_ended = self.has_ended or ends

    def count_memory(self) -> int:
        """Count the memory that it takes."""
        summary = self.summary.size if self.summary is not None else 0
        self.memory = TRACE_BYTES + len(self.ids) + PART_BYTES * len(self.parts) + summary
        return self.memory


class KnownTraces:
    """All open traces, those that have ended apart from the others, the idlest first; and those written last.

    Args:
        max_written_memory: The bound on the memory of the written ones, beyond which the oldest are forgotten.
    """

    def __init__(self, max_written_memory: int) -> None:
        self.memory = 0
        """The memory of the open ones."""
        self._running: OrderedDict[bytes, KnownTrace] = OrderedDict()
        self._ended: OrderedDict[bytes, KnownTrace] = OrderedDict()
        self._written: OrderedDict[bytes, KnownTrace] = OrderedDict()
        self._written_memory = 0
        self._max_written_memory = max_written_memory

    def __len__(self) -> int:
        """The number of open ones."""
        return len(self._running) + len(self._ended)

    def get(self, trace_id: bytes) -> KnownTrace | None:
        """Return a trace; None if it is unknown."""
        return self._running.get(trace_id) or self._ended.get(trace_id) or self._written.get(trace_id)

    def open(self, trace_id: bytes, trace: KnownTrace) -> None:
        """Add an open trace, or note that it has a new span."""
        trace.last_seen = monotonic()
        self._remove(trace_id)
        (self._ended if trace.has_ended else self._running)[trace_id] = trace
        self.memory += trace.count_memory()

    def close(self, trace_id: bytes, trace: KnownTrace) -> None:
        """Note that all of a trace is written; its spans are known if they come again, and late ones get its step."""
        self._remove(trace_id)
        self._written[trace_id] = trace
        self._written_memory += trace.count_memory()
        while self._written_memory > self._max_written_memory:
            self._written_memory -= self._written.popitem(last=False)[1].memory

    def idlest(self) -> bytes:
        """Return the trace to write if there are too many: the idlest that has ended, else the idlest."""
        return next(iter(self._ended or self._running))

    def overdue(self, grace: float, idle: float) -> bytes | None:
        """Return the id of a trace that has ended and waited for `grace` seconds, or is idle for `idle` seconds."""
        now = monotonic()
        for traces, seconds in ((self._ended, grace), (self._running, idle)):
            first = next(iter(traces.items()), None)
            if first is not None and now - first[1].last_seen >= seconds:
                return first[0]
        return None

    def open_ids(self, *, only_ended: bool) -> list[bytes]:
        """Return the ids of the open traces."""
        return [*self._ended, *(() if only_ended else self._running)]

    def live_parts(self) -> Iterator[JournalPart]:
        """Yield the places of all lines in the journal."""
        for trace in (*self._running.values(), *self._ended.values()):
            yield from trace.parts

    def _remove(self, trace_id: bytes) -> None:
        trace = self._running.pop(trace_id, None) or self._ended.pop(trace_id, None)
        if trace is not None:
            self.memory -= trace.memory
        elif (written := self._written.pop(trace_id, None)) is not None:
            self._written_memory -= written.memory


def known_ids(ids: bytes | bytearray, wanted: Collection[bytes]) -> set[bytes]:
    """Return the spans' ids among `ids`: at least those that are `wanted`."""
    if len(wanted) * len(ids) < MIN_SET_BYTES:
        return {span_id for span_id in wanted if _has_id(ids, span_id)}
    return {bytes(ids[place : place + 8]) for place in range(0, len(ids), 8)}


def _has_id(ids: bytes | bytearray, span_id: bytes) -> bool:
    place = ids.find(span_id)
    while place >= 0:
        if not place % 8:
            return True
        place = ids.find(span_id, place + 1)
    return False
