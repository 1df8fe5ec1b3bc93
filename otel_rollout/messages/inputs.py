"""Split the arguments of an LLM op: messages, tools, and the rest, which stays in `input.value`.

The names and places of prompts, messages and tools are in the table of names.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, Final

from otel_rollout.messages import names
from otel_rollout.messages.forms import convert_messages, is_message, is_message_list, is_part, tool_definitions
from otel_rollout.messages.message import Message, text_message
from otel_rollout.messages.templates import prompt_messages
from otel_rollout.text.plain_text import cut_text

PREVIEW_CHARACTERS: Final = 1000
"""The most characters of a message that stay in the payload of an op for the lists of backends."""
_CONTINUES: Final = "prompt_ids_start"
"""A key in the arguments of a turn that has only the ids after the ids of earlier turns."""
_MAX_DEPTH: Final = 3
_MAX_SEARCHED: Final = 1000
SAYING: Final = (str, list, tuple, dict)

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
    text = value.get(names.PROMPT_TEXT)
    if type(text) is str and text:
        side = ChatSide(_prompt_of(text), _without(value, (names.PROMPT_TEXT,)), raw=text)
    else:
        found = _find(value, takes_texts=takes_texts)
        if found is None:
            return None
        path, item = found
        side = ChatSide(_messages_of(item), _without(value, path))
        if path and path[-1] in names.HISTORIES:
            side.messages += _take(side, names.PROMPT_ARGUMENTS, lambda at, item: _asked(at, item, path)) or []
        if side.messages[0].role != "system":
            system = _take(side, names.SYSTEM_ARGUMENTS, lambda at, item: _instructed(at, item, path))
            side.messages = [*(system or []), *side.messages]
    side.continues = bool(value.get(_CONTINUES))
    side.tools = _take(side, names.TOOL_ARGUMENTS, lambda _, item: tool_definitions(item))
    side.rest = side.rest or None
    return side


def is_templated(value: Any) -> bool:
    """Return True if the prompt in an op's arguments is a text in a chat template's form."""
    found = _find(value, takes_texts=True) if type(value) is dict else None
    return found is not None and type(found[1]) is str and _prompt_of(found[1]) != [text_message("user", found[1])]


def walk(value: Any) -> Iterator[tuple[Path, Any, bool]]:
    """Yield the values in a payload, the outer before the inner, with their paths; True for a list of messages."""
    level: list[tuple[Path, Any]] = [((), value)]
    count = 0
    for _ in range(_MAX_DEPTH + 1):
        below: list[tuple[Path, Any]] = []
        for path, item in level:
            is_conversation = type(item) in (list, tuple) and is_message_list(item)
            yield path, item, is_conversation
            count += 1
            if count > _MAX_SEARCHED:
                return
            if type(item) is dict:
                below += [((*path, key), each) for key, each in item.items() if type(each) in SAYING]
            elif type(item) in (list, tuple) and not is_conversation and len(item) <= _MAX_SEARCHED:
                below += [((*path, index), each) for index, each in enumerate(item) if type(each) in SAYING]
        level = below


def is_texts(value: Any) -> bool:
    """Return True for a list or a tuple of texts."""
    return type(value) in (list, tuple) and bool(value) and all(type(item) is str for item in value)


def _take(side: ChatSide, keys: tuple[str, ...], read: Callable[[Path, Any], list[Any] | None]) -> list[Any] | None:
    """Take the first argument with one of some names that can be read out of the rest."""
    for at, item, _ in walk(side.rest):
        if at and at[-1] in keys and (found := read(at, item)):
            side.rest = _without(side.rest, at)
            return found
    return None


def _asked(at: Path, item: Any, path: Path) -> list[Message] | None:
    """Return the prompt that follows a history."""
    return _prompt_of(item) if at[:-1] == path[:-1] and type(item) is str and item else None


def _instructed(at: Path, item: Any, path: Path) -> list[Message] | None:
    """Return the system prompt before the messages."""
    kind = type(item)
    is_listed = kind in (list, tuple) and all(type(each) in (dict, str) for each in item)
    is_parts = kind is dict and "parts" in item
    if not item or len(at) > len(path) + 1 or not (kind is str or is_parts or is_listed):
        return None
    return convert_messages({**(item if is_parts else {"content": item}), "role": "system"})


def _find(value: dict[str, Any], *, takes_texts: bool) -> tuple[Path, Any] | None:
    """Return the place of the conversation, or else of the prompt's text, and the value at it."""
    found: list[tuple[tuple[int, bool, int, int], Path, Any]] = []
    for order, (path, item, is_conversation) in enumerate(walk(value)):
        if not path or not item:
            continue
        name, kind, given = path[-1], type(item), item
        is_known = name in names.PROMPT_ARGUMENTS or name in names.MESSAGE_ARGUMENTS
        is_asked = name in names.PROMPT_ARGUMENTS or name == 0 or (is_known and kind is not str)
        is_text = takes_texts and is_asked and all(at in names.AROUND_TEXTS for at in path[:-1] if type(at) is str)
        is_text = is_text and (kind is str or is_texts(item))
        if kind is list and not is_text and not is_conversation:
            if len(item) > 1 and all(map(is_message_list, item)):
                given = [each for one in item for each in one]
            elif name in names.MESSAGE_ARGUMENTS and all(map(is_part, item)):
                given = {"role": "user", "content": item}
        if is_text or is_conversation or given is not item or (is_known and is_message(item)):
            order_of = names.PROMPT_ARGUMENTS if is_text else names.MESSAGE_ARGUMENTS
            rank = order_of.index(name) if name in order_of else len(order_of)
            found.append(((len(path), is_text, rank, order), path, given))
    return min(found, key=lambda each: each[0])[1:] if found else None


def _messages_of(item: Any) -> list[Message]:
    texts = [item] if type(item) is str else item
    return [message for text in texts for message in _prompt_of(text)] if is_texts(texts) else convert_messages(item)


def _prompt_of(text: str) -> list[Message]:
    return prompt_messages(text) if "<" in text else [text_message("user", text)]


def _without(value: Any, path: Path) -> Any:
    """Return a copy without the value at a path."""
    if not path:
        return None
    copied: Any = {**value} if type(value) is dict else [*value]
    if len(path) == 1 and type(value) is dict:
        del copied[path[0]]
    else:
        copied[path[0]] = _without(copied[path[0]], path[1:])
    return copied
