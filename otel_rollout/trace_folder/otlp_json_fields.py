"""The fields of a message in OTLP JSON: attributes, texts, counts, times, ids.

Each function raises ValueError for a value of another kind; where a message isn't OTLP's, Python's own errors come.
"""

from __future__ import annotations

import base64
from collections.abc import Sequence
from typing import Any, Final, NoReturn

from otel_rollout.values.sanitize import fits_int64

__all__ = ["JSON_NAMES", "count_of", "decode_attributes", "id_of", "text_of", "text_or_none", "time_of"]

JSON_NAMES: Final = {
    type(None): "null",
    bool: "a boolean",
    int: "a number",
    float: "a number",
    str: "a string",
    list: "a list",
    dict: "an object",
}
"""JSON's name of a value of each type that it is parsed to."""


def decode_attributes(pairs: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Return the attributes that a list of `KeyValue`s holds."""
    attributes: dict[str, Any] = {}
    for pair in pairs:
        key, value = pair["key"], pair.get("value") or {}
        # Strings first: they are the most frequent.
        text = value.get("stringValue")
        attributes[key if type(key) is str else text_of(key)] = text if type(text) is str else _decode_value(value)
    return attributes


def _decode_value(message: dict[str, Any]) -> Any:
    for kind, value in message.items():
        if kind == "stringValue":
            return text_of(value)
        if kind == "boolValue":
            return _boolean(value)
        if kind == "intValue":
            return _integer(value)
        if kind == "doubleValue":
            return _number(value)
        if kind == "bytesValue":
            return base64.b64decode(value)
        if kind == "arrayValue":
            return tuple(_decode_value(item) for item in value.get("values", ()))
        if kind == "kvlistValue":
            return {text_of(pair["key"]): _decode_value(pair.get("value", {})) for pair in value.get("values", ())}
    return None


def text_of(value: Any) -> str:
    """Return a string."""
    return value if type(value) is str else _refuse(value, "a string")


def text_or_none(value: Any) -> str | None:
    """Return a string, or None for null."""
    return None if value is None else text_of(value)


def _boolean(value: Any) -> bool:
    return value if type(value) is bool else _refuse(value, "a boolean")


def _integer(value: Any) -> int:
    try:
        return int(value)
    except (ArithmeticError, TypeError, ValueError):
        _refuse(value, "a whole number")


def _number(value: Any) -> float:
    try:
        return float(value)
    except (ArithmeticError, TypeError, ValueError):
        _refuse(value, "a number")


def _refuse(value: Any, expected: str) -> NoReturn:
    raise ValueError(f"{JSON_NAMES.get(type(value), 'a value')} in place of {expected}")


def count_of(value: Any) -> int:
    """Return a count of 32 bits."""
    if type(value) is not int or not 0 <= value < 2**32:
        raise ValueError("no count of 32 bits")
    return value


def time_of(value: Any) -> int:
    """Return nanoseconds since 1970, which OTLP JSON has as a string."""
    time = _integer(value)
    if not fits_int64(time):
        raise ValueError("a time beyond 64 bits")
    return time


def id_of(text: Any, bits: int) -> int:
    """Return a trace's or a span's id."""
    try:
        number = int(text, 16)
    except (TypeError, ValueError):
        number = -1
    if not 0 <= number < 1 << bits:
        raise ValueError(f"an id that is no hexadecimal number of {bits} bits")
    return number
