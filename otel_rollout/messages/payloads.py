"""Split the arguments of an LLM op: its messages, its tools, and the rest, which stays in `input.value`."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Final

from otel_rollout.messages.forms import convert_messages, is_message, is_message_list, is_part, tool_definitions
from otel_rollout.messages.message import Message, text_message
from otel_rollout.messages.names import (
    MESSAGE_ARGUMENTS,
    PROMPT_ARGUMENTS,
    PROMPT_TEXT,
    SYSTEM_ARGUMENTS,
    TOOL_ARGUMENTS,
)
from otel_rollout.text.plain_text import cut_text

PREVIEW_CHARACTERS: Final = 1000
"""The most characters of a message that stay in the payload of an op for the lists of backends."""
_CONTINUES: Final = "prompt_ids_start"
"""A key in the arguments of a turn that has only the ids after the ids of earlier turns."""
_MAX_DEPTH: Final = 3
_MAX_SEARCHED: Final = 1000
_AROUND_TEXTS: Final = frozenset({"kwargs", "args", "request", "payload", "body", "params", *MESSAGE_ARGUMENTS})
"""Arguments that may have the prompt's text inside."""

Path = tuple[Any, ...]


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
        return ChatSide(_prompt_of(value), None) if value else None
    if is_message(value) or is_message_list(value):
        return ChatSide(convert_messages(value), None)
    if type(value) is not dict:
        return None
    text = value.get(PROMPT_TEXT)
    if type(text) is str and text:
        side = ChatSide(_prompt_of(text), _without(value, (PROMPT_TEXT,)), raw=text)
    else:
        found = _find(value, takes_texts=takes_texts)
        if found is None:
            return None
        path, item = found
        side = ChatSide(_messages_of(item), _without(value, path))
        _take_system(side, path)
    side.continues = bool(value.get(_CONTINUES))
    _take_tools(side)
    side.rest = side.rest or None
    return side


def message_lists(value: Any) -> Iterator[list[Any]]:
    """Yield the lists of messages in an op's arguments."""
    return ([*item] for _, item, _ in _walk(value) if is_message_list(item))


def is_templated(value: Any) -> bool:
    """Return True if the prompt in an op's arguments is a text in a chat template's form."""
    found = _find(value, takes_texts=True) if type(value) is dict else None
    return found is not None and type(found[1]) is str and _prompt_of(found[1]) != [text_message("user", found[1])]


def _take_system(side: ChatSide, path: Path) -> None:
    """Put the system prompt that stands beside the messages before them."""
    if side.messages[0].role == "system":
        return
    for at, item, _ in _walk(side.rest):
        if at and at[-1] in SYSTEM_ARGUMENTS and len(at) <= len(path) + 1 and _is_prompt(item):
            given = item if type(item) is dict and "parts" in item else {"content": item}
            side.messages = [*convert_messages({**given, "role": "system"}), *side.messages]
            side.rest = _without(side.rest, at)
            return


def _take_tools(side: ChatSide) -> None:
    for at, item, _ in _walk(side.rest):
        if at and at[-1] in TOOL_ARGUMENTS and (tools := tool_definitions(item)) is not None:
            side.tools, side.rest = tools, _without(side.rest, at)
            return


def _find(value: dict[str, Any], *, takes_texts: bool) -> tuple[Path, Any] | None:
    """Return the place of the conversation, or else of the prompt's text, and what stands there."""
    found: list[tuple[tuple[int, int, int, int], Path, Any]] = []
    for order, (path, item, _) in enumerate(_walk(value)):
        if not path:
            continue
        name, kind = path[-1], type(item)
        is_text = False
        if kind is str or kind is list or kind is tuple:
            is_known = name in PROMPT_ARGUMENTS or name == 0
            is_text = takes_texts and is_known and all(at in _AROUND_TEXTS for at in path[:-1] if type(at) is str)
            is_text = is_text and bool(item) and (kind is str or all(type(each) is str for each in item))
        if is_text:
            rank = PROMPT_ARGUMENTS.index(name) if name in PROMPT_ARGUMENTS else len(PROMPT_ARGUMENTS)
            found.append(((len(path), 1, rank, order), path, item))
        elif is_message_list(item) or (is_message(item) and (name in MESSAGE_ARGUMENTS or name in PROMPT_ARGUMENTS)):
            rank = MESSAGE_ARGUMENTS.index(name) if name in MESSAGE_ARGUMENTS else len(MESSAGE_ARGUMENTS)
            found.append(((len(path), 0, rank, order), path, item))
        elif kind is list and len(item) > 1 and all(map(is_message_list, item)):
            found.append(((len(path), 0, len(MESSAGE_ARGUMENTS), order), path, [each for one in item for each in one]))
        elif kind is list and name in MESSAGE_ARGUMENTS and item and all(map(is_part, item)):
            found.append(((len(path), 0, len(MESSAGE_ARGUMENTS), order), path, {"role": "user", "content": item}))
    if not found:
        return None
    _, path, item = min(found, key=lambda each: each[0])
    return path, item


def _walk(value: Any) -> Iterator[tuple[Path, Any, int]]:
    """Yield what is in a payload, the outer before the inner, with its place and its depth."""
    level: list[tuple[Path, Any]] = [((), value)]
    count = 0
    for depth in range(_MAX_DEPTH + 1):
        below: list[tuple[Path, Any]] = []
        for path, item in level:
            yield path, item, depth
            count += 1
            if count > _MAX_SEARCHED:
                return
            if type(item) is dict:
                below += [((*path, key), each) for key, each in item.items()]
            elif type(item) in (list, tuple) and not is_message_list(item) and len(item) <= _MAX_SEARCHED:
                below += [((*path, index), each) for index, each in enumerate(item) if type(each) is not int]
        level = below


def _messages_of(item: Any) -> list[Message]:
    if type(item) is str:
        return _prompt_of(item)
    if type(item) in (list, tuple) and all(type(each) is str for each in item):
        return [message for each in item for message in _prompt_of(each)]
    return convert_messages(item)


def _prompt_of(text: str) -> list[Message]:
    if "<" not in text:
        return [text_message("user", text)]
    # Most processes have no rendered texts.
    from otel_rollout.messages.templates import prompt_messages

    return prompt_messages(text)


def _is_prompt(value: Any) -> bool:
    kind = type(value)
    if kind is str or (kind is dict and "parts" in value):
        return bool(value)
    return kind in (list, tuple) and bool(value) and all(type(item) in (dict, str) for item in value)


def _without(value: Any, path: Path) -> Any:
    """Return a copy without what stands at a place."""
    if not path:
        return None
    if type(value) is dict:
        if len(path) == 1:
            return {key: item for key, item in value.items() if key != path[0]}
        inner = _without(value[path[0]], path[1:])
        return {key: inner if key == path[0] else item for key, item in value.items()}
    copied = [*value]
    copied[path[0]] = _without(copied[path[0]], path[1:])
    return copied
