"""Split the payload of an LLM op: its messages, its tools, and the rest, which stays in `input.value`, `output.value`.

A result is a text, a message, a response of a client library or a server, a list, a tuple with usage, ids or log-probs
in any order, or a stream's pieces. The places of all that are in the table of names.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

from otel_rollout.guard.provenance import is_programs
from otel_rollout.messages import names
from otel_rollout.messages.forms import (
    convert_messages,
    finish_reason_of,
    is_message,
    is_message_list,
    is_part,
    parts_message,
    tool_definitions,
)
from otel_rollout.messages.message import Message, text_message
from otel_rollout.text.plain_text import cut_text

PREVIEW_CHARACTERS: Final = 1000
"""The most characters of a message that stay in the payload of an op for the lists of backends."""
_CONTINUES: Final = "prompt_ids_start"
"""A key in the arguments of a turn that has only the ids after the ids of earlier turns."""
_MAX_DEPTH: Final = 3
_MAX_SEARCHED: Final = 1000
_SAYING: Final = (str, list, tuple, dict)

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


def _take(side: ChatSide, keys: tuple[str, ...], read: Callable[[Path, Any], list[Any] | None]) -> list[Any] | None:
    """Take the first argument with one of some names that can be read out of the rest."""
    for at, item, _ in _walk(side.rest):
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
    for order, (path, item, is_conversation) in enumerate(_walk(value)):
        if not path or not item:
            continue
        name, kind, given = path[-1], type(item), item
        is_known = name in names.PROMPT_ARGUMENTS or name in names.MESSAGE_ARGUMENTS
        is_asked = name in names.PROMPT_ARGUMENTS or name == 0 or (is_known and kind is not str)
        is_text = takes_texts and is_asked and all(at in names.AROUND_TEXTS for at in path[:-1] if type(at) is str)
        is_text = is_text and (kind is str or _is_texts(item))
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


def _walk(value: Any) -> Iterator[tuple[Path, Any, bool]]:
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
                below += [((*path, key), each) for key, each in item.items() if type(each) in _SAYING]
            elif type(item) in (list, tuple) and not is_conversation and len(item) <= _MAX_SEARCHED:
                below += [((*path, index), each) for index, each in enumerate(item) if type(each) in _SAYING]
        level = below


def _messages_of(item: Any) -> list[Message]:
    texts = [item] if type(item) is str else item
    return [message for text in texts for message in _prompt_of(text)] if _is_texts(texts) else convert_messages(item)


def _prompt_of(text: str) -> list[Message]:
    if "<" not in text:
        return [text_message("user", text)]
    # Most processes have no rendered texts.
    from otel_rollout.messages.templates import prompt_messages

    return prompt_messages(text)


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


_DEEPEST: Final = 5
_REASON_PLACES: Final = ("meta_info", "details", "generation_info", "response_metadata")
"""Fields of a result that engines and clients put the finish reason into: SGLang, TGI, LangChain."""


class Taken(NamedTuple):
    """An answer, and the rest of the value; None if nothing is left."""

    messages: list[Message]
    rest: Any


def split_output(
    value: Any, arguments: Any = None, *, is_stream: bool = False, takes_texts: bool = True
) -> ChatSide | None:
    """Return the messages of an LLM op's result, or of an annotated output; None if there are none.

    Args:
        value: The payload: a response, a message, a text, or a list or a tuple with one.
        arguments: The op's arguments; a result that begins with their messages is the whole conversation.
        is_stream: The value is the list of what a generator yielded.
        takes_texts: Make a message of texts, in a list or under an answer's name.
    """
    reader = AnswerReader(arguments, takes_texts=takes_texts)
    if type(value) is str:
        return ChatSide([reader.text(value, "")], None)
    taken: Taken | None = None
    if type(value) is list and value:
        from otel_rollout.messages.streams import is_chunks, join_stream

        if is_stream or is_chunks(value):
            taken = join_stream(value, arguments)
    taken = taken or reader.take(value)
    if taken is None:
        return None
    messages, rest = taken
    if rest is None and is_message(value):
        # A message as the result is a response as well: what is no part of it is the response's.
        rest = {key: field for message in messages for key, field in message.more.items() if key != "finish_reason"}
        messages = [_answer(Message(role, parts), more["finish_reason"]) for role, parts, more in messages]
    raw = value[names.RESPONSE_TEXT] if type(value) is dict and type(value.get(names.RESPONSE_TEXT)) is str else None
    if rest and type(rest) is list:
        rest = {str(index): item for index, item in enumerate(rest) if item is not None}
    return ChatSide(messages, rest or None, raw=raw)


class AnswerRead(NamedTuple):
    """The parts of an LLM op's result that were recognised; `shape` is its classes, such as `tuple[dict, int]`."""

    answer_read: bool
    usage_read: bool
    shape: str


