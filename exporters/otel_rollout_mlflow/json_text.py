"""Values and JSON texts in the form that every MLflow version stores and reads back."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from typing import Any, Final

import orjson

from otel_rollout.sanitize import fits_int64, replace_surrogates

__all__ = ["ExactText", "JsonText", "sanitize_json", "sanitize_value"]

# Where each digit is a "d": nineteen of them in a row may be an integer over 63 bits.
_DIGITS: Final = bytes(ord("d") if chr(code).isdigit() and code < 128 else ord(" ") for code in range(256))
_WIDE: Final = b"d" * 19

_CLOSING: Final = {"{": "}", "[": "]", '"': '"'}


class JsonText(str):
    """A text that is JSON already, to be told from a text that is only a text."""

    __slots__ = ()


class ExactText(str):
    """A text that has to come back as itself, also where it looks like JSON."""

    __slots__ = ()

    @property
    def looks_like_json(self) -> bool:
        """Whether MLflow would read it as a text, an object or a list."""
        return self[:1] in ('"', "{", "[")


def sanitize_value(value: Any) -> Any:
    """Return `value` rebuilt from what JSON and MLflow's REST API can hold.

    An integer beyond 64 bits becomes a text: with one in a span, MLflow stores the trace, and then can't give it back
    over REST. A float that is not finite has no place in JSON, and becomes a text too.

    Args:
        value: An attribute's value, or a value parsed from JSON.
    """
    if isinstance(value, str):
        return replace_surrogates(value)
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, int):
        return value if fits_int64(value) else str(value)
    if isinstance(value, float):
        return value if math.isfinite(value) else str(value)
    if isinstance(value, bytes):
        return value.decode("utf-8", "replace")
    if isinstance(value, Mapping):
        return {replace_surrogates(str(key)): sanitize_value(item) for key, item in value.items()}
    if isinstance(value, Sequence):
        return [sanitize_value(item) for item in value]
    return replace_surrogates(str(value))


def sanitize_json(text: str, *, is_trusted: bool) -> JsonText:
    """Return a text that should be JSON as JSON that MLflow takes; one that is not JSON becomes a JSON string.

    Args:
        text: The text.
        is_trusted: Whether it was written as JSON by otel-rollout; then it is not parsed, unless it holds something
            that MLflow doesn't take.
    """
    try:
        raw = text.encode()
    except UnicodeEncodeError:
        raw = text.encode("utf-8", "replace")
        text = raw.decode()
    if _WIDE not in raw.translate(_DIGITS) and b"\\ud" not in raw and b"\\uD" not in raw:
        if is_trusted and text and _CLOSING.get(text[0]) == text[-1] and len(text) > 1:
            return JsonText(text)
        try:
            orjson.loads(raw)
        except orjson.JSONDecodeError:
            pass
        else:
            return JsonText(text)
    try:
        value = sanitize_value(json.loads(text, parse_constant=lambda name: None))
        return JsonText(orjson.dumps(value).decode())
    except (ValueError, TypeError, RecursionError):
        return JsonText(orjson.dumps(text).decode())
