"""Limits of names, attributes and texts other than the payload, in characters; and what OTLP can encode of them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import orjson

from otel_rollout import semconv
from otel_rollout.finish.payload_limits import cut_json
from otel_rollout.text.plain_text import cut_text
from otel_rollout.text.sanitize import INT64_MAX, INT64_MIN, replace_surrogates

MAX_TEXT_CHARACTERS: Final = 64 * 1024
"""The longest text attribute other than the payload."""
MAX_NAME_CHARACTERS: Final = 256
"""The longest name of a span or an event; backends index and group by names."""


def plain_size(attributes: Mapping[str, Any], characters: int | None) -> int | None:
    """Return the encoded bytes of the texts in attributes; None if an attribute must be changed before its export.

    Args:
        attributes: The attributes of a span.
        characters: Characters that a text may have; None without a limit.
    """
    most = _longest(characters)
    size = 0
    for key, value in attributes.items():
        kind = type(value)
        if kind is str:
            if len(value) > most or not value.isascii():
                return None
            size += len(value)
        elif kind is tuple and len(value) == 1 and type(value[0]) is str:
            # The finish reason, on each span of a model.
            if len(value[0]) > most or not value[0].isascii():
                return None
            size += len(value[0]) + 72
        elif kind is not bool and kind is not float and not (kind is int and INT64_MIN <= value <= INT64_MAX):
            return None
        if not key.isascii():
            return None
        size += len(key)
    return size


class AttributeLimits:
    """Cuts the names and attributes of one span.

    Args:
        characters: The most characters of an attribute's text; None without a limit of the user's.
    """

    __slots__ = ("_characters", "_most", "cut")

    def __init__(self, characters: int | None) -> None:
        self._characters = characters
        self._most = _longest(characters)
        self.cut = 0
        """The number of characters cut so far."""

    def name(self, name: str) -> str:
        """Return the name of a span or an event."""
        if len(name) > MAX_NAME_CHARACTERS:
            self.cut += len(name) - MAX_NAME_CHARACTERS
            name = f"{name[: MAX_NAME_CHARACTERS - 1]}…"
        return replace_surrogates(name)

    def attributes(self, attributes: Mapping[str, Any]) -> dict[str, Any]:
        """Return a copy of attributes with each text within the limit."""
        return {
            replace_surrogates(key): self._value(value, is_stack=key == semconv.EXCEPTION_STACKTRACE)
            for key, value in attributes.items()
        }

    def text(self, text: str, *, is_stack: bool = False) -> str:
        """Return a text within the limit; of a stack trace the innermost frames, which are at its end."""
        most = self._most
        text = replace_surrogates(text)
        if len(text) <= most:
            return text
        if is_stack:
            shorter = text[len(text) - most :]
        elif most and text[0] in "{[" and _is_json(text):
            # As many bytes as there may be characters.
            shorter = cut_json(text.encode(), most).decode()
        else:
            shorter = text[:most] if most == self._characters else cut_text(text, most)
        self.cut += len(text) - len(shorter)
        return shorter

    def _value(self, value: Any, *, is_stack: bool) -> Any:
        if type(value) is str:
            return self.text(value, is_stack=is_stack)
        return tuple(self._value(item, is_stack=False) for item in value) if type(value) is tuple else value


def _longest(characters: int | None) -> int:
    return MAX_TEXT_CHARACTERS if characters is None else min(characters, MAX_TEXT_CHARACTERS)


def _is_json(text: str) -> bool:
    try:
        orjson.loads(text)
    except ValueError:
        return False
    return True
