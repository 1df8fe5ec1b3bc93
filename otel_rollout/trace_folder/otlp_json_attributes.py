"""Attributes as OTLP JSON, from pieces that mostly were encoded before.

Source: https://opentelemetry.io/docs/specs/otlp/#json-protobuf-encoding.
"""

from __future__ import annotations

import base64
import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, TypeVar

import orjson

from otel_rollout.values.sanitize import INT64_MAX, INT64_MIN, fits_int64, replace_surrogates

__all__ = ["MAX_CACHED", "add_pairs", "dumps", "encode_attributes"]

MAX_CACHED: Final = 8192
_SHORT_TEXT: Final = 64
_Key = TypeVar("_Key")

# Most attributes (tags, kinds, MIME types) are the same on thousands of spans. Each stands here with the comma before
# it.
_encoded_pairs: dict[tuple[str, type, str | bool], bytes] = {}
_encoded_keys: dict[str, bytes] = {}
_encoded_int_keys: dict[str, bytes] = {}


def add_pairs(pieces: list[bytes], attributes: Iterable[tuple[str, Any]]) -> None:
    """Append attributes to the pieces of a list, each behind a comma.

    Args:
        pieces: The list so far.
        attributes: Keys and values.
    """
    value: Any
    for key, value in attributes:
        kind = type(value)
        if kind is str:
            if len(value) > _SHORT_TEXT:
                pieces += (_encoded_keys.get(key) or _encode_key(key), dumps(value), b"}}")
                continue
        elif kind is int and INT64_MIN <= value <= INT64_MAX:
            # Token counts are another number on each span: to remember them costs more than to write them.
            pieces.append(b'%b%d"}}' % (_encoded_int_keys.get(key) or _encode_int_key(key), value))
            continue
        elif kind is not bool:
            pieces += (b",", dumps({"key": key, "value": _encode_value(value)}))
            continue
        pieces.append(_encoded_pairs.get((key, kind, value)) or _encode_pair(key, value))


def encode_attributes(attributes: Mapping[str, Any]) -> list[Any]:
    """Return attributes as a list of `KeyValue`s, for what is not written in pieces."""
    return [{"key": key, "value": _encode_value(value)} for key, value in attributes.items()]


def _encode_value(value: Any) -> dict[str, Any]:
    """Return an `AnyValue`; the empty one stands for None."""
    if isinstance(value, str):
        return {"stringValue": value}
    if isinstance(value, bool):
        return {"boolValue": value}
    if isinstance(value, int):
        return {"intValue" if fits_int64(value) else "stringValue": str(int(value))}
    if isinstance(value, float):
        if math.isfinite(value):
            # Of a subclass, numpy's say, orjson wants nothing.
            return {"doubleValue": float(value)}
        return {"doubleValue": "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"}
    if isinstance(value, (bytes, bytearray)):
        return {"bytesValue": base64.b64encode(value).decode()}
    if isinstance(value, Mapping):
        pairs = [{"key": str(key), "value": _encode_value(item)} for key, item in value.items()]
        return {"kvlistValue": {"values": pairs}}
    if isinstance(value, Sequence):
        return {"arrayValue": {"values": [_encode_value(item) for item in value]}}
    return {} if value is None else {"stringValue": str(value)}


def dumps(message: Any) -> bytes:
    """Return a message as JSON; a lone surrogate becomes a question mark."""
    try:
        return orjson.dumps(message)
    except orjson.JSONEncodeError:
        return orjson.dumps(_cleaned(message))


def _cleaned(message: Any) -> Any:
    """Return a message without lone surrogates, which reach us through file names and model output."""
    if isinstance(message, str):
        return replace_surrogates(message)
    if isinstance(message, dict):
        return {key: _cleaned(item) for key, item in message.items()}
    return [_cleaned(item) for item in message] if isinstance(message, list) else message


def _encode_key(key: str) -> bytes:
    """Return what stands before a text attribute's value, with a comma before it."""
    return _remember(_encoded_keys, key, b',{"key":%b,"value":{"stringValue":' % dumps(key))


def _encode_int_key(key: str) -> bytes:
    """Return what stands before an integer attribute's digits."""
    return _remember(_encoded_int_keys, key, b',{"key":%b,"value":{"intValue":"' % dumps(key))


def _encode_pair(key: str, value: str | bool) -> bytes:
    encoded = b"," + dumps({"key": key, "value": _encode_value(value)})
    return _remember(_encoded_pairs, (key, type(value), value), encoded)


def _remember(known: dict[_Key, bytes], key: _Key, encoded: bytes) -> bytes:
    if len(known) >= MAX_CACHED:
        known.clear()
    known[key] = encoded
    return encoded
