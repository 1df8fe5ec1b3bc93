"""Snapshots to JSON text, on the delivery thread. A snapshot is private, so that orjson may walk it."""

from __future__ import annotations

from typing import Any, Final

import orjson

from otel_rollout.safety.signal_handlers import is_from_signal_handler
from otel_rollout.values.object_reading import integer_text
from otel_rollout.values.sanitize import fits_int64, replace_surrogates
from otel_rollout.values.snapshot import Snapshot

__all__ = ["to_json", "value_to_json"]

_OPTIONS: Final = orjson.OPT_SERIALIZE_NUMPY


def to_json(taken: Snapshot) -> bytes:
    """Return a snapshot as JSON in UTF-8."""
    return value_to_json(taken.value)


def value_to_json(value: Any) -> bytes:
    """Return a snapshot's value, or a part of it, as JSON in UTF-8."""
    try:
        return orjson.dumps(value, option=_OPTIONS)
    except (TypeError, ValueError) as error:
        if is_from_signal_handler(error):
            raise
        # An integer over 64 bits, a lone surrogate, or an array of a type that orjson doesn't know.
        return orjson.dumps(_plain(value), option=_OPTIONS)


def _plain(value: Any) -> Any:
    """Return a copy of a snapshot's value that orjson can write."""
    kind = type(value)
    if kind is str:
        return replace_surrogates(value)
    if kind is int:
        return value if fits_int64(value) else integer_text(value)
    if kind is dict:
        return {
            replace_surrogates(key) if type(key) is str else f"<{type(key).__name__}>": _plain(item)
            for key, item in value.items()
        }
    if kind is list:
        return [_plain(item) for item in value]
    try:
        orjson.dumps(value, option=_OPTIONS)
    except (TypeError, ValueError) as error:
        if is_from_signal_handler(error):
            raise
        return value.tolist() if hasattr(value, "tolist") else str(value)
    return value
