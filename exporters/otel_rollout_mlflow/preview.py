"""The short text that stands for a payload in the list of traces, for servers that are told it."""

from __future__ import annotations

from typing import Any, Final

import orjson

__all__ = ["preview"]

MAX_CHARACTERS: Final = 1000
_CONTAINERS: Final = ("messages", "input", "output")


def preview(payload: str | None, *, role: str) -> str | None:
    """Return what a person would read of a payload: its text, or the text of its last message, else the JSON.

    Args:
        payload: A JSON text.
        role: Whose last message counts: `user` or `assistant`.
    """
    if not payload:
        return None
    try:
        value = orjson.loads(payload)
    except orjson.JSONDecodeError:
        value = payload
    text = _text(value, role) or payload
    return text if len(text) <= MAX_CHARACTERS else f"{text[: MAX_CHARACTERS - 3]}..."


def _text(value: Any, role: str) -> str | None:
    if isinstance(value, str):
        return value
    if isinstance(value, dict):
        for key in _CONTAINERS:
            if isinstance(value.get(key), list):
                value = value[key]
                break
    if not isinstance(value, list):
        return None
    messages = [item for item in value if isinstance(item, dict) and "role" in item and "content" in item]
    if not messages:
        return None
    chosen = next((message for message in reversed(messages) if message["role"] == role), messages[-1])
    content = chosen["content"]
    if isinstance(content, list):
        parts = [part.get("text") if isinstance(part, dict) else part for part in content]
        content = next((part for part in parts if isinstance(part, str)), None)
    return content if isinstance(content, str) else None
