"""The chat messages on a span, for exporters: OpenTelemetry's form as records, and OpenAI's form of them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

import orjson
from opentelemetry.sdk.trace import ReadableSpan

from otel_rollout import semconv
from otel_rollout.messages.message_text import described_part, described_text, json_text

__all__ = ["ChatMessage", "ChatMessages", "as_openai", "as_openai_tools", "chat_messages", "text_of"]


class ChatMessage(NamedTuple):
    """One message.

    Args:
        role: `system`, `user`, `assistant`, `tool`, or another one that the program uses.
        parts: Its parts in the form of OpenTelemetry's GenAI conventions: dicts with a `type`.
        finish_reason: The reason for which the model stopped; None for an input, or if it is unknown.
        name: The name of the participant or the tool, if it has one.
    """

    role: str
    parts: list[dict[str, Any]]
    finish_reason: str | None = None
    name: str | None = None


class ChatMessages(NamedTuple):
    """The messages of one span; a side that wasn't captured is empty.

    Args:
        input: The messages that the model got; on a root, the conversation before the last answer.
        output: The model's answer; several if it was asked for several.
        tools: The definitions of the tools, as they stand on the span.
    """

    input: list[ChatMessage]
    output: list[ChatMessage]
    tools: list[dict[str, Any]]


def chat_messages(span: ReadableSpan) -> ChatMessages | None:
    """Return the messages on a span; None if it has none that can be read.

    Args:
        span: A span of ours, or of another instrumentation that follows the GenAI conventions.
    """
    attributes = span.attributes or {}
    asked = _messages(attributes.get(semconv.INPUT_MESSAGES))
    answered = _messages(attributes.get(semconv.OUTPUT_MESSAGES))
    if not asked and not answered:
        return None
    tools = [tool for tool in _items(attributes.get(semconv.TOOL_DEFINITIONS)) if isinstance(tool, dict)]
    return ChatMessages(asked, answered, tools)


def text_of(message: ChatMessage) -> str:
    """Return the text that a person reads of a message: its text, else its tool calls or a tool's result."""
    return described_text(message.parts)


def as_openai(messages: Iterable[ChatMessage]) -> list[dict[str, Any]]:
    """Return messages in the form of OpenAI's chat completions; `content` is a text, a list of parts, or None.

    Args:
        messages: The messages; one with several tools' results becomes several.
    """
    return [each for message in messages for each in _openai_messages(message)]


def as_openai_tools(tools: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return tool definitions in OpenAI's form, `{"type": "function", "function": {…}}`.

    Args:
        tools: The definitions, as they stand on a span.
    """
    wrapped = []
    for tool in tools:
        kind = tool.get("type", "function")
        is_bare = kind == "function" and "function" not in tool
        function = {key: value for key, value in tool.items() if key != "type"}
        wrapped.append({"type": kind, "function": function} if is_bare else dict(tool))
    return wrapped


def _messages(value: Any) -> list[ChatMessage]:
    return [message for item in _items(value) if (message := _message(item)) is not None]


def _items(value: Any) -> list[Any]:
    """Return a list that an attribute holds as JSON text, or as other instrumentations set it."""
    if isinstance(value, str):
        try:
            value = orjson.loads(value)
        except ValueError:
            return []
    return list(value) if isinstance(value, (list, tuple)) else []


def _message(item: Any) -> ChatMessage | None:
    if not isinstance(item, Mapping) or not isinstance(item.get("role"), str):
        return None
    parts = item.get("parts")
    kept = [dict(part) for part in parts if isinstance(part, Mapping)] if isinstance(parts, (list, tuple)) else []
    reason, name = item.get("finish_reason"), item.get("name")
    return ChatMessage(
        item["role"],
        kept,
        reason if isinstance(reason, str) and reason else None,
        name if isinstance(name, str) and name else None,
    )


def _openai_messages(message: ChatMessage) -> list[dict[str, Any]]:
    named = {} if message.name is None else {"name": message.name}
    results = [part for part in message.parts if part.get("type") == "tool_call_response"]
    converted: list[dict[str, Any]] = [
        {"role": "tool", "tool_call_id": json_text(part.get("id")), "content": json_text(part.get("response")), **named}
        for part in results
    ]
    if results and len(results) == len(message.parts):
        return converted
    contents, calls, thoughts = [], [], []
    for part in message.parts:
        kind = part.get("type")
        if kind == "tool_call":
            function = {"name": json_text(part.get("name")), "arguments": json_text(part.get("arguments", {}))}
            calls.append({"id": json_text(part.get("id")), "type": "function", "function": function})
        elif kind == "reasoning":
            thoughts.append(json_text(part.get("content")))
        elif kind != "tool_call_response":
            contents.append(_openai_content(part))
    is_text = all(content["type"] == "text" for content in contents)
    content: Any = "\n".join(content["text"] for content in contents) if is_text else contents
    record: dict[str, Any] = {"role": message.role, "content": content if contents else None, **named}
    if not contents and not calls:
        record["content"] = ""
    if thoughts:
        record["reasoning_content"] = "\n".join(thoughts)
    if calls:
        record["tool_calls"] = calls
    return [*converted, record]


def _openai_content(part: Mapping[str, Any]) -> dict[str, Any]:
    uri = part.get("uri")
    if part.get("type") == "uri" and isinstance(uri, str) and part.get("modality") == "image":
        return {"type": "image_url", "image_url": {"url": uri}}
    text = part.get("content") if part.get("type") == "text" else described_part(part)
    return {"type": "text", "text": json_text(text)}
