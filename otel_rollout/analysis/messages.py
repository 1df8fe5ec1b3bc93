"""Chat messages of any form as roles, texts, tool calls and tool results.

Forms: the GenAI conventions' `parts`, OpenAI's `content` and `tool_calls`, Anthropic's blocks, a result with `choices`,
and the text of a chat template (`chat_templates`).

Sources: https://github.com/open-telemetry/semantic-conventions-genai (gen_ai.input.messages),
https://platform.openai.com/docs/api-reference/chat, https://docs.anthropic.com/en/api/messages.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import orjson

from otel_rollout.analysis.chat_templates import ToolCall, json_of, read_template, split_tool_calls

__all__ = ["Message", "ToolCall", "message_of", "messages_of", "parse_json", "text_of_value"]

_TEXTS: Final = ("text", "content", "thinking", "reasoning", "refusal", "output_text", "summary")
_CALL_TYPES: Final = ("tool_call", "tool_use", "function_call", "function", "server_tool_call")
_RESULT_TYPES: Final = ("tool_call_response", "tool_result", "function_call_output", "server_tool_call_response")
_MAX_DEPTH: Final = 4
_RESULTS: Final = ("response", "result", "content", "output")


@dataclass(frozen=True)
class Message:
    """One message of a conversation.

    Args:
        role: `system`, `user`, `assistant`, `tool`, or another program's word.
        text: Its text; empty if it only calls tools.
        calls: Its tool calls.
        name: The name of the tool that the text is the result of, if it is known.
        call_id: The id of the tool call that the text is the result of.
    """

    role: str
    text: str = ""
    calls: tuple[ToolCall, ...] = ()
    name: str = ""
    call_id: str = ""


def messages_of(value: Any, depth: int = 0) -> list[Message]:
    """Return the messages in a parsed payload; empty if it has none.

    Args:
        value: A list of messages, a message, or an object that has either: `messages`, `choices`, `message`.
        depth: The depth of the value in its payload.
    """
    if depth > _MAX_DEPTH:
        return []
    if isinstance(value, Mapping):
        if isinstance(value.get("role"), str) and ("content" in value or "parts" in value or "tool_calls" in value):
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
    role = str(value["role"])
    texts: list[str] = []
    calls: list[ToolCall] = []
    results: list[Message] = []
    content = value.get("parts", value.get("content"))
    for part in content if isinstance(content, list) else [content]:
        kind = part.get("type") if isinstance(part, Mapping) else None
        if kind in _RESULT_TYPES:
            call_id = str(part.get("id") or part.get("tool_use_id") or part.get("call_id") or "")
            result = next((part[key] for key in _RESULTS if part.get(key) is not None), "")
            results.append(Message("tool", text_of_value(result), (), str(part.get("name") or ""), call_id))
        elif kind in _CALL_TYPES:
            calls.append(_call_of(part))
        elif part is not None:
            texts.append(text_of_value(part))
    asked = [value.get("function_call"), *_listed(value.get("tool_calls"))]
    calls += [_call_of(call) for call in asked if isinstance(call, Mapping)]
    name, call_id = (str(value.get(key) or "") if role == "tool" else "" for key in ("name", "tool_call_id"))
    yield from results
    text = "\n".join(filter(None, texts))
    if not text and not calls and results:
        return
    if not calls and (split := read_template(text)):
        yield from (_with_calls(role, text) for role, text in split)
    elif calls or role != "assistant":
        yield Message(role, text, tuple(calls), name, call_id)
    else:
        yield _with_calls(role, text)


def _with_calls(role: str, text: str) -> Message:
    """Return a message of a chat template, in which tool calls are text too."""
    if role != "assistant":
        return Message(role, text.strip("\n"))
    said, calls = split_tool_calls(text)
    return Message(role, said, calls)


def text_of_value(value: Any) -> str:
    """Return a text; of a part of a message its text; of other values their JSON."""
    if isinstance(value, str):
        return value
    if value is None:
        return ""
    if isinstance(value, Mapping):
        for key in _TEXTS:
            if isinstance(value.get(key), str):
                return str(value[key])
        if isinstance(kind := value.get("type"), str) and kind not in ("object", "json"):
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


def _call_of(value: Mapping[str, Any]) -> ToolCall:
    function = value["function"] if isinstance(value.get("function"), Mapping) else value
    arguments = next((function[key] for key in ("arguments", "input", "args") if key in function), None)
    if isinstance(arguments, str) and isinstance(parsed := parse_json(arguments), Mapping):
        arguments = parsed
    return ToolCall.of(str(function.get("name") or "?"), arguments, value.get("id") or value.get("call_id"))


def _listed(value: Any) -> Sequence[Any]:
    return value if isinstance(value, list) else ()
