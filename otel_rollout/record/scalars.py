"""Reads a number, a text or a tag as a plain value, whatever class a trainer gives it."""

from __future__ import annotations

from decimal import Decimal
from fractions import Fraction
from typing import Any, Final

from otel_rollout.guard.log_once import warn_once
from otel_rollout.guard.provenance import is_programs
from otel_rollout.record.fields import class_name, find_static
from otel_rollout.record.readers import SCALARS
from otel_rollout.record.snapshot import json_text, plain_value, read_once
from otel_rollout.text.sanitize import fits_int64, integer_text, replace_surrogates

MAX_TAG_CHARACTERS: Final = 1024
MAX_DIGITS: Final = 20
MAX_SHOWN_CHARACTERS: Final = 100
_WITHOUT_STEP: Final = ", by which `ls --step none` lists it; a validation pass is validate=True"


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
    """Return a step or the number of a rollout: an int, also of a whole float or of digits; else its text, logged once.

    Args:
        name: The tag's name.
        value: The value that the trainer gave.
    """
    tag = read_tag(_int_of_float(value))
    if type(tag) is int:
        return tag
    text = str(tag)
    whole, _, fraction = text.strip().partition(".")
    digits = whole[1:] if whole[:1] in ("+", "-") else whole
    is_whole = digits.isdigit() and digits.isascii() and len(digits) < MAX_DIGITS and not fraction.strip("0")
    if is_whole and fits_int64(int(whole)):
        return int(whole)
    _warn_of_tag(name, "a whole number", value, text, _WITHOUT_STEP if name == "step" else "")
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
    warn_once(
        f"tag {name}",
        "rollout_trace_attr(%s=…): this should be %s, not %r of type %s; the tag is this text%s",
        name,
        right,
        text[:MAX_SHOWN_CHARACTERS],
        class_name(type(value)).removeprefix("builtins."),
        consequence,
    )
