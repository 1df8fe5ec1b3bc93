"""Traces that may still get spans, and those that were written a while ago."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from typing import Final, NamedTuple

from otel_rollout.facts.builder import SummaryBuilder
from otel_rollout.folder.journal import JournalPart
from otel_rollout.guard.clock import monotonic

__all__ = ["OpenTrace", "OpenTraces", "WrittenTrace", "WrittenTraces", "finder", "has_id"]

ID_BYTES: Final = 8
MIN_SET_BYTES: Final = 2**22
"""With fewer bytes to search, making a set takes longer."""
MAX_WRITTEN: Final = 200_000
MAX_WRITTEN_ID_BYTES: Final = 32 * 2**20
MAX_TRACE_ID_BYTES: Final = 2**20
"""If a trace has more, its ids are forgotten once it is written; readers pass over the doubles."""


@dataclass(eq=False, slots=True)
class OpenTrace:
    """A trace whose spans are in the journal.

    Args:
        summary: The summary of its spans that are in the journal; None if they have to be read for it.
        ids: The ids of all its spans that are known, one after the other: a set would take ten times the memory.
        parts: The places of its lines in the journal, the root's last.
        bytes: Their size.
        has_root: True if its root has come.
        last_seen: The time of its last new span, on the monotonic clock.
        step: The training step of the part that was written before.
        validate: True if that part is of a validation pass.
    """

    summary: SummaryBuilder | None
    ids: bytearray
    parts: list[JournalPart] = field(default_factory=list)
    bytes: int = 0
    has_root: bool = False
    last_seen: float = 0.0
    step: int | None = None
    validate: bool = False


class OpenTraces:
    """All open traces, those whose root has come apart from the others, the idlest first."""

    def __init__(self) -> None:
        self.parts = 0
        """The number of their lines in the journal."""
        self._running: OrderedDict[bytes, OpenTrace] = OrderedDict()
        self._ended: OrderedDict[bytes, OpenTrace] = OrderedDict()

    def __len__(self) -> int:
        return len(self._running) + len(self._ended)

    def get(self, trace_id: bytes) -> OpenTrace | None:
        """Return an open trace; None if it isn't open."""
        return self._running.get(trace_id) or self._ended.get(trace_id)

    def put(self, trace_id: bytes, trace: OpenTrace) -> None:
        """Add a trace, or note that it has a new span."""
        trace.last_seen = monotonic()
        if trace.has_root:
            self._running.pop(trace_id, None)
        traces = self._ended if trace.has_root else self._running
        traces[trace_id] = trace
        traces.move_to_end(trace_id)

    def remove(self, trace_id: bytes) -> None:
        """Remove a trace."""
        self._running.pop(trace_id, None)
        self._ended.pop(trace_id, None)

    def idlest(self) -> bytes:
        """Return the trace to write if there are too many: the idlest with a root, else the idlest."""
        return next(iter(self._ended or self._running))

    def overdue(self, grace: float, idle: float) -> bytes | None:
        """Return the id of a trace whose grace or idle time is over; None if there is none.

        Args:
            grace: The seconds for a trace with a root.
            idle: The seconds for one without.
        """
        now = monotonic()
        for traces, seconds in ((self._ended, grace), (self._running, idle)):
            first = next(iter(traces.items()), None)
            if first is not None and now - first[1].last_seen >= seconds:
                return first[0]
        return None

    def ended(self) -> Iterator[bytes]:
        """Yield the traces whose root has come; each may be removed meanwhile."""
        yield from list(self._ended)

    def live_parts(self) -> Iterator[JournalPart]:
        """Yield the places of all lines in the journal."""
        for traces in (self._running, self._ended):
            for trace in traces.values():
                yield from trace.parts


class WrittenTrace(NamedTuple):
    """A trace that was written, as its `OpenTrace` was: the place of what comes late."""

    ids: bytes
    has_root: bool
    step: int | None
    validate: bool


class WrittenTraces:
    """The traces that were written last; their spans are dropped if they come again."""

    def __init__(self) -> None:
        self._traces: OrderedDict[bytes, WrittenTrace] = OrderedDict()
        self._id_bytes = 0

    def get(self, trace_id: bytes) -> WrittenTrace | None:
        """Return a trace; None if it is unknown."""
        return self._traces.get(trace_id)

    def add(self, trace_id: bytes, trace: WrittenTrace) -> None:
        """Add a trace, and forget the oldest beyond the bounds."""
        self.pop(trace_id)
        if len(trace.ids) > MAX_TRACE_ID_BYTES:
            trace = trace._replace(ids=b"")
        self._traces[trace_id] = trace
        self._id_bytes += len(trace.ids)
        while len(self._traces) > MAX_WRITTEN or self._id_bytes > MAX_WRITTEN_ID_BYTES:
            self._id_bytes -= len(self._traces.popitem(last=False)[1].ids)

    def pop(self, trace_id: bytes) -> WrittenTrace | None:
        """Remove a trace and return it; None if it is unknown."""
        trace = self._traces.pop(trace_id, None)
        if trace is not None:
            self._id_bytes -= len(trace.ids)
        return trace


def finder(ids: bytes | bytearray, times: int) -> Callable[[bytes], bool]:
    """Return a function that checks if a span's id is among `ids`.

    Args:
        ids: The ids.
        times: The number of spans that will be looked for.
    """
    if times * len(ids) < MIN_SET_BYTES:
        return partial(has_id, ids)
    return {bytes(ids[place : place + ID_BYTES]) for place in range(0, len(ids), ID_BYTES)}.__contains__


def has_id(ids: bytes | bytearray, span_id: bytes) -> bool:
    """Return True if a span's id is among `ids`."""
    place = ids.find(span_id)
    while place >= 0:
        if not place % ID_BYTES:
            return True
        place = ids.find(span_id, place + 1)
    return False
