"""Names, attributes and ids set on our spans, read by type on the caller's thread; no method of a user's class runs."""

from __future__ import annotations

import gc
import sys
from collections.abc import Sequence
from itertools import islice
from types import MappingProxyType
from typing import Any, Final

from opentelemetry.attributes import BoundedAttributes
from opentelemetry.trace import SpanContext, TraceFlags, TraceState

from otel_rollout.record.fields import class_name
from otel_rollout.record.snapshot import Snapshot, take_snapshot
from otel_rollout.text.plain_text import cut_text
from otel_rollout.text.sanitize import fits_int64

MAX_TEXT_CHARACTERS: Final = 1024 * 1024
"""A longer text loses its middle on the caller's thread."""
MAX_KEY_CHARACTERS: Final = 1024
MAX_ITEMS: Final = 1024
"""A longer list becomes JSON text."""
MAX_PAIRS: Final = 1024
"""At most this many attributes are read of one mapping, unless a limit allows more."""
BUDGET: Final = 256 * 1024
"""The budget of a value's snapshot; the limit of an attribute is lower."""
BYTES_OF_A_SCALAR: Final = 4096
BYTES_OF_A_KEY: Final = 110
"""The memory of a key without its characters: the text's object, and the dict's entry and index while it grows."""
FIELDS_OF_CONTEXT: Final = 5


def read_text(value: Any) -> str | None:
    """Return a text, or an instance of a subclass, as a plain text; None for other values."""
    kind = type(value)
    if kind is not str:
        if not issubclass(kind, str):
            return None
        value = str.__getitem__(value, slice(0, MAX_TEXT_CHARACTERS + 1))
    return value if len(value) <= MAX_TEXT_CHARACTERS else cut_text(value, MAX_TEXT_CHARACTERS)


def read_name(value: Any) -> str:
    """Return the name of a span or an event: a text, a scalar as text, or the class of any other value."""
    text = read_text(value)
    if text is not None:
        return text
    plain = read_value(value)
    is_scalar = type(plain) is not Snapshot and type(plain) is not tuple
    return str(plain) if is_scalar else class_name(type(value)).removeprefix("builtins.")


def read_value(value: Any) -> Any:
    """Return an attribute's value as it is now: None, a scalar, a tuple of scalars of one type, or a snapshot."""
    kind = type(value)
    if value is None:
        return None
    if kind is tuple and len(value) == 1 and type(value[0]) is str and len(value[0]) <= MAX_TEXT_CHARACTERS:
        # The finish reason of a model.
        return value
    scalar = _read_scalar(value)
    if scalar is not None:
        return scalar
    for base in (list, tuple):
        if issubclass(kind, base) and 0 < base.__len__(value) <= MAX_ITEMS:
            items = [_read_scalar(item) for item in base.__iter__(value)]
            first = type(items[0])
            if first is not type(None) and all(type(item) is first for item in items):
                return tuple(items)
    if kind is Snapshot:
        return value
    taken = take_snapshot(value, BUDGET)
    # The snapshot of an enum or a numpy number is a scalar.
    scalar = _read_scalar(taken.load()) if taken.size <= BYTES_OF_A_SCALAR else None
    return taken if scalar is None else scalar


def _read_scalar(value: Any) -> str | bool | int | float | None:
    """Return a text, a bool or a number of at most 64 bits as a value of Python's own type; else None."""
    kind = type(value)
    if kind is bool or kind is float:
        return value  # type: ignore[no-any-return]  # just checked
    if issubclass(kind, str):
        return read_text(value)
    if issubclass(kind, int):
        number = value if kind is int else int.__int__(value)
        return number if fits_int64(number) else None
    return float.__float__(value) if issubclass(kind, float) else None


def read_time(value: Any) -> int | None:
    """Return a time in nanoseconds since the epoch; None for other values."""
    number = _read_scalar(value)
    return number if type(number) is int and number > 0 else None


def read_attributes(attributes: Any, limit: int) -> tuple[dict[str, Any], int]:
    """Return at most `limit` attributes of an event or a link as they are now, and the number of dropped ones."""
    pairs, dropped = read_pairs(attributes, limit)
    sound = [(name, value) for key, value in pairs if (name := read_key(key))]
    return {key: read_value(value) for key, value in sound[:limit]}, dropped + len(pairs) - len(sound[:limit])


def read_pairs(attributes: Any, limit: int) -> tuple[Sequence[tuple[Any, Any]], int]:
    """Return the raw keys and values of any object given as attributes, and the number of those left out.

    Args:
        attributes: Any object.
        limit: The most attributes that are kept.
    """
    if attributes is None:
        return (), 0
    given = _dict_behind(attributes)
    if given is None:
        return (), 1
    # In one step, because another thread may add to it.
    pairs = [*islice(dict.items(given), max(limit, MAX_PAIRS))]
    return pairs, max(0, dict.__len__(given) - len(pairs))


def read_key(key: Any) -> str | None:
    """Return an attribute's key as a plain text; None if it is not a text, empty or too long."""
    if type(key) is not str:
        key = read_text(key)
    return key if key and len(key) <= MAX_KEY_CHARACTERS else None


def _dict_behind(attributes: Any) -> dict[Any, Any] | None:
    """Return the dict in a known container of attributes; None for other objects."""
    kind = type(attributes)
    if kind is MappingProxyType:
        # Each of its methods calls the wrapped mapping, whose class may be a user's.
        referents = gc.get_referents(attributes)
        attributes = referents[0] if referents else {}
        kind = type(attributes)
    if kind is BoundedAttributes:
        return dict(attributes.copy())
    return attributes if issubclass(kind, dict) else None


def read_context(context: Any) -> SpanContext | None:
    """Return a `SpanContext` with plain values; None for other objects."""
    if not issubclass(type(context), SpanContext) or tuple.__len__(context) < FIELDS_OF_CONTEXT:
        return None
    trace_id, span_id, is_remote, flags, state, *_ = tuple.__iter__(context)
    is_plain = type(context) is SpanContext and type(flags) is TraceFlags and type(state) is TraceState
    if is_plain and type(trace_id) is type(span_id) is int and 0 <= trace_id < 2**128 and 0 <= span_id < 2**64:
        # Immutable, and of plain values already.
        return context  # type: ignore[no-any-return]  # as was just checked
    if not all(issubclass(type(number), int) for number in (trace_id, span_id, flags)):
        return None
    trace_id, span_id = int.__int__(trace_id), int.__int__(span_id)
    if not (0 <= trace_id < 2**128 and 0 <= span_id < 2**64):
        return None
    flags = TraceFlags(int.__int__(flags) & 0xFF)
    return SpanContext(trace_id, span_id, is_remote is True, flags, state if type(state) is TraceState else None)


def held_bytes(value: Any) -> int:
    """Return the memory of a value that `read_value` returned."""
    kind = type(value)
    if kind is tuple:
        return sys.getsizeof(value) + sum(map(sys.getsizeof, value))
    return value.size if kind is Snapshot else sys.getsizeof(value)
