"""Messages in the form of OpenTelemetry's GenAI conventions, made of those in the APIs of client libraries.

The values are plain data: a snapshot's, or parsed from redacted JSON. Nothing is changed in place. Fields that the
convention doesn't name stay on the message or the part. Inline media become a note.
"""

from __future__ import annotations

from typing import Any, Final

from otel_rollout.guard.provenance import is_programs
from otel_rollout.messages.message import Message, Part, json_text, text_message
from otel_rollout.messages.names import (
    CALL_IDS,
    FINISH_REASON_KEYS,
    FINISH_REASONS,
    MODALITIES,
    PART_TYPES,
    REASONING_KEYS,
    ROLES,
)
from otel_rollout.text.plain_json import loads

_CONTENT_KEYS: Final = frozenset({"content", "function_call", "parts", "tool_calls", *REASONING_KEYS})
_REASONING: Final = frozenset(REASONING_KEYS)
_OTHER_ROLES: Final = frozenset({"tool", *ROLES})
_MESSAGE_KEYS: Final = _CONTENT_KEYS | {"role"}
_LANGCHAIN_TYPES: Final = frozenset({"ai", "function", "human", "system", "tool"})
_ITEM_TYPES: Final = frozenset(
    {"function_call", "function_call_output", "reasoning", "custom_tool_call", "custom_tool_call_output"}
)
"""Items without a role in the conversations of OpenAI's Responses."""
_MEDIA_KEYS: Final = ("image", "audio", "video")
MAX_PARTS: Final = 10_000
_BASE64: Final = ";base64,"


def is_message(value: Any) -> bool:
    """Return True if a value is a message: a dict with a role, LangChain's type, or an item of OpenAI's Responses."""
    if type(value) is not dict:
        return False
    role, kind = value.get("role"), value.get("type")
    if type(role) is str:
        return not _CONTENT_KEYS.isdisjoint(value)
    return type(kind) is str and (kind in _ITEM_TYPES or (kind in _LANGCHAIN_TYPES and "content" in value))


def is_message_list(value: Any) -> bool:
    """Return True if a value is a list of messages and nothing else, but for a note of the snapshot's budget."""
    if type(value) is not list or not value or not is_message(value[0]):
        return False
    return all(is_message(item) or (type(item) is str and item[:2] == "…[") for item in value)


def finish_reason_of(*values: Any) -> str:
    """Return the finish reason in the convention's words, from the first value that has one; empty if none has."""
    for value in values:
        if type(value) is dict:
            for key in FINISH_REASON_KEYS:
                reason = value.get(key)
                if type(reason) is str and reason:
                    return FINISH_REASONS.get(reason.lower(), reason)
    return ""


def convert_messages(value: Any) -> list[Message]:
    """Return messages in the convention's form; a tool's result is a message of its own.

    Args:
        value: A message, or a list of messages.
    """
    messages: list[Message] = []
    for item in value if type(value) is list else [value]:
        if type(item) is dict:
            role, text = item.get("role"), item.get("content")
            if len(item) == 2 and type(role) is type(text) is str and role not in _OTHER_ROLES:
                # Most messages.
                messages.append(Message(role, [{"type": "text", "content": text}] if text else []))
            else:
                messages += _convert(item)
        else:
            messages.append(text_message("user", str(item)))
    return messages


def tool_definitions(value: Any) -> list[dict[str, Any]] | None:
    """Return tools in the convention's form; None if the value is no list of definitions.

    Args:
        value: Tools as OpenAI or Anthropic takes them.
    """
    if type(value) is not list or not value or not all(type(tool) is dict for tool in value):
        return None
    converted = []
    for tool in value:
        function = tool.get("function")
        fields = {**tool, **function} if type(function) is dict else dict(tool)
        fields.pop("function", None)
        if "input_schema" in fields:
            fields["parameters"] = fields.pop("input_schema")
        kind = fields.pop("type", "function")
        name = fields.pop("name", kind)
        if type(kind) is not str or type(name) is not str:
            return None
        more = {key: item for key, item in fields.items() if not _is_empty(item)}
        converted.append({"type": kind, "name": name, **more})
    return converted


def _convert(item: dict[str, Any]) -> list[Message]:
    """Return one message, or several if it holds results of tools and other parts."""
    role, kind = item.get("role"), item.get("type")
    if type(role) is not str:
        role = kind if kind in _LANGCHAIN_TYPES else "tool" if str(kind).endswith("_output") else "assistant"
        item = {"content": [item]} if kind in _ITEM_TYPES else {**item, "type": None}
    role = ROLES.get(role, role)
    content = item["parts"] if type(item.get("parts")) is list else item.get("content")
    parts = _parts(content)
    if not _REASONING.isdisjoint(item):
        parts = [part for key in REASONING_KEYS if (part := _reasoning(item.get(key))) is not None][:1] + parts
    if "tool_calls" in item or "function_call" in item:
        parts += _calls(item)
    more = {
        key: field
        for key, field in item.items()
        if key not in _MESSAGE_KEYS and not _is_empty(field) and not (key == "type" and field == "message")
    }
    results = [part for part in parts if part["type"] == "tool_call_response"]
    if role == "tool" and not results:
        identity = next((more.pop(key) for key in CALL_IDS if type(more.get(key)) is str), None)
        parts = [{"type": "tool_call_response", "id": identity, "response": _response(parts, content)}]
        return [Message(role, parts, more)]
    if not results:
        return [Message(role, parts, more)]
    messages = [Message("tool", [part]) for part in results]
    rest = [part for part in parts if part["type"] != "tool_call_response"]
    if rest:
        messages.append(Message(role, rest, more))
    return messages


