"""One chat message, in the form of OpenTelemetry's GenAI conventions, and the texts that people read of it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from otel_rollout.guard.provenance import is_programs
from otel_rollout.messages.names import CALLS, RESULTS
from otel_rollout.text.plain_json import loads, value_to_json

Part = dict[str, Any]
"""A part of a message: its `type`, and the fields that the conventions have for it."""

_APART: Final = (*CALLS, "reasoning")
_MEDIA: Final = ("blob", "file", "uri")
_TEXTS: Final = ("text", "content", "thinking", "reasoning", "refusal", "output_text", "summary")
_NOTHING: Final[dict[str, Any]] = {}


class ToolCall(NamedTuple):
    """A tool call.

    Args:
        name: The tool.
        arguments: Its arguments: an object, or text that is none.
        call_id: Its id, which its result repeats.
    """

    name: str
    arguments: Any = ""
    call_id: str = ""

    def __str__(self) -> str:
        """Return the call as `name(key=value)` with JSON values."""
        if isinstance(self.arguments, Mapping):
            return f"{self.name}({', '.join(f'{key}={json_of(value)}' for key, value in self.arguments.items())})"
        return f"{self.name}({json_text(self.arguments)})"


class Message(NamedTuple):
    """One message of a conversation.

    Args:
        role: `system`, `user`, `assistant`, `tool`, or another program's word.
        parts: Its parts: texts, reasoning, tool calls, tool results, media.
        more: Its other fields, such as `name` and `finish_reason`.
    """

    role: str
    parts: list[Part]
    more: Mapping[str, Any] = _NOTHING

    def as_json(self) -> dict[str, Any]:
        """Return the message as the conventions write it."""
        return {"role": self.role, "parts": self.parts, **self.more}

    def to_json(self) -> bytes:
        """Return the message as JSON."""
        role, parts, more = self
        return value_to_json({"role": role, "parts": parts, **more} if more else {"role": role, "parts": parts})

    def without_reason(self) -> Message:
        """Return the message without the reason for which the model stopped, which only answers have."""
        return Message(self.role, self.parts, {key: item for key, item in self.more.items() if key != "finish_reason"})

    @property
    def name(self) -> str:
        """The name of the participant, or of the tool that the message is the result of; empty if it is unknown."""
        return _text_in(self.more, "name") or (self._of_result("name") if self.role == "tool" else "")

    @property
    def finish_reason(self) -> str:
        """The reason for which the model stopped; empty for an input, or if it is unknown."""
        return _text_in(self.more, "finish_reason")

    @property
    def call_id(self) -> str:
        """The id of the tool call that the message is the result of; empty if it is unknown."""
        return self._of_result("id")

    @property
    def text(self) -> str:
        """Its words and notes of its media, or a tool's result; without reasoning and tool calls."""
        texts = [text for part in self.parts if part.get("type") not in _APART and (text := part_text(part))]
        return texts[0] if len(texts) == 1 else "\n".join(texts)

    @property
    def reasoning(self) -> str:
        """The model's reasoning before the text."""
        return "\n".join(filter(None, (part_text(part) for part in self.parts if part.get("type") == "reasoning")))

    @property
    def calls(self) -> tuple[ToolCall, ...]:
        """Its tool calls."""
        return tuple(_call_of(part) for part in self.parts if part.get("type") in CALLS)

    @property
    def gist(self) -> str:
        """The text that stands for it in a list: its words, else whatever it has."""
        texts = [text for part in self.parts if part.get("type") == "text" and (text := part_text(part))]
        return "\n".join(texts or filter(None, map(_gist_of, self.parts)))

    def _of_result(self, key: str) -> str:
        return next((str(part[key]) for part in self.parts if part.get("type") in RESULTS and part.get(key)), "")


def text_message(role: str, text: str, finish_reason: str | None = None) -> Message:
    """Return a message of one text; the finish reason is None for an input, empty if it is unknown."""
    parts = [{"type": "text", "content": text}] if text else []
    return Message(role, parts) if finish_reason is None else Message(role, parts, {"finish_reason": finish_reason})


def part_text(part: Mapping[str, Any]) -> str:
    """Return a part of a message as people read it."""
    kind = part.get("type")
    if kind == "text" and type(text := part.get("content")) is str:
        return text
    if kind in RESULTS:
        return value_text(_response_of(part))
    if kind in _MEDIA:
        return _media_note(part)
    return str(_call_of(part)) if kind in CALLS else value_text(part)


def value_text(value: Any) -> str:
    """Return a text as it is; of a part of a message its words; of other values their JSON."""
    if isinstance(value, str):
        return value
    if isinstance(value, Mapping):
        kind = value.get("type")
        if isinstance(kind, str) and isinstance(value.get("modality"), str):
            return _media_note(value)
        for key in _TEXTS:
            if isinstance(value.get(key), str):
                return str(value[key])
        if kind == "text" and "content" in value:
            return json_text(value["content"])
        if kind == "unknown":
            value = {key: item for key, item in value.items() if key != "type"}
        elif isinstance(kind, str) and kind not in ("object", "json"):
            return f"[{kind}]"
    if isinstance(value, list) and value and all(isinstance(each, Mapping) and "type" in each for each in value):
        return "\n".join(map(value_text, value))
    return json_text(value)


def json_text(value: Any) -> str:
    """Return a text as it is, nothing for None, and other values as JSON."""
    return value if type(value) is str else "" if value is None else json_of(value)


def json_of(value: Any) -> str:
    """Return a value as JSON."""
    return value_to_json(value).decode()


def parse_json(payload: object) -> Any:
    """Return the value of a JSON text; None if it is none."""
    if not isinstance(payload, (str, bytes)):
        return None
    try:
        return loads(payload)
    except (ValueError, RecursionError) as error:
        if is_programs(error):
            raise
        return None


def _call_of(part: Mapping[str, Any]) -> ToolCall:
    arguments = part.get("arguments", part.get("server_tool_call"))
    if isinstance(arguments, str) and isinstance(parsed := parse_json(arguments), dict):
        arguments = parsed
    return ToolCall(str(part.get("name") or "?"), "" if arguments is None else arguments, str(part.get("id") or ""))


def _response_of(part: Mapping[str, Any]) -> Any:
    return part.get("response", part.get("result", part.get("server_tool_call_response")))


def _gist_of(part: Mapping[str, Any]) -> str:
    return json_text(_response_of(part)) if part.get("type") in RESULTS else part_text(part)


def _media_note(part: Mapping[str, Any]) -> str:
    """Return a note for a part that refers to media: never a blob, which may be an image."""
    kind = part.get("type")
    given = (part[name] for name in ("uri", "file_id") if type(part.get(name)) is str and part[name])
    content = part.get("content")
    is_note = type(content) is str and kind != "blob" and (content[:1] == "[" or part.get("modality") == "file")
    place = next(given, content if is_note else "inline" if content else "")
    return f"[{part.get('modality') or kind}{place and f': {place}'}]"


def _text_in(fields: Mapping[str, Any], key: str) -> str:
    value = fields.get(key)
    return value if isinstance(value, str) else ""
