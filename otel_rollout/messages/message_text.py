"""The text of messages in the form of OpenTelemetry's GenAI conventions, ours or another instrumentation's."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from otel_rollout.guard.signal_handlers import is_from_signal_handler
from otel_rollout.text.plain_json import value_to_json

__all__ = ["described_part", "described_text", "json_text", "media_note"]

_MEDIA: Final = ("blob", "file", "uri")


def described_text(parts: Sequence[Mapping[str, Any]]) -> str:
    """Return the text that a person reads of a message: its texts, else its tool calls or a tool's result.

    Args:
        parts: The message's.
    """
    texts = [text for part in parts if part.get("type") == "text" and (text := json_text(part.get("content")))]
    return "\n".join(texts or filter(None, map(described_part, parts)))


def described_part(part: Mapping[str, Any]) -> str:
    """Return a short text for a part that is none itself."""
    kind = part.get("type")
    if kind == "tool_call":
        return f"{json_text(part.get('name'))}({json_text(part.get('arguments', {}))})"
    if kind == "tool_call_response":
        return json_text(part.get("response"))
    if kind in _MEDIA or "modality" in part:
        return media_note(part)
    return json_text(part.get("content", dict(part)))


def media_note(part: Mapping[str, Any]) -> str:
    """Return a short text for a part that refers to media: never a blob, which may be an image."""
    kind = part.get("type")
    names = ("uri", "file_id") if kind == "blob" else ("uri", "file_id", "content")
    given = (part[name] for name in names if type(part.get(name)) is str and part[name])
    return f"[{part.get('modality') or kind}: {next(given, 'inline' if kind == 'blob' else '')}]"


def json_text(value: Any) -> str:
    """Return a text as it is, nothing for None, and other values as JSON; their type's name if they are no JSON."""
    if type(value) is str:
        return value
    if value is None:
        return ""
    try:
        return value_to_json(value).decode()
    except (TypeError, ValueError) as error:
        if is_from_signal_handler(error):
            raise
        return type(value).__name__