def read_of(value: Any, side: ChatSide | None, *, has_usage: bool, shape: str = "") -> AnswerRead:
    """Return the parts of a result that were recognised; `shape` is the classes that the program returned."""
    items = value[:8] if type(value) in (list, tuple) else ()
    has_ids = type(value) is dict and not names.IDS.keys().isdisjoint(value)
    has_ids = has_ids or (bool(items) and set(map(type, items)) == {int})
    return AnswerRead(side is not None or value is None or has_ids, has_usage, shape)


class AnswerReader:
    """Takes the answer out of a result; `is_whole` is False for the pieces of a stream."""

    def __init__(self, arguments: Any = None, *, is_whole: bool = True, takes_texts: bool = True) -> None:
        self._takes_texts = takes_texts
        self._arguments = arguments
        self._is_whole = is_whole

    def text(self, text: str, reason: str) -> Message:
        """Return the message of a text; after a prompt in a template's form, the text is read as such, too."""
        if "<" in text and is_templated(self._arguments):
            from otel_rollout.messages.templates import answer_message

            return answer_message(text, reason)
        return text_message("assistant", text, reason)

    def take(self, value: Any, reason: str = "", depth: int = 0) -> Taken | None:
        """Return the answer in a value; None if it has none."""
        if type(value) in (list, tuple) and value:
            return self._take_list(value, reason, depth)
        if type(value) is not dict:
            return None
        reason = finish_reason_of(value, _status(value), *map(value.get, _REASON_PLACES)) or reason
        if type(text := value.get(names.RESPONSE_TEXT)) is str:
            from otel_rollout.messages.templates import answer_message

            return Taken([answer_message(text, reason)], _without_names(value, (names.RESPONSE_TEXT,)))
        if is_message(value):
            return Taken([_answer(each, reason) for each in self._convert(value)], None)
        if depth >= _DEEPEST:
            return None
        others = (key for key in value if key not in names.CONTAINERS and key not in names.NO_ANSWERS)
        for key in (*names.CONTAINERS, None, *others):
            taken = self._take_fields(value, reason) if key is None else self._take_inside(value, key, reason, depth)
            if taken:
                return taken
        return None

    def _take_inside(self, value: dict[str, Any], key: str, reason: str, depth: int) -> Taken | None:
        item = value.get(key)
        if type(item) not in (dict, list, tuple) or not (taken := self.take(item, reason, depth + 1)):
            return None
        rest = taken.rest
        if type(rest) is list and not any(rest):
            rest = None
        return Taken(taken.messages, {**value, key: rest} if rest else _without_names(value, (key,)))

    def _take_fields(self, value: dict[str, Any], reason: str) -> Taken | None:
        """Return the answer of a dict whose own fields are the answer's."""
        if not self._takes_texts:
            return None
        if is_part(value) and "type" in value:
            return Taken(self._parts([value], reason), None)
        name = next((key for key in names.ANSWERS if type(value.get(key)) is str), None)
        texts = next((key for key in names.ANSWERS if _is_texts(value.get(key))), None) if name is None else None
        if texts is not None:
            return Taken([self.text(text, reason) for text in value[texts]], _without_names(value, (texts,)))
        others = [
            key for key in (*names.REASONING_KEYS, *names.CALL_KEYS) if value.get(key) and type(value[key]) in _SAYING
        ]
        if name is not None and not others:
            return Taken([self.text(value[name], reason)], _without_names(value, (name,)))
        if not others:
            return Taken(self._parts([value], reason), None) if is_part(value) else None
        said = {} if name is None else {"content": value[name]}
        item = {"role": "assistant", **{key: value[key] for key in others}, **said}
        return Taken([_answer(each, reason) for each in self._convert(item)], _without_names(value, (name, *others)))

    def _take_list(self, value: Any, reason: str, depth: int) -> Taken | None:
        if type(value[0]) in (int, float) and type(value) is list:
            return None
        if self._is_parts(value):
            return Taken(self._parts(value, reason), None)
        if is_message_list(value) and (any if type(value) is list else all)(map(is_message, value)):
            new = self._new(value)
            own = (finish_reason_of(item) for item in reversed(new) if type(item) is dict)
            reason = next(filter(None, own), reason)
            return Taken([_answer(each, reason) for each in self._convert(new)], None)
        texts = [item for item in value if type(item) is str and item[:2] != "…["]
        reasons = [text for text in texts if text.lower() in names.FINISH_WORDS] if len(value) > 1 else []
        reason = finish_reason_of({"finish_reason": reasons[0]}) if reasons else reason
        messages: list[Message] = []
        rest: list[Any] = [*value]
        for index, item in enumerate(value):
            if (type(value) is list or not messages) and (taken := self.take(item, reason, depth + 1)):
                messages += taken.messages
                rest[index] = taken.rest
        if not messages and self._takes_texts:
            is_batch = type(value) is list and len(texts) == len(value) and not reasons
            for index, item in enumerate(value):
                if type(item) is str and item in texts and item not in reasons and (is_batch or not messages):
                    messages.append(self.text(item, reason))
                    rest[index] = None
        return Taken(messages, rest) if messages else None

    def _convert(self, value: Any) -> list[Message]:
        return convert_messages(value, "assistant", is_whole=self._is_whole)

    def _parts(self, value: Any, reason: str) -> list[Message]:
        return [_answer(each, reason) for each in parts_message(value, "assistant", is_whole=self._is_whole)]

    @staticmethod
    def _is_parts(value: Any) -> bool:
        """Return True for the parts of one message, such as the content of Anthropic's."""
        return all(map(is_part, value)) and any(
            str(item.get("type")) not in names.ITEM_TYPES and ("type" in item or "text" not in item) for item in value
        )

    def _new(self, value: Any) -> Any:
        """Return the messages of a result without those that the op was given."""
        try:
            for _, item, is_conversation in _walk(self._arguments):
                if is_conversation and len(item) < len(value) and [*value[: len(item)]] == [*item]:
                    return value[len(item) :]
        except ValueError as error:
            if is_programs(error):
                raise
            # Arrays of numpy have no one truth value.
        return value


def _is_texts(value: Any) -> bool:
    return type(value) in (list, tuple) and bool(value) and all(type(item) is str for item in value)


def _answer(message: Message, reason: str) -> Message:
    """Return a message with its finish reason last, which the convention demands of each answer."""
    more = dict(message.more)
    given = more.pop("finish_reason", None)
    if given is not None and type(given) is not str:
        more["item_finish_reason"] = given
    return message._replace(more={**more, "finish_reason": finish_reason_of(message.more) or reason})


def _status(value: dict[str, Any]) -> dict[str, Any]:
    """Return the finish reason of OpenAI's Responses: why it is incomplete, else its status."""
    details = value.get("incomplete_details")
    reason = details.get("reason") if type(details) is dict else None
    status = value.get("status") if "output" in value else None
    return {"finish_reason": reason or status}


def _without_names(value: dict[str, Any], keys: tuple[str | None, ...]) -> dict[str, Any]:
    return {key: item for key, item in value.items() if key not in keys}
