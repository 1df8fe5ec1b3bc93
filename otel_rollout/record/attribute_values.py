"""Reads what is set on a span as plain values, whatever class it has: names, tags, attributes, times and ids."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from decimal import Decimal
from fractions import Fraction
from itertools import islice
from types import MappingProxyType
from typing import Any, Final

from opentelemetry.attributes import BoundedAttributes
from opentelemetry.trace import SpanContext, TraceState

from otel_rollout.guard.log_once import warn_once
from otel_rollout.guard.provenance import is_programs
from otel_rollout.record.fields import class_name, find_static
from otel_rollout.record.readers import SCALARS
from otel_rollout.record.snapshot import Snapshot, json_text, plain_value, read_once, take_snapshot
from otel_rollout.text.plain_text import cut_text
from otel_rollout.text.sanitize import fits_int64, integer_text, replace_surrogates

MAX_TEXT_CHARACTERS: Final = 1024 * 1024
"""A longer text loses its middle on the caller's thread."""
MAX_TAG_CHARACTERS: Final = 1024
MAX_KEY_CHARACTERS: Final = 1024
MAX_ITEMS: Final = 1024
"""A longer list becomes JSON text."""
MAX_PAIRS: Final = 1024
"""At most this many attributes are read of one mapping, unless a limit allows more."""
BYTES_OF_A_KEY: Final = 110
"""The memory of a key without its characters: the text's object, and the dict's entry and index while it grows."""


def read_number(value: Any) -> float | None:
    """Return a number as a float; None if it is none, or beyond a double's range."""
    plain = read_scalar(value)
    kind = type(plain)
    if type(value) is Decimal or type(value) is Fraction:
        plain = value
    elif kind is not int and kind is not float and kind is not bool:
        return None
    try:
        return float(plain)
    except (OverflowError, ValueError) as error:  # beyond a double's range, or a Decimal that is a signalling NaN
        if is_programs(error):
            raise
        return None


def read_scalar(value: Any) -> Any:
    """Return the plain value of a scalar, also of a subclass, or of an array of one element; else the value."""
    kind = type(value)
    if kind in SCALARS or not (issubclass(kind, (str, int, float)) or find_static(kind, "dtype") is not None):
        return value
    plain = read_once(value)
    if getattr(plain, "size", None) == 1 and hasattr(plain, "item"):
        # A private array of numpy.
        return plain.item()
    plain = plain[0] if type(plain) is list and len(plain) == 1 else plain
    return plain if type(plain) in SCALARS else value


def read_tag(value: Any) -> int | str:
    """Return an index as an int, any other value as its text."""
    plain = read_scalar(value)
    if type(plain) not in SCALARS:
        plain = plain_value(plain)
    kind = type(plain)
    if kind is int or kind is bool:
        return int(plain) if fits_int64(plain) else integer_text(plain)
    if kind is str:
        return replace_surrogates(plain[:MAX_TAG_CHARACTERS])
    return json_text(plain)[:MAX_TAG_CHARACTERS].strip('"')


def read_whole_tag(name: str, value: Any) -> int | str:
    """Return a step or a number of a rollout as an int, also of a whole float or digits; else its text, logged once."""
    tag = read_tag(_int_of_float(value))
    if type(tag) is int:
        return tag
    text = str(tag)
    whole, _, fraction = text.strip().partition(".")
    digits = whole[1:] if whole[:1] in ("+", "-") else whole
    is_whole = digits.isdigit() and digits.isascii() and len(digits) < 20 and not fraction.strip("0")
    if is_whole and fits_int64(int(whole)):
        return int(whole)
    without = ", by which `ls --step none` lists it; a validation pass is validate=True" if name == "step" else ""
    _warn_of_tag(name, "a whole number", value, text, without)
    return tag


def read_sample_index(value: Any) -> int | str:
    """Return a sample index: an int, also of a whole float, or a text; the JSON text of anything else, logged once."""
    plain = _int_of_float(value)
    tag = read_tag(plain)
    if type(plain) not in (str, int, bool):
        _warn_of_tag("sample_index", "a whole number or a text", value, str(tag))
    return tag


def _int_of_float(value: Any) -> Any:
    """Return a scalar's plain value; of a whole float, an int."""
    plain = read_scalar(value)
    return int(plain) if type(plain) is float and plain.is_integer() and fits_int64(int(plain)) else plain


def _warn_of_tag(name: str, right: str, value: Any, text: str, consequence: str = "") -> None:
    kind = class_name(type(value)).removeprefix("builtins.")
    line = "rollout_trace_attr(%s=…): this should be %s, not %r of type %s; the tag is this text%s"
    warn_once(f"tag {name}", line, name, right, text[:100], kind, consequence)


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
        # The limit of an attribute is lower.
        taken = take_snapshot(value, 256 * 1024)
        # The snapshot of an enum is a scalar.
        scalar = _read_scalar(taken.load()) if taken.size <= 4096 else None
        return taken if scalar is None else scalar
    return plain


def read_attribute(value: Any) -> Any:
    """Return a text, a number, a boolean or a tuple of one of these without lone surrogates; None for other values."""
    plain = _read_plain(value, 100_000)
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
    """Return the raw keys and values of any object given as attributes, and the number of those left out."""
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
    if type(context) is not SpanContext:
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
