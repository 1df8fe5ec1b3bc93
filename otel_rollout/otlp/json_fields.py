"""The fields of a message in OTLP JSON: attributes, texts, counts, times, ids.

Each function raises ValueError for a value of another kind; where a message isn't OTLP's, Python's own errors come.
Null is the same as no value, as in all JSON of protobuf: https://protobuf.dev/programming-guides/json/.
"""

from __future__ import annotations

import base64
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any, Final, NoReturn

from otel_rollout.text.sanitize import INT64_MAX, INT64_MIN

__all__ = [
    "JSON_NAMES",
    "count_of",
    "decode_attributes",
    "id_of",
    "items_of",
    "number_of",
    "text_of",
    "text_or_none",
    "time_of",
]

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
_OTHER_ALPHABET: Final = str.maketrans("-_", "+/")


def items_of(message: dict[str, Any], key: str) -> Sequence[Any]:
    """Return the list in a field; an empty one if the field is null or not there."""
    value = message.get(key)
    if value is None:
        return ()
    return value if type(value) is list else _refuse(value, "a list")


def decode_attributes(message: dict[str, Any]) -> dict[str, Any]:
    """Return the attributes of a message that has a list of `KeyValue`s."""
    attributes: dict[str, Any] = {}
    for pair in items_of(message, "attributes"):
        key, value = pair["key"], pair.get("value") or {}
        # Strings first: they are the most frequent.
        text = value.get("stringValue")
        attributes[key if type(key) is str else text_of(key)] = text if type(text) is str else _decode_value(value)
    return attributes


def _decode_value(message: dict[str, Any]) -> Any:
    for kind, value in message.items():
        if value is None:
            continue
        if kind == "stringValue":
            return text_of(value)
        if kind == "boolValue":
            return value if type(value) is bool else _refuse(value, "a boolean")
        if kind == "intValue":
            return _integer(value)
        if kind == "doubleValue":
            return _number(value)
        if kind == "bytesValue":
            return _bytes(value)
        if kind == "arrayValue":
            return tuple(_decode_value(item or {}) for item in items_of(value, "values"))
        if kind == "kvlistValue":
            return {text_of(pair["key"]): _decode_value(pair.get("value") or {}) for pair in items_of(value, "values")}
    return None


def text_of(value: Any) -> str:
    """Return a string; an empty one for null."""
    if value is None:
        return ""
    return value if type(value) is str else _refuse(value, "a string")


def text_or_none(value: Any) -> str | None:
    """Return a string, or None for null."""
    return None if value is None else text_of(value)


def number_of(value: Any, names: Mapping[str, int]) -> int:
    """Return an enumeration's number; 0 for null.

    Args:
        value: The number, or its name, which some senders write though OTLP doesn't allow it.
        names: The numbers by name.
    """
    if type(value) is str and value in names:
        return names[value]
    return 0 if value is None else _integer(value)


def count_of(value: Any) -> int:
    """Return a count of 32 bits; 0 for null."""
    count = 0 if value is None else _integer(value)
    if not 0 <= count < 2**32:
        raise ValueError("no count of 32 bits")
    return count


def time_of(value: Any) -> int:
    """Return nanoseconds since 1970, which OTLP JSON has as a string; the year 2262 for what is later.

    OTLP's times have 64 bits without a sign, those of files and databases have one.
    """
    time = _integer(value)
    if not INT64_MIN <= time < 2**64:
        raise ValueError("a time beyond 64 bits")
    return min(time, INT64_MAX)


def id_of(text: Any, bits: int) -> int:
    """Return a trace's or a span's id."""
    try:
        digits = bytes.fromhex(text)
    except (TypeError, ValueError):
        digits = b""
    if len(digits) * 8 != bits:
        raise ValueError(f"an id of other than {bits // 4} hexadecimal digits")
    return int.from_bytes(digits, "big")


def _integer(value: Any) -> int:
    if type(value) is int:
        return value
    if type(value) is str or (type(value) is float and value.is_integer()):
        with suppress(ValueError):
            return int(value)
    return _refuse(value, "a whole number")


def _number(value: Any) -> float:
    if type(value) in (int, float, str):
        with suppress(OverflowError, ValueError):
            return float(value)
    return _refuse(value, "a number")


def _bytes(value: Any) -> bytes:
    # Protobuf's JSON has both alphabets, with and without the padding.
    text = text_of(value).translate(_OTHER_ALPHABET).rstrip("=")
    try:
        return base64.b64decode(text + "=" * (-len(text) % 4), validate=True)
    except ValueError:
        _refuse(value, "base64")


def _refuse(value: Any, expected: str) -> NoReturn:
    raise ValueError(f"{JSON_NAMES.get(type(value), 'a value')} in place of {expected}")
