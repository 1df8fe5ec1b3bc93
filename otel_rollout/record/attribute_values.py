"""Reads the names, attributes and ids that are set on a span, by their type, on the caller's thread."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from itertools import islice
from types import MappingProxyType
from typing import Any, Final

from opentelemetry.attributes import BoundedAttributes
from opentelemetry.trace import SpanContext, TraceState

from otel_rollout.record.fields import class_name
from otel_rollout.record.scalars import read_scalar
from otel_rollout.record.snapshot import Snapshot, take_snapshot
from otel_rollout.text.plain_text import cut_text
from otel_rollout.text.sanitize import fits_int64, replace_surrogates

MAX_TEXT_CHARACTERS: Final = 1024 * 1024
"""A longer text loses its middle on the caller's thread."""
MAX_KEY_CHARACTERS: Final = 1024
MAX_ITEMS: Final = 1024
"""A longer list becomes JSON text."""
MAX_ANNOTATED_ITEMS: Final = 100_000
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
    if not issubclass(type(value), str):
        return None
    text = value if type(value) is str else str.__str__(value)
    return text if len(text) <= MAX_TEXT_CHARACTERS else cut_text(text, MAX_TEXT_CHARACTERS)


def read_name(value: Any) -> str:
    """Return the name of a span or an event: a text, a scalar as text, or the class of any other value."""
    plain = read_value(value)
    is_scalar = type(plain) is not Snapshot and type(plain) is not tuple
    return str(plain) if is_scalar else class_name(type(value)).removeprefix("builtins.")


def read_value(value: Any) -> Any:
    """Return an attribute's value as it is now: None, a scalar, a tuple of scalars of one type, or a snapshot."""
    if value is None or type(value) is Snapshot:
        return value
    plain = _read_plain(value, MAX_ITEMS)
    if plain is None:
        taken = take_snapshot(value, BUDGET)
        # The snapshot of an enum is a scalar.
        scalar = _read_scalar(taken.load()) if taken.size <= BYTES_OF_A_SCALAR else None
        return taken if scalar is None else scalar
    return plain


def read_attribute(value: Any) -> Any:
    """Return a text, a number, a boolean or a tuple of one of these without lone surrogates; None for other values."""
    plain = _read_plain(value, MAX_ANNOTATED_ITEMS)
    if type(plain) is tuple and type(plain[0]) is str:
        return tuple(map(replace_surrogates, plain))
    return replace_surrogates(plain) if type(plain) is str else plain


def _read_plain(value: Any, max_items: int) -> Any:
    if not issubclass(type(value), (list, tuple)):
        return _read_scalar(value)
    items = tuple(map(_read_scalar, value)) if 0 < len(value) <= max_items else (None,)
    return items if None not in items and len({*map(type, items)}) == 1 else None


def _read_scalar(value: Any) -> str | bool | int | float | None:
    """Return a text, a bool or a number of at most 64 bits as a value of Python's own type; else None."""
    plain = read_scalar(value)
    kind = type(plain)
    if kind is str:
        return read_text(plain)
    return plain if kind is float or kind is bool or (kind is int and fits_int64(plain)) else None


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
    if issubclass(type(attributes), dict):
        # In one step, because another thread may add to it.
        pairs = [*islice(dict.items(attributes), max(limit, MAX_PAIRS))]
        return pairs, dict.__len__(attributes) - len(pairs)
    # Other mappings may ask a database.
    return ([*attributes.items()], 0) if type(attributes) in (MappingProxyType, BoundedAttributes) else ((), 1)


def read_key(key: Any) -> str | None:
    """Return an attribute's key as a plain text; None if it is not a text, empty or too long."""
    text = read_text(key)
    return text if text and len(text) <= MAX_KEY_CHARACTERS else None


def read_context(context: Any) -> SpanContext | None:
    """Return a `SpanContext` with plain values; None for other objects."""
    if type(context) is not SpanContext or len(context) < FIELDS_OF_CONTEXT:
        return None
    trace_id, span_id, _, flags, state, *_ = context
    is_plain = isinstance(flags, int) and isinstance(state, TraceState) and type(trace_id) is type(span_id) is int
    return context if is_plain and 0 <= trace_id < 2**128 and 0 <= span_id < 2**64 else None


def held_bytes(value: Any) -> int:
    """Return the memory of a value that `read_value` returned."""
    kind = type(value)
    if kind is tuple:
        return sys.getsizeof(value) + sum(map(sys.getsizeof, value))
    return value.size if kind is Snapshot else sys.getsizeof(value)
