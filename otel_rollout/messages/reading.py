"""Read messages back: from a span's attributes, from any payload, and as people see them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple

from otel_rollout import semconv
from otel_rollout.messages import names
from otel_rollout.messages.forms import convert_messages
from otel_rollout.messages.inputs import split_input
from otel_rollout.messages.message import Message, Part, parse_json, part_text, text_message
from otel_rollout.messages.templates import answer_parts, read_template


class ChatMessages(NamedTuple):
    """The messages of one span; a side that wasn't captured is empty.

    Args:
        input: The messages that the model got; on a root, the conversation before the last answer.
        output: The model's answer; several if it was asked for several.
        tools: The definitions of the tools, as the span has them.
    """

    input: list[Message]
    output: list[Message]
    tools: list[dict[str, Any]]


def chat_messages(attributes: Mapping[str, Any] | None) -> ChatMessages | None:
    """Return the messages on a span; None if it has none that can be read.

    Args:
        attributes: The attributes of a span of ours, or of another instrumentation that follows the GenAI conventions.
    """
    attributes = attributes or {}
    asked = _messages(attributes.get(semconv.INPUT_MESSAGES))
    answered = _messages(attributes.get(semconv.OUTPUT_MESSAGES))
    if not asked and not answered:
        return None
    tools = [tool for tool in _items(attributes.get(semconv.TOOL_DEFINITIONS)) if isinstance(tool, dict)]
    return ChatMessages(asked, answered, tools)


def messages_in(value: Any) -> list[Message]:
    """Return the messages in a parsed payload, as people see them; empty if it has none."""
    if type(value) is dict and "role" in value and not any(key in value for key in ("content", "parts", "tool_calls")):
        # A role with other fields is no message.
        return []
    try:
        side = split_input(value, takes_texts=False) if type(value) in (dict, list) else None
    except RecursionError:
        # It is nested too deeply.
        side = None
    messages = [] if side is None else side.messages
    return [each for message in messages for each in unfolded(message, has_results=len(messages) > 1)]


def unfolded(message: Message, *, has_results: bool = False) -> Iterator[Message]:
    """Yield a message as people see it: results, thoughts and calls apart, a template's text as its messages.

    Args:
        message: A message.
        has_results: Results of tools were taken from it before; it is nothing if it has nothing else.
    """
    role, parts, more = message
    if len(parts) == 1 and parts[0].get("type") == "text":
        text = part_text(parts[0])
        if "<" not in text and text[:1] != "[":
            # It has no mark of any template.
            is_padded = role == "assistant" and text != text.strip("\n")
            if text or not has_results:
                yield text_message(role, text.strip("\n"))._replace(more=more) if is_padded else message
            return
    results = [part for part in parts if part.get("type") in names.RESULTS]
    named = {"name": message.name} if role == "tool" and message.name else {}
    for part in results:
        yield Message("tool", [part], {"name": str(part["name"])} if part.get("name") else named)
    rest = message
    if results:
        rest = Message(role, [part for part in parts if part.get("type") not in names.RESULTS], more)
    text, thought, calls = rest.text, rest.reasoning, [part for part in rest.parts if part.get("type") in names.CALLS]
    if (results or has_results) and not text and not thought and not calls:
        return
    thoughts: list[Part] = [{"type": "reasoning", "content": thought}] if thought else []
    if not calls and role != "tool" and (split := read_template(text)):
        if thought:
            yield Message(role, thoughts)
        yield from split
    elif role == "assistant":
        # A model's text may contain reasoning and tool calls.
        said = answer_parts(text, has_calls=bool(calls))
        yield Message(role, [*thoughts, *said, *calls], more)
    else:
        yield rest


def _messages(value: Any) -> list[Message]:
    return [message for item in _items(value) for message in _message(item)]


def _items(value: Any) -> Iterable[Any]:
    """Return a list that an attribute holds as JSON text, or as other instrumentations set it."""
    value = parse_json(value) if isinstance(value, str) else value
    return value if isinstance(value, (list, tuple)) else ()


def _message(item: Any) -> list[Message]:
    """Return a message of the conventions' form as it is; of another, what it is in theirs."""
    if not isinstance(item, (dict, Mapping)) or not isinstance(item.get("role"), str):
        return []
    parts = item.get("parts")
    if not isinstance(parts, (list, tuple)):
        return convert_messages(dict(item))
    kept = [part if type(part) is dict else dict(part) for part in parts if isinstance(part, (dict, Mapping))]
    more = {key: field for key, field in item.items() if key not in ("role", "parts")} if len(item) > 2 else {}
    return [Message(item["role"], kept, more)]
