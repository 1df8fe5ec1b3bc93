"""The snapshot: a value as it is now, as bytes that nothing of the program refers to.

Agents change the message lists that they pass around; a span shows a value as it was at the call. CPython's pickler
reads plain data; what isn't plain is copied first. What doesn't fit into the budget is cut.
"""

from __future__ import annotations

import pickle
from typing import Any, Final

from otel_rollout.guard.log_once import internal_error
from otel_rollout.guard.provenance import is_programs
from otel_rollout.record.bounded_copy import (
    BODY,
    CONTAINERS,
    DEFAULT_BUDGET,
    HEAD,
    STOP,
    Copier,
    Cutter,
    FullError,
    OtherError,
    Sink,
    body_of,
    dump,
    list_items,
)
from otel_rollout.record.fields import class_name
from otel_rollout.record.readers import SCALARS, reader_of
from otel_rollout.text.plain_json import on_program_thread, value_to_json

MAX_ARGUMENTS: Final = 16
SMALL_BYTES: Final = 64 * 1024
SMALL_UNITS: Final = 16_000
_PLAIN: Final = CONTAINERS | SCALARS | {bytes}


class Snapshot:
    """A value as it was, in bytes; `left_out` counts the items, keys and characters that the budget left out."""

    __slots__ = ("left_out", "stream")

    is_note = False
    """True if it replaces a payload that was dropped."""
    is_stream = False
    """True if it is the list of what a generator yielded."""

    def __init__(self, stream: bytes, left_out: int = 0) -> None:
        self.stream = stream
        self.left_out = left_out

    @property
    def size(self) -> int:
        """The bytes that it holds in memory."""
        # The object, and the head of its bytes.
        return 56 + 33 + len(self.stream)

    @classmethod
    def of_note(cls, text: str, left_out: int = 0) -> Snapshot:
        """Return the note that replaces a payload that was dropped."""
        return _Note(pickle.dumps(text, 5), left_out)

    @classmethod
    def of_items(cls, items: list[Snapshot], cut: int) -> Snapshot:
        """Return the list of a generator's items, of which `cut` are left out at its end."""
        bodies = [item.stream[BODY] for item in items]
        if cut:
            bodies.append(body_of(f"…[{cut:,} items cut]"))
        return _Stream(HEAD + b"]" + list_items(bodies) + STOP, sum(item.left_out for item in items) + cut)

    def load(self) -> Any:
        """Return a new copy of the value: plain data, with bytes, sets, tuples, and keys of any plain type."""
        return pickle.loads(self.stream)  # noqa: S301 - our own bytes


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
        budget: The most bytes; notes replace the rest.

    Raises:
        BaseException: From `__rollout_payload__` if it is not an Exception, and whatever interrupts the thread.
    """
    try:
        has_objects, is_long = _look(value)
        if has_objects:
            copier = Copier(SMALL_UNITS)
            try:
                plain = copier.copy(value)
                return Snapshot(dump(plain, Sink(budget, SMALL_UNITS, is_private=True)), copier.left_out)
            except FullError:
                pass
        elif not is_long:
            # Most values are plain data.
            try:
                # So few bytes are bound enough.
                return Snapshot(dump(value, Sink(min(budget, SMALL_BYTES), SMALL_BYTES, min_read=2 * SMALL_BYTES)))
            except (FullError, OtherError):
                pass
            except Exception as error:  # another thread changes it, it contains itself, or is nested too deeply
                if is_programs(error):
                    raise
        cutter = Cutter(budget)
        return Snapshot(cutter.cut(value, budget), cutter.left_out)
    except Exception as error:
        if is_programs(error):
            raise
        internal_error("taking a snapshot")
        return Snapshot.of_note(f"<unreadable {class_name(type(value))}>", 1)


def _look(value: Any) -> tuple[bool, bool]:
    """Return True if a value or an argument of a call is an object, and True if one is long."""
    has_objects = is_long = False
    for item in [*value.values()] if type(value) is dict and len(value) <= MAX_ARGUMENTS else [value]:
        if type(item) is list or type(item) is tuple:
            is_long = is_long or len(item) > SMALL_BYTES
            item = [*item[:1], None][0]  # noqa: PLW2901 - it stands for the others
        kind = type(item)
        if kind is str:
            is_long = is_long or len(item) > SMALL_BYTES
        elif kind is int:
            is_long = is_long or item.bit_length() > SMALL_BYTES
        elif kind not in _PLAIN:
            has_objects = True
    return has_objects, is_long


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


def read_once(value: Any) -> Any:
    """Read a value by the reader of its class; items of the result may be the program's own."""
    return Copier(SMALL_UNITS).read(value, type(value))


def first_fields(value: Any) -> dict[Any, Any]:
    """Return a dict, or the fields of an object; empty for other values."""
    kind = type(value)
    is_read = kind is dict or kind in SCALARS or kind is list or kind is tuple or reader_of(kind).cost > 256
    plain = value if is_read else read_once(value)
    return plain if type(plain) is dict else {}
