"""Chat messages of any form as roles, texts, tool calls and tool results.

`processing.messages` knows the forms of client libraries and makes the GenAI conventions' parts of them, as on spans;
here they become texts, and the text of a chat template becomes messages (`chat_templates`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

import orjson

from otel_rollout.messages.chat_templates import ToolCall, json_of, read_template, split_reasoning, split_tool_calls
from otel_rollout.messages.message_reading import convert_messages, is_message, text_message
from otel_rollout.messages.message_text import media_note

__all__ = ["Message", "ToolCall", "message_of", "messages_of", "parse_json", "read_message", "text_of_value"]

_TEXTS: Final = ("text", "content", "thinking", "reasoning", "refusal", "output_text", "summary")
_CALLS: Final = ("tool_call", "server_tool_call")
_RESULTS: Final = ("tool_call_response", "server_tool_call_response")
_SAID: Final = ("content", "parts", "tool_calls")
_MAX_DEPTH: Final = 4


@dataclass(frozen=True)
class Message:
    """One message of a conversation.

    Args:
        role: `system`, `user`, `assistant`, `tool`, or another program's word.
        text: Its text without the reasoning; empty if it only calls tools.
        calls: Its tool calls.
        name: The name of the tool that the text is the result of, if it is known.
        call_id: The id of the tool call that the text is the result of.
        reasoning: The model's reasoning before the text.
    """

    role: str
    text: str = ""
    calls: tuple[ToolCall, ...] = ()
    name: str = ""
    call_id: str = ""
    reasoning: str = ""


def messages_of(value: Any, depth: int = 0) -> list[Message]:
    """Return the messages in a parsed payload; empty if it has none.

    Args:
        value: A list of messages, a message, or an object that has either: `messages`, `choices`, `message`.
        depth: The depth of the value in its payload.
    """
    if depth > _MAX_DEPTH:
        return []
    if isinstance(value, Mapping):
        # A role beside other fields is no message.
        if is_message(value) and ("role" not in value or any(key in value for key in _SAID)):
            return list(message_of(value))
        for key in ("messages", "input", "choices", "output", "prompt", "conversation"):
            if isinstance(value.get(key), list) and (found := messages_of(value[key], depth + 1)):
                system = value.get("system")
                return [Message("system", text_of_value(system)), *found] if isinstance(system, str) else found
        return messages_of(value["message"], depth + 1) if isinstance(value.get("message"), Mapping) else []
    if not isinstance(value, list) or not value or not all(isinstance(each, Mapping) for each in value):
        return []
    each_has = [messages_of(each, depth + 1) for each in value]
    return [message for messages in each_has for message in messages] if all(each_has) else []


def message_of(value: Mapping[str, Any]) -> Iterator[Message]:
    """Yield one message; several if a text is that of a chat template, or it holds several results of tools."""
    try:
        converted = convert_messages(value)
    except (TypeError, RecursionError):
        # It is nested too deeply.
        converted = [text_message(str(value.get("role")), "…")]
    for message in converted:
        yield from read_message(message, has_results=len(converted) > 1)


def read_message(message: Mapping[str, Any], *, has_results: bool = False) -> Iterator[Message]:
    """Yield the messages in one of the GenAI conventions' form, as `message_of` does.

    Args:
        message: Its role and its parts.
        has_results: It had results of tools, and is nothing if nothing else was said.
    """
    role = message["role"]
    texts: list[str] = []
    thoughts: list[str] = []
    calls: list[ToolCall] = []
    name = str(message.get("name") or "") if role == "tool" else ""
    for part in message["parts"]:
        kind = part.get("type")
        if kind in _RESULTS:
            has_results = True
            result, tool = part.get("response", part.get("result")), str(part.get("name") or name)
            yield Message("tool", text_of_value(result), (), tool, str(part.get("id") or ""))
        elif kind in _CALLS:
            calls.append(_call_of(part))
        else:
            (thoughts if kind == "reasoning" else texts).append(text_of_value(part))
    thought = "\n".join(filter(None, thoughts))
    text = "\n".join(filter(None, texts))
    if has_results and not text and not calls and not thought:
        return
    if not calls and role != "tool" and (split := read_template(text)):
        if thought:
            yield Message(role, reasoning=thought)
        for role, text in split:
            yield _said_by_model(text) if role == "assistant" else Message(role, text.strip("\n"))
    elif role != "assistant":
        yield Message(role, text, tuple(calls), name, reasoning=thought)
    else:
        yield _said_by_model(text, tuple(calls), thought)


def _said_by_model(text: str, calls: tuple[ToolCall, ...] = (), thought: str = "") -> Message:
    """Return a message of a model, in whose text reasoning and tool calls may stand."""
    if not calls:
        text, calls = split_tool_calls(text)
    begin, text = split_reasoning(text)
    return Message("assistant", text, calls, reasoning="\n".join(filter(None, (thought, begin))))


def text_of_value(value: Any) -> str:
    """Return a text; of a part of a message its text; of other values their JSON."""
    if isinstance(value, str):
        return value
    if value is None:
        return ""
    if isinstance(value, Mapping):
        kind = value.get("type")
        if isinstance(kind, str) and isinstance(value.get("modality"), str):
            return media_note(value)
        for key in _TEXTS:
            if isinstance(value.get(key), str):
                return str(value[key])
        if kind == "unknown":
            value = {key: item for key, item in value.items() if key != "type"}
        elif isinstance(kind, str) and kind not in ("object", "json"):
            return f"[{kind}]"
    if isinstance(value, list) and value and all(isinstance(each, Mapping) and "type" in each for each in value):
        return "\n".join(map(text_of_value, value))
    return json_of(value)


def parse_json(payload: object) -> Any:
    """Return the value of a JSON text; None if it is none."""
    if not isinstance(payload, (str, bytes)):
        return None
    try:
        return orjson.loads(payload)
    except ValueError:
        return None


def _call_of(part: Mapping[str, Any]) -> ToolCall:
    arguments = part.get("arguments")
    if isinstance(arguments, str) and isinstance(parsed := parse_json(arguments), Mapping):
        arguments = parsed
    return ToolCall.of(str(part.get("name") or "?"), arguments, part.get("id"))
