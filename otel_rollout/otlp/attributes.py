"""Encodes attributes in OTLP's binary form, mostly from cached pieces.

Source: opentelemetry-proto's common.proto and https://protobuf.dev/programming-guides/encoding/.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from opentelemetry.proto.common.v1.common_pb2 import AnyValue, KeyValue
from opentelemetry.proto.trace.v1.trace_pb2 import Span as SpanMessage

from otel_rollout.text.sanitize import fits_int64, replace_surrogates

SHORT_TEXT: Final = 64
"""Texts up to this length are cached: they may be the same on thousands of spans."""
MAX_CACHED: Final = 8192
_MAX_KEPT_NUMBER: Final = 0x4000

# Tags of length-delimited fields: (field number << 3) | 2.
_SPAN_ATTRIBUTES: Final = b"\x4a"
_PAIR_KEY: Final = b"\x0a"
_PAIR_VALUE: Final = b"\x12"
_VALUE_STRING: Final = b"\x0a"

# Most attributes (tags, kinds, MIME types) are the same on thousands of spans.
_encoded_pairs: dict[tuple[str, type, str | int], bytes] = {}
_encoded_keys: dict[str, bytes] = {}


class _Varints(dict[int, bytes]):
    """Varints by number; small ones, of which a span has seven, are cached."""

    def __missing__(self, number: int) -> bytes:
        left, parts = number, bytearray()
        while left >= 0x80:
            parts.append(left & 0x7F | 0x80)
            left >>= 7
        parts.append(left)
        encoded = bytes(parts)
        if number < _MAX_KEPT_NUMBER:
            self[number] = encoded
        return encoded


varint: Final = _Varints().__getitem__


def encode_attributes(parts: list[bytes], attributes: Mapping[str, Any]) -> None:
    """Add attributes of a span to its pieces."""
    value: Any
    for key, value in attributes.items():
        kind = type(value)
        if kind is str:
            if len(value) > SHORT_TEXT:
                parts += _encode_long_text(key, value)
                continue
            name = key, kind, value
        elif kind is bool or kind is int:
            name = key, kind, value
        elif kind is tuple and len(value) == 1 and type(value[0]) is str and len(value[0]) <= SHORT_TEXT:
            name = key, kind, value[0]
        else:
            parts.append(_encode_pair(key, value))
            continue
        pair = _encoded_pairs.get(name)
        if pair is None:
            pair = _encode_pair(key, value)
            if len(_encoded_pairs) >= MAX_CACHED:
                _encoded_pairs.clear()
            _encoded_pairs[name] = pair
        parts.append(pair)


def _encode_long_text(key: str, value: str) -> tuple[bytes, ...]:
    """Return the pieces of a text attribute."""
    try:
        text = value.encode()
    except UnicodeEncodeError:
        text = plain_text(value).encode()
    length = len(text)
    size = varint(length)
    value_length = 1 + len(size) + length
    start, value_size = _encoded_keys.get(key) or _encode_key(key), varint(value_length)
    pair_size = varint(len(start) + len(value_size) + value_length)
    return _SPAN_ATTRIBUTES, pair_size, start, value_size, _VALUE_STRING, size, text


def _encode_key(key: str) -> bytes:
    """Return the start of a pair: its key and the tag of its value."""
    name = plain_text(key).encode()
    encoded = _PAIR_KEY + varint(len(name)) + name + _PAIR_VALUE
    if len(_encoded_keys) >= MAX_CACHED:
        _encoded_keys.clear()
    _encoded_keys[key] = encoded
    return encoded


def _encode_pair(key: str, value: Any) -> bytes:
    """Return a span message with only this attribute."""
    message = SpanMessage()
    fill_attributes(message.attributes, {key: value})
    return message.SerializeToString()


def fill_attributes(message: Any, attributes: Mapping[str, Any]) -> None:
    """Add attributes to `message`, a repeated field of protobuf's classes."""
    add = message.add
    for key, value in attributes.items():
        if value is None:
            continue
        pair: KeyValue = add()
        pair.key = plain_text(key)
        _fill_value(pair.value, value)


def _fill_value(message: AnyValue, value: Any) -> None:
    if isinstance(value, str):
        try:
            message.string_value = value
        except (UnicodeEncodeError, ValueError):
            message.string_value = plain_text(value)
    elif isinstance(value, bool):
        message.bool_value = value
    elif isinstance(value, int):
        if fits_int64(value):
            message.int_value = value
        else:
            message.string_value = str(value)
    elif isinstance(value, float):
        message.double_value = value
    elif isinstance(value, (bytes, bytearray)):
        message.bytes_value = bytes(value)
    elif isinstance(value, Mapping):
        message.kvlist_value.SetInParent()
        for key, item in value.items():
            pair = message.kvlist_value.values.add(key=plain_text(key))
            pair.value.SetInParent()
            _fill_value(pair.value, item)
    elif isinstance(value, Sequence):
        message.array_value.SetInParent()
        add = message.array_value.values.add
        for item in value:
            _fill_value(add(), item)
    elif value is not None:
        message.string_value = plain_text(str(value))


def plain_text(value: Any) -> str:
    """Return a value as text that protobuf accepts."""
    return replace_surrogates(value if isinstance(value, str) else str(value))
