"""Messages in OpenAI's form, and payloads as its requests and answers, which backends draw as conversations."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

import orjson

from otel_rollout.messages.inputs import preview
from otel_rollout.messages.message import Message, json_of, json_text, part_text
from otel_rollout.messages.names import CALLS, PROMPT_TEXT, RESPONSE_TEXT, RESULTS

LONG_LIST: Final = 64
"""A list of so many integers counts as token ids."""
_FINISH_REASON: Final = "finish_reason"
_SAID: Final = {
    "text": ("content",),
    "reasoning": ("content",),
    **dict.fromkeys(CALLS, ("id", "name", "arguments")),
    **dict.fromkeys(RESULTS, ("id", "response")),
}
"""The fields of a part that OpenAI's form has, by its type."""
_PREVIEWS: Final = (f'{{"{PROMPT_TEXT}":', f'{{"{RESPONSE_TEXT}":')
_DECODER: Final = json.JSONDecoder()
# Strings match first, so that a list inside a string doesn't. A list of integers has only these characters between its
# brackets; a group per number would take twenty times as long, and `\s` half as long again.
_IDS: Final = rb"(\[[-0-9, \t\r\n]+\])"
_STRING_OR_IDS: Final = re.compile(rb'"[^"\\]*(?:\\.[^"\\]*)*"|' + _IDS, re.DOTALL)
_PLAIN_STRING_OR_IDS: Final = re.compile(rb'"[^"]*"|' + _IDS)
"""The same without escapes, four times as fast."""


def as_openai(messages: Iterable[Message], reasoning: str = "reasoning_content") -> list[dict[str, Any]]:
    """Return messages as OpenAI's chat completions have them; one with several tools' results becomes several.

    `parts` has the fields that the form lacks, such as the signature of a thought; finish reasons are left out.

    Args:
        messages: The messages.
        reasoning: The field that has the reasoning.
    """
    return [each for message in messages for each in _openai_messages(message.without_reason(), reasoning)]


