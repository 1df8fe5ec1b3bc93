"""The snapshot: a value as it is now, as bytes that nothing of the program refers to.

Agents change the message lists that they pass around; a span shows a value as it was at the call. CPython's pickler
reads plain data in C (`stream`); objects are read as data (`object_walk`); what exceeds the budget is cut (`cutting`).
"""

from __future__ import annotations

import sys
from typing import Any, Final

from otel_rollout.record.cutting import (
    DENSE_BYTES,
    MANY_ITEMS,
    MAX_CONTAINERS,
    SMALL_BYTES,
    Cut,
    Cutter,
    containers_in,
    is_long,
    streams_in,
)
from otel_rollout.record.object_walk import is_of_pickler, stream_of
from otel_rollout.record.stream import FullError, OtherError, load_stream, write_stream
from otel_rollout.text.plain_json import on_program_thread, value_to_json

DEFAULT_BUDGET: Final = 1024 * 1024
"""The most bytes of a value, which bound its cost to the caller."""
MAX_ARGUMENTS: Final = 64
_SIZED: Final = frozenset(map(id, (str, list, tuple, dict, set, int)))
_STEP: Final = 17
_CONTAINERS: Final = b"]}\x8f\x85\x86\x87\x91"
"""The opcodes that make containers."""
BYTES_OF_A_SNAPSHOT: Final = 56 + 33
"""The object, and the head of its bytes."""


class Snapshot:
    """A value as it was, in bytes.

    Args:
        stream: The stream of the value, or what is left of a larger one.
        left_out: The items, keys and characters that the budget left out.
    """

    __slots__ = ("left_out", "stream")

    is_note = False
    """True if it replaces a payload that was dropped."""
    is_stream = False
    """True if it is the list of what a generator yielded."""

    def __init__(self, stream: bytes | Cut, left_out: int = 0) -> None:
        self.stream = stream
        self.left_out = left_out

    @property
    def size(self) -> int:
        """The bytes that it holds in memory."""
        stream = self.stream
        return BYTES_OF_A_SNAPSHOT + (len(stream) if type(stream) is bytes else stream.size)  # type: ignore[union-attr]

    @classmethod
    def of_note(cls, text: str, left_out: int = 0) -> Snapshot:
        """Return the note that replaces a payload that was dropped."""
        return _Note(write_stream(text, sys.maxsize), left_out)

    @classmethod
    def of_items(cls, items: list[Snapshot], cut: int) -> Snapshot:
        """Return the snapshot of a generator's items, as a list.

        Args:
            items: Their snapshots.
            cut: The number of items that are left out at its end.
        """
        streams = [item.stream for item in items]
        if cut:
            streams.append(write_stream(f"…[{cut:,} items cut]", sys.maxsize))
        return _Stream(Cut(streams), sum(item.left_out for item in items) + cut)

    def load(self) -> Any:
        """Return a new copy of the value: plain data, with bytes, sets, tuples, and keys of any plain type."""
        stream = self.stream
        return stream.load() if isinstance(stream, Cut) else load_stream(stream)


class _Note(Snapshot):
    __slots__ = ()

    is_note = True


class _Stream(Snapshot):
    __slots__ = ()

    is_stream = True


def take_snapshot(value: Any, budget: int = DEFAULT_BUDGET) -> Snapshot:
    """Return a copy of `value` that later changes don't reach; no code of a user's class runs.

    Args:
        value: Any value. Plain data, known types (pydantic, dataclasses, attrs, OmegaConf, numpy, torch, PIL, pandas,
            enums, dates, sets) and the public fields of other objects are copied. If a class has a method
            `__rollout_payload__`, its result is copied in place of the object.
        budget: The most bytes; a note replaces the rest.

    Raises:
        BaseException: From `__rollout_payload__` if it is not an Exception, and whatever interrupts the thread.
    """
    is_giant = _is_giant(value, budget)
    try:
        if not is_giant:
            # Most values are plain data.
            stream = write_stream(value, SMALL_BYTES)
            return Snapshot(stream)
    except (FullError, OtherError):
        pass
    except (RecursionError, RuntimeError, ValueError) as error:
        if not is_of_pickler(error):
            raise
    try:
        if not is_giant:
            stream, walk = stream_of(value, budget)
            if len(stream) <= SMALL_BYTES or not _may_explode(stream) or containers_in(value) <= MAX_CONTAINERS:
                return Snapshot(stream, walk.left_out)
    except FullError:
        pass
    cutter = Cutter()
    cut = cutter.cut(value, budget)
    if sum(map(len, filter(_may_explode, streams_in(cut)))) > SMALL_BYTES and containers_in(value) > MAX_CONTAINERS:
        cutter = Cutter()
        cut = cutter.cut(value, SMALL_BYTES)
    return Snapshot(cut, cutter.left_out)


def plain_value(value: Any) -> Any:
    """Return a private copy of a small value, as plain data."""
    return take_snapshot(value).load()


def to_json(taken: Snapshot) -> bytes:
    """Return a snapshot as JSON in UTF-8."""
    return value_to_json(taken.load())


def json_text(value: Any) -> str:
    """Return any value as JSON text, on the program's thread."""
    with on_program_thread():
        return to_json(take_snapshot(value)).decode()


def _is_giant(value: Any, budget: int) -> bool:
    """Return True for a long value, or for arguments of a call of which one is."""
    kind = type(value)
    if kind is not dict or len(value) > MAX_ARGUMENTS:
        return id(kind) in _SIZED and is_long(value, budget)
    for item in [*value.values()]:
        kind = type(item)
        if id(kind) in _SIZED and (kind is int or len(item) > MANY_ITEMS or kind is dict) and is_long(item, budget):
            return True
    return False


def _may_explode(stream: bytes) -> bool:
    """Return True if a sample of a stream has many opcodes of containers, which take 50 to 230 bytes in memory each."""
    if len(stream) <= SMALL_BYTES // DENSE_BYTES:
        return False
    sample = stream[::_STEP]
    return (len(sample) - len(sample.translate(None, _CONTAINERS))) * DENSE_BYTES > len(sample)
