"""Split the payload of an LLM op: its messages, its tools, and the rest, which stays in `input.value`."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Final

from otel_rollout.guard.provenance import is_programs
from otel_rollout.messages.forms import (
    convert_messages,
    finish_reason_of,
    is_message,
    is_message_list,
    tool_definitions,
)
from otel_rollout.messages.message import Message, text_message
from otel_rollout.messages.names import (
    MESSAGE_ARGUMENTS,
    PROMPT_ARGUMENTS,
    PROMPT_TEXT,
    RESPONSE_TEXT,
    SYSTEM_ARGUMENTS,
    TOOL_ARGUMENTS,
)
from otel_rollout.text.plain_text import cut_text

PREVIEW_CHARACTERS: Final = 1000
"""The most characters of a message that stay in the payload of an op for the lists of backends."""
_CONTINUES: Final = "prompt_ids_start"
"""A key in the arguments of a turn that has only the ids after the ids of earlier turns."""


@dataclass(eq=False)
class ChatSide:
    """One side of an LLM op's payload.

    Args:
        messages: Its messages in the convention's form.
        rest: The payload without what the messages have; None if nothing is left.
        tools: The definitions of tools, of an input.
        raw: The decoded text that the messages were made of, if they were.
        continues: True if the messages are only those after the turn before.
    """

    messages: list[Message]
    rest: Any
    tools: list[dict[str, Any]] | None = None
    raw: str | None = None
    continues: bool = False
    _encoded: list[bytes] | None = field(default=None, init=False, repr=False)

    @property
    def encoded(self) -> list[bytes]:
        """Each message as JSON."""
        # Not functools.cached_property: before Python 3.12 it holds a lock, which a forked child would wait for.
        if self._encoded is None:
            self._encoded = [message.to_json() for message in self.messages]
        return self._encoded


def preview(message: Message, characters: int = PREVIEW_CHARACTERS) -> str:
    """Return the text of a message, with a note in place of its middle if it is long."""
    text = message.gist
    return text if len(text) <= characters else cut_text(text, characters)


def split_input(value: Any, *, takes_texts: bool = True) -> ChatSide | None:
    """Return the messages of an LLM op's arguments, or of an annotated input; None if there are none.

    Args:
        value: The payload: arguments by name, messages, or a text.
        takes_texts: Make a message of an argument that is a text and has a prompt's name.
    """
    if type(value) is str:
        return ChatSide([text_message("user", value)], None) if value else None
    if is_message(value) or is_message_list(value):
        return ChatSide(convert_messages(value), None)
    if type(value) is not dict:
        return None
    found, rest, inner = _find(value, takes_texts=takes_texts)
    tools = None
    for holder in (value, *(item for item in value.values() if type(item) is dict)):
        key = next((key for key in TOOL_ARGUMENTS if key in holder), None)
        tools = None if key is None else tool_definitions(holder[key])
        if key is not None and tools is not None:
            rest = _without(rest, key)
            break
    if found is None:
        return None
    messages, raw = found
    system = next((key for key in SYSTEM_ARGUMENTS if key in inner and _is_prompt(inner[key])), None)
    if system is not None and raw is None and messages[0].role != "system":
        messages = [*convert_messages({"role": "system", "content": inner[system]}), *messages]
        rest = _without(rest, system)
    return ChatSide(messages, rest or None, tools, raw, continues=bool(value.get(_CONTINUES)))


def split_output(value: Any, arguments: Any = None) -> ChatSide | None:
    """Return the messages of an LLM op's result; None if there are none.

    Args:
        value: The payload: a response, a message, or a text.
        arguments: The op's arguments; a result that begins with their messages is the whole conversation.
    """
    if type(value) is str:
        return ChatSide([text_message("assistant", value, "")], None)
    if type(value) is list:
        return ChatSide(_answers(_new(value, arguments), ""), None) if is_message_list(value) else None
    if type(value) is not dict:
        return None
    text = value.get(RESPONSE_TEXT)
    if type(text) is str:
        # Most processes have no decoded texts.
        from otel_rollout.messages.templates import answer_message

        return ChatSide([answer_message(text, finish_reason_of(value))], _without(value, RESPONSE_TEXT), raw=text)
    choices = value.get("choices")
    if type(choices) is list and choices and all(type(choice) is dict for choice in choices):
        return _split_choices(value, choices)
    if is_message(value):
        kept = {"role", "content", "parts", "tool_calls", "function_call", "reasoning_content", "reasoning", "thinking"}
        message = {key: item for key, item in value.items() if key in kept or (key == "type" and "role" not in value)}
        rest = {key: item for key, item in value.items() if key not in message and item is not None}
        if rest.get("type") == "message":
            del rest["type"]
        return ChatSide(_answers(message, finish_reason_of(value)), rest or None)
    for key, item in value.items():
        if is_message(item) or is_message_list(item):
            reason = finish_reason_of(value, item, _status(value))
            return ChatSide(_answers(_new(item, arguments), reason), _without(value, key) or None)
    return None


def _split_choices(value: dict[str, Any], choices: list[dict[str, Any]]) -> ChatSide | None:
    messages: list[Message] = []
    left = []
    for choice in choices:
        reason = finish_reason_of(choice)
        if is_message(choice.get("message")):
            messages += _answers(choice["message"], reason)
            left.append(_without(choice, "message"))
        elif type(choice.get("text")) is str:
            messages.append(text_message("assistant", choice["text"], reason))
            left.append(_without(choice, "text"))
        else:
            return None
    return ChatSide(messages, {**value, "choices": left})


def _answers(value: Any, reason: str) -> list[Message]:
    """Return converted messages with their finish reason, which the convention demands of each answer."""
    return [
        Message(role, parts, {**more, "finish_reason": more.get("finish_reason") or reason})
        for role, parts, more in convert_messages(value)
    ]


def _find(
    value: dict[str, Any], *, takes_texts: bool
) -> tuple[tuple[list[Message], str | None] | None, dict[str, Any], dict[str, Any]]:
    """Return the messages (with the text that they come from), the payload without them, and the dict around them."""
    text = value.get(PROMPT_TEXT)
    if type(text) is str and text:
        from otel_rollout.messages.templates import prompt_messages

        return (prompt_messages(text), text), _without(value, PROMPT_TEXT), value
    for outer in (None, *(key for key, item in value.items() if type(item) is dict)):
        inner = value if outer is None else value[outer]
        names = sorted((key for key, item in inner.items() if is_message_list(item)), key=_rank)
        if not names and takes_texts and outer in (None, "kwargs"):
            names = [key for key in PROMPT_ARGUMENTS if type(inner.get(key)) is str and inner[key]]
        if names:
            item = inner[names[0]]
            messages = [text_message("user", item)] if type(item) is str else convert_messages(item)
            rest = _without(inner, names[0])
            return (messages, None), rest if outer is None else {**value, outer: rest}, inner
    return None, value, value


def _rank(name: str) -> int:
    return MESSAGE_ARGUMENTS.index(name) if name in MESSAGE_ARGUMENTS else len(MESSAGE_ARGUMENTS)


def _is_prompt(value: Any) -> bool:
    return type(value) is str or (type(value) is list and bool(value) and all(type(item) is dict for item in value))


def _without(value: dict[str, Any], name: str) -> dict[str, Any]:
    """Return a copy without a key, at the top or one level below."""
    if name in value:
        return {key: item for key, item in value.items() if key != name}
    return {
        key: {inner: field for inner, field in item.items() if inner != name}
        if type(item) is dict and name in item
        else item
        for key, item in value.items()
    }


def _new(value: Any, arguments: Any) -> Any:
    """Return the messages of a result without those that the op was given."""
    if type(value) is not list or type(arguments) is not dict:
        return value
    given: list[Any] = next((item for item in arguments.values() if is_message_list(item)), [])
    try:
        is_longer = len(value) > len(given) and value[: len(given)] == given
    except ValueError as error:
        if is_programs(error):
            raise
        # Arrays of numpy have no one truth value.
        return value
    return value[len(given) :] if is_longer else value


def _status(value: dict[str, Any]) -> dict[str, Any]:
    """Return the finish reason of OpenAI's Responses: why it is incomplete, else its status."""
    details = value.get("incomplete_details")
    reason = details.get("reason") if type(details) is dict else None
    return {"finish_reason": reason or value.get("status")}
