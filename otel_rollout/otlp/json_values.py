"""Values, attributes and heads of spans in OTLP JSON, in pieces of bytes."""

from __future__ import annotations

import base64
import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, TypeVar

import orjson

from otel_rollout.text.sanitize import INT64_MAX, INT64_MIN, replace_surrogates

__all__ = [
    "add_attributes",
    "clean",
    "dumps",
    "encode_attributes",
    "encode_value",
    "remember",
    "remember_origin",
    "span_head",
]

_SHORT_TEXT: Final = 64
_MAX_CACHED: Final = 8192
_MAX_ORIGINS: Final = 256
_LARGE_ORIGIN_BYTES: Final = 2**14
_Key = TypeVar("_Key")
_Value = TypeVar("_Value")

# Most names and attributes (tags, kinds, MIME types) are the same on thousands of spans. Attributes stand here with the
# comma before them.
_encoded_names: dict[str, str] = {}
_encoded_pairs: dict[tuple[str, type, str | bool], bytes] = {}
_encoded_keys: dict[str, bytes] = {}
_encoded_int_keys: dict[str, bytes] = {}


def span_head(
    trace_id: str,
    span_id: str,
    parent_id: str,
    flags: int,
    name: str,
    kind: int,
    start_time: int | None,
    end_time: int | None,
    before: str = "",
) -> bytes:
    """Return a span up to its attributes.

    Args:
        trace_id: 32 hexadecimal digits.
        span_id: 16 hexadecimal digits.
        parent_id: 16 hexadecimal digits; empty if it has no parent.
        flags: OTLP's flags.
        name: The name.
        kind: OTLP's number of the kind.
        start_time: Nanoseconds since 1970; without both times neither is written.
        end_time: Nanoseconds since 1970.
        before: The text before it in its line.
    """
    above = f',"parentSpanId":"{parent_id}"' if parent_id else ""
    times = ""
    if start_time is not None and end_time is not None:
        times = f',"startTimeUnixNano":"{start_time}","endTimeUnixNano":"{end_time}"'
    return (
        f'{before}{{"traceId":"{trace_id}","spanId":"{span_id}"{above},"flags":{flags}'
        f',"name":{_encoded_names.get(name) or _encode_name(name)},"kind":{kind}{times}'
    ).encode()


def _encode_name(name: str) -> str:
    encoded = dumps(name).decode()
    return remember(_encoded_names, name, encoded) if len(encoded) <= _SHORT_TEXT else encoded


def add_attributes(pieces: list[bytes], attributes: Iterable[tuple[str, Any]]) -> None:
    """Append attributes to the pieces of a list, each behind a comma."""
    value: Any
    for key, value in attributes:
        kind = type(value)
        if kind is str:
            if len(value) > _SHORT_TEXT:
                pieces += (_encoded_keys.get(key) or _encode_key(key), dumps(value), b"}}")
                continue
        elif kind is int and INT64_MIN <= value <= INT64_MAX:
            # Token counts differ from span to span: caching them costs more than encoding them.
            pieces.append(b'%b%d"}}' % (_encoded_int_keys.get(key) or _encode_int_key(key), value))
            continue
        elif kind is not bool:
            pieces += (b",", dumps({"key": key, "value": encode_value(value)}))
            continue
        pieces.append(_encoded_pairs.get((key, kind, value)) or _encode_pair(key, value))


def encode_attributes(attributes: Mapping[str, Any]) -> list[Any]:
    """Return attributes as a list of `KeyValue`s."""
    return [{"key": key, "value": encode_value(value)} for key, value in attributes.items()]


def encode_value(value: Any) -> dict[str, Any]:
    """Return an `AnyValue`, an empty one for None."""
    if isinstance(value, str):
        return {"stringValue": value}
    if isinstance(value, bool):
        return {"boolValue": value}
    if isinstance(value, int):
        return {"intValue" if INT64_MIN <= value <= INT64_MAX else "stringValue": str(int(value))}
    if isinstance(value, float):
        if math.isfinite(value):
            # orjson rejects float subclasses such as numpy.float64.
            return {"doubleValue": float(value)}
        return {"doubleValue": "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"}
    if isinstance(value, (bytes, bytearray)):
        return {"bytesValue": base64.b64encode(value).decode()}
    if isinstance(value, Mapping):
        pairs = [{"key": str(key), "value": encode_value(item)} for key, item in value.items()]
        return {"kvlistValue": {"values": pairs}}
    if isinstance(value, Sequence):
        return {"arrayValue": {"values": [encode_value(item) for item in value]}}
    return {} if value is None else {"stringValue": str(value)}


def dumps(message: Any) -> bytes:
    """Return a message as JSON, without lone surrogates."""
    try:
        return orjson.dumps(message)
    except orjson.JSONEncodeError:
        return orjson.dumps(clean(message))


def clean(message: Any) -> Any:
    """Replace lone surrogates, which reach us through file names and model output, by question marks."""
    if isinstance(message, str):
        return replace_surrogates(message)
    if isinstance(message, dict):
        return {key: clean(item) for key, item in message.items()}
    return [clean(item) for item in message] if isinstance(message, list) else message


def _encode_key(key: str) -> bytes:
    """Return a string attribute up to its value, behind a comma."""
    return remember(_encoded_keys, key, b',{"key":%b,"value":{"stringValue":' % dumps(key))


def _encode_int_key(key: str) -> bytes:
    """Return an integer attribute up to its digits, behind a comma."""
    return remember(_encoded_int_keys, key, b',{"key":%b,"value":{"intValue":"' % dumps(key))


def _encode_pair(key: str, value: str | bool) -> bytes:
    encoded = b"," + dumps({"key": key, "value": encode_value(value)})
    return remember(_encoded_pairs, (key, type(value), value), encoded)


def remember(known: dict[_Key, _Value], key: _Key, encoded: _Value, most: int = _MAX_CACHED) -> _Value:
    """Keep an encoded value in a cache of at most `most`, and return it."""
    if len(known) >= most:
        known.clear()
    known[key] = encoded
    return encoded


def remember_origin(known: dict[_Key, _Value], key: _Key, origin: _Value, size: int) -> _Value:
    """Keep a resource or scope in a cache, at most one that is large, and return it.

    Args:
        known: The cache.
        key: The origin's key.
        origin: The origin.
        size: Its bytes.
    """
    if size > _LARGE_ORIGIN_BYTES:
        known.clear()
    return remember(known, key, origin, _MAX_ORIGINS)
