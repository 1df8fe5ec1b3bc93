"""Values and JSON texts in the form that every MLflow version stores and reads back."""

from __future__ import annotations

import json
from typing import Final

import orjson

from otel_rollout.export.plain_values import plain_value

# Translates each digit to "d": nineteen in a row may be an integer beyond 64 bits.
_DIGITS: Final = bytes(ord("d") if chr(code).isdigit() and code < 128 else ord(" ") for code in range(256))
_WIDE: Final = b"d" * 19

_CLOSING: Final = {"{": "}", "[": "]", '"': '"'}


class JsonText(str):
    """A text that is JSON."""

    __slots__ = ()


class ExactText(str):
    """A text that must be read back unchanged, even if it looks like JSON."""

    __slots__ = ()

    @property
    def looks_like_json(self) -> bool:
        """True if MLflow would parse it as JSON: a string, an object or a list."""
        return self[:1] in ('"', "{", "[")


def sanitize_json(text: str, *, is_trusted: bool) -> JsonText:
    """Return JSON that MLflow accepts; a text that is not JSON becomes a JSON string.

    Args:
        text: The text.
        is_trusted: otel-rollout wrote the text as JSON; it is parsed only if it may hold what MLflow refuses.
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
        value = plain_value(json.loads(text, parse_constant=lambda name: None))
        return JsonText(orjson.dumps(value).decode())
    except (ValueError, TypeError, RecursionError):
        return JsonText(orjson.dumps(text).decode())