def as_openai_tools(tools: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return the tool definitions of a span in OpenAI's form, `{"type": "function", "function": {…}}`."""
    wrapped = []
    for tool in tools:
        kind = tool.get("type", "function")
        is_bare = kind == "function" and "function" not in tool
        function = {key: value for key, value in tool.items() if key != "type"}
        wrapped.append({"type": kind, "function": function} if is_bare else dict(tool))
    return wrapped


def request_json(messages: Sequence[Message], rest: str | None, reasoning: str = "reasoning_content") -> str:
    """Return `messages` followed by the input's other fields, as a JSON object; `rest` is the input as JSON."""
    asked = [each for message in messages for each in _openai_messages(message, reasoning)]
    return _joined({"messages": asked}, messages, rest)


def answer_json(messages: Sequence[Message], rest: str | None, reasoning: str = "reasoning_content") -> str:
    """Return `choices` with the finish reason, followed by the output's other fields, as a JSON object."""
    choices = [
        {"index": index, "message": record, _FINISH_REASON: _reason(message)}
        for index, message in enumerate(messages)
        for record in as_openai([message], reasoning)
    ]
    fields: dict[str, Any] = {"choices": choices}
    reason = _reason(messages[-1])
    if reason:
        # Pages don't draw the one inside a choice.
        fields[_FINISH_REASON] = reason
    return _joined(fields, messages, rest)


def ids_as_text(payload: bytes) -> bytes:
    """Return JSON with each long list of integers replaced by one text of the same list."""
    pattern = _STRING_OR_IDS if b"\\" in payload else _PLAIN_STRING_OR_IDS
    return pattern.sub(_quoted, payload)


def _openai_messages(message: Message, reasoning: str) -> list[dict[str, Any]]:
    name = message.more.get("name")
    named = {"name": name} if isinstance(name, str) and name else {}
    more = {key: value for key, value in message.more.items() if key not in named}
    results = [part for part in message.parts if part.get("type") in RESULTS]
    converted: list[dict[str, Any]] = [
        {
            "role": "tool",
            "tool_call_id": json_text(part.get("id")),
            "content": json_text(part.get("response")),
            **named,
            **_beside([part]),
        }
        for part in results
    ]
    if results and len(results) == len(message.parts):
        converted[-1] = {**more, **converted[-1]}
        return converted
    contents, calls, thoughts = [], [], []
    others = [part for part in message.parts if part.get("type") not in RESULTS]
    for part in others:
        kind = part.get("type")
        if kind in CALLS:
            function = {"name": json_text(part.get("name")), "arguments": json_text(part.get("arguments", {}))}
            calls.append({"id": json_text(part.get("id")), "type": "function", "function": function})
        elif kind == "reasoning":
            thoughts.append(json_text(part.get("content")))
        else:
            contents.append(_openai_content(part))
    is_text = all(content["type"] == "text" for content in contents)
    content: Any = "\n".join(content["text"] for content in contents) if is_text else contents
    record: dict[str, Any] = {"role": message.role, "content": content if contents else None, **named}
    if not contents and not calls:
        record["content"] = ""
    if thoughts:
        record[reasoning] = "\n".join(thoughts)
    if calls:
        record["tool_calls"] = calls
    return [*converted, {**more, **record, **_beside(others)}]


def _beside(parts: Iterable[Mapping[str, Any]]) -> dict[str, Any]:
    """Return the fields that OpenAI's form lacks, such as the signature of a thought, as the parts that have them."""
    left = []
    for part in parts:
        kind = part.get("type")
        if kind == "uri" and _is_image(part):
            said: tuple[str, ...] = ("uri", "modality")
        elif kind not in _SAID and part_text(part) == f"[{kind}]":
            continue
        else:
            said = _SAID.get(str(kind), ())
        if rest := {key: value for key, value in part.items() if key not in said and key != "type"}:
            left.append({"type": kind, **rest})
    return {"parts": left} if left else {}


def _openai_content(part: Mapping[str, Any]) -> dict[str, Any]:
    if part.get("type") == "text" and type(text := part.get("content")) is str:
        return {"type": "text", "text": text}
    if _is_image(part):
        return {"type": "image_url", "image_url": {"url": part["uri"]}}
    text = part_text(part)
    # A part of an unknown kind loses nothing.
    return {"type": "text", "text": json_of(part) if text == f"[{part.get('type')}]" else text}


def _is_image(part: Mapping[str, Any]) -> bool:
    return part.get("type") == "uri" and isinstance(part.get("uri"), str) and part.get("modality") == "image"


def _reason(message: Message) -> str | None:
    """Return the finish reason in OpenAI's words."""
    return "tool_calls" if message.finish_reason == "tool_call" else message.finish_reason or None


def _joined(fields: dict[str, Any], messages: Sequence[Message], rest: str | None) -> str:
    if rest is None or rest in ("{}", "null"):
        return json_of(fields)
    if not rest.startswith("{"):
        value = orjson.loads(rest)
        if value not in [message.gist for message in messages] and value not in map(preview, messages):
            fields["value"] = value
        return json_of(fields)
    rest = _without_preview(rest)
    if rest == "{}":
        return json_of(fields)
    if any(f'"{key}"' in rest for key in fields):
        found = orjson.loads(rest)
        return json_of({**fields, **{key: value for key, value in found.items() if key not in fields}})
    # Spliced: token ids may be long.
    return f"{json_of(fields)[:-1]},{rest[1:]}"


def _without_preview(rest: str) -> str:
    """Return a payload without the text before it that is there for lists of backends without messages."""
    for start in _PREVIEWS:
        if rest.startswith(start):
            _, end = _DECODER.raw_decode(rest, len(start))
            return "{" + rest[end:].removeprefix(",")
    return rest


def _quoted(found: re.Match[bytes]) -> bytes:
    ids = found.group(1)
    if ids is None or ids.count(b",") < LONG_LIST - 1:
        return found.group()
    return b'"' + ids.translate(None, b" \t\r\n") + b'"'