def _parts(content: Any) -> list[Part]:
    kind = type(content)
    if kind is str:
        return [{"type": "text", "content": content}] if content else []
    if kind is dict:
        return [_part(content)]
    if kind is not list:
        return [] if content is None else [{"type": "text", "content": json_text(content)}]
    return [
        {"type": "text", "content": item} if type(item) is str else _part(item)
        for item in content[:MAX_PARTS]
        if not _is_empty(item)
    ]


def _part(item: Any) -> Part:
    if type(item) is not dict:
        return {"type": "text", "content": json_text(item)}
    given = item.get("type")
    if type(given) is not str:
        # Gemini's parts have no type.
        given = next((name for name in ("text", *_MEDIA_KEYS) if name in item), "unknown")
    if given in MODALITIES:
        return _media(given, item)
    kind = PART_TYPES.get(given)
    if kind == "text" and len(item) == 2 and type(said := item.get("text", item.get("content"))) is str:
        return {"type": "text", "content": said}
    fields = {key: field for key, field in item.items() if key != "type" and not _is_empty(field)}
    if kind == "text":
        text = fields.pop("text", None)
        text = fields.pop("content", "") if text is None else text
        return {"type": "text", "content": text if type(text) is str else json_text(text), **fields}
    if kind == "reasoning":
        texts = [fields.pop(key) for key in ("thinking", "text", "content", "summary", "reasoning") if key in fields]
        return {"type": "reasoning", "content": "\n".join(filter(None, map(_plain_text, texts))), **fields}
    if kind == "tool_call":
        return _call(fields)
    if kind == "tool_call_response":
        identity = next((fields.pop(key) for key in CALL_IDS if type(fields.get(key)) is str), None)
        result = next((fields.pop(key) for key in ("response", "result", "output", "content") if key in fields), "")
        response = _response(_parts(result), result) if type(result) is list else result
        return {"type": kind, "id": identity, "response": response, **fields}
    return {**item, "type": given}


def _reasoning(value: Any) -> Part | None:
    text = _plain_text(value)
    return {"type": "reasoning", "content": text} if text else None


def _plain_text(value: Any) -> str:
    """Return a text, or the texts of a list of parts."""
    if type(value) is str:
        return value
    if type(value) is list:
        return "\n".join(filter(None, (_plain_text(item) for item in value)))
    return str(value["text"]) if type(value) is dict and type(value.get("text")) is str else ""


def _response(parts: list[Part], content: Any) -> Any:
    """Return a tool's result: its text if it is only text, else its parts; data in a list or an object stay."""
    if type(content) is str or _is_data(content):
        return content
    if all(part["type"] == "text" for part in parts):
        return "\n".join(part["content"] for part in parts)
    return parts


def _is_data(content: Any) -> bool:
    """Return True for a list or an object that has no text and no part."""
    items = [content] if type(content) is dict else content
    return type(items) is list and bool(items) and not any(map(_is_part, items))


def _is_part(item: Any) -> bool:
    if type(item) is not dict:
        return item is None or type(item) is str
    return type(item.get("type")) is str or item.keys() == {"text"} or any(key in item for key in _MEDIA_KEYS)


def _calls(item: dict[str, Any]) -> list[Part]:
    calls = item.get("tool_calls")
    given = [*calls] if type(calls) is list else []
    if type(item.get("function_call")) is dict:
        given.append(item["function_call"])
    return [_call(call) for call in given[:MAX_PARTS] if type(call) is dict]


def _call(call: dict[str, Any]) -> Part:
    """Return a tool call: `arguments` is an object if it was one, or the JSON text of one."""
    inner = next((call[key] for key in ("function", "custom") if type(call.get(key)) is dict), call)
    name = inner.get("name")
    arguments = next((inner[key] for key in ("arguments", "args", "input") if key in inner), None)
    identity = next((call[key] for key in ("call_id", "id") if type(call.get(key)) is str), None)
    part: Part = {"type": "tool_call", "id": identity, "name": name if type(name) is str else json_text(name)}
    part["arguments"] = _arguments(arguments)
    return part


def _arguments(value: Any) -> Any:
    if type(value) is str and value[:1] == "{":
        try:
            return loads(value)
        except ValueError as error:
            if is_programs(error):
                raise
            # As the model wrote it.
            return value
    return value


def _media(kind: str, item: dict[str, Any]) -> Part:
    """Return a reference to media, or a description in place of inline ones."""
    modality = MODALITIES[kind] or item.get("modality")
    modality = modality if type(modality) is str else "file"
    source = item.get(kind)
    source = item.get("source", item) if source is None else source
    fields = source if type(source) is dict else {}
    given = [
        source,
        *(fields.get(key) for key in ("url", "uri", "image_url", "file_id", "file_data", "data", "content")),
    ]
    text = next((value for value in given if type(value) is str and value), "")
    mime = next(
        (
            value
            for key in ("mime_type", "media_type", "format")
            if type(value := fields.get(key, item.get(key))) is str
        ),
        None,
    )
    described: Part = {"type": "uri", "modality": modality}
    if text[:5] == "data:":
        mime = text[5:].partition(";")[0] or mime
        text = text.partition(_BASE64)[2] or text
    elif fields.get("file_id") == text and text:
        described = {"type": "file", "modality": modality, "file_id": text}
    elif text and all(fields.get(key) != text for key in ("data", "file_data", "content")):
        described["uri"] = text
    if mime is not None:
        described["mime_type"] = mime
    if "uri" not in described and "file_id" not in described:
        # A `blob` would be shown as an image.
        note = text if text[:1] == "[" else f"[{len(text):,} bytes cut]" if text else json_text(source)
        return {**described, "type": modality, "content": note}
    return described


def _is_empty(value: Any) -> bool:
    return value is None or (type(value) in (str, list, dict) and not value)
