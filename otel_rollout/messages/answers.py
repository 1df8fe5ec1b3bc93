"""Read what an LLM op returned: the answer, and the rest, which stays in `output.value`.

A result is a text, a message, a response of a client library or a server, a list, a tuple with usage, ids or log-probs
in any order, or a stream's pieces. Its places are in the table of names.
"""

from __future__ import annotations

from typing import Any, Final, NamedTuple

from otel_rollout.guard.signal_handlers import is_from_signal_handler
from otel_rollout.messages.forms import (
    convert_messages,
    finish_reason_of,
    is_message,
    is_message_list,
    is_part,
    parts_message,
)
from otel_rollout.messages.message import Message, text_message
from otel_rollout.messages.names import (
    ANSWERS,
    CALLS,
    CONTAINERS,
    FINISH_WORDS,
    ITEM_TYPES,
    MESSAGE_ARGUMENTS,
    PROMPT_ARGUMENTS,
    REASONING_KEYS,
    RESPONSE_TEXT,
    TOOL_ARGUMENTS,
    USAGE_PLACES,
)
from otel_rollout.messages.payloads import ChatSide, is_templated, message_lists

_MAX_DEPTH: Final = 5
_NO_ANSWERS: Final = frozenset({*PROMPT_ARGUMENTS, *TOOL_ARGUMENTS, *USAGE_PLACES, "request", "logprobs"}) - {
    *CONTAINERS,
    *(name for name in MESSAGE_ARGUMENTS if name not in PROMPT_ARGUMENTS),
}
"""Fields of a result in which no answer is looked for."""


class Taken(NamedTuple):
    """An answer.

    Args:
        messages: Its messages.
        rest: What is left of the value; None if nothing is.
    """

    messages: list[Message]
    rest: Any


def split_output(value: Any, arguments: Any = None, *, is_stream: bool = False) -> ChatSide | None:
    """Return the messages of an LLM op's result; None if there are none.

    Args:
        value: The payload: a response, a message, a text, or a list or a tuple with one.
        arguments: The op's arguments; a result that begins with their messages is the whole conversation.
        is_stream: The value is the list of what a generator yielded.
    """
    reader = AnswerReader(arguments)
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
    if is_message(value):
        # A message as the result is a response as well: what is no part of it is the response's.
        rest = {key: field for message in messages for key, field in message.more.items() if key != "finish_reason"}
        messages = [_answer(Message(role, parts), more["finish_reason"]) for role, parts, more in messages]
    raw = value[RESPONSE_TEXT] if type(value) is dict and type(value.get(RESPONSE_TEXT)) is str else None
    if rest and type(rest) is list:
        rest = {str(index): item for index, item in enumerate(rest) if item is not None}
    return ChatSide(messages, rest or None, raw=raw)


class AnswerReader:
    """Takes the answer out of a result.

    Args:
        arguments: The op's arguments.
        is_whole: False for the pieces of a stream.
    """

    def __init__(self, arguments: Any = None, *, is_whole: bool = True) -> None:
        self._arguments = arguments
        self._is_whole = is_whole

    def text(self, text: str, reason: str) -> Message:
        """Return the message of a text; after a prompt in a template's form, the text is read as such, too."""
        if "<" in text and is_templated(self._arguments):
            from otel_rollout.messages.templates import answer_message

            return answer_message(text, reason)
        return text_message("assistant", text, reason)

    def take(self, value: Any, reason: str = "", depth: int = 0) -> Taken | None:
        """Return the answer in a value; None if it has none.

        Args:
            value: The value, or a part of it.
            reason: The finish reason that stands around it.
            depth: The depth of the value.
        """
        if type(value) is dict and value:
            return self._take_dict(value, reason, depth)
        return self._take_list(value, reason, depth) if type(value) in (list, tuple) and value else None

    def _take_dict(self, value: dict[str, Any], reason: str, depth: int) -> Taken | None:
        reason = finish_reason_of(value, _status(value)) or reason
        if type(text := value.get(RESPONSE_TEXT)) is str:
            from otel_rollout.messages.templates import answer_message

            return Taken([answer_message(text, reason)], _without(value, (RESPONSE_TEXT,)))
        if is_message(value):
            return Taken([_answer(each, reason) for each in self._convert(value)], None)
        if depth >= _MAX_DEPTH:
            return None
        for key in CONTAINERS:
            if taken := self._take_inside(value, key, reason, depth):
                return taken
        if taken := self._take_fields(value, reason):
            return taken
        for key in value:
            if (
                key not in CONTAINERS
                and key not in _NO_ANSWERS
                and (taken := self._take_inside(value, key, reason, depth))
            ):
                return taken
        return None

    def _take_inside(self, value: dict[str, Any], key: str, reason: str, depth: int) -> Taken | None:
        item = value.get(key)
        if type(item) not in (dict, list, tuple) or not (taken := self.take(item, reason, depth + 1)):
            return None
        rest = taken.rest
        if type(rest) is list and not any(rest):
            rest = None
        return Taken(taken.messages, {**value, key: rest} if rest else _without(value, (key,)))

    def _take_fields(self, value: dict[str, Any], reason: str) -> Taken | None:
        """Return the answer of a dict whose own fields are the answer's."""
        if is_part(value) and "type" in value:
            return Taken([_answer(each, reason) for each in parts_message([value], "assistant")], None)
        name = next((key for key in ANSWERS if type(value.get(key)) is str), None)
        others = [key for key in (*REASONING_KEYS, *CALLS) if value.get(key)]
        if name is None and not others:
            return None if not is_part(value) else Taken(self._parts([value], reason), None)
        if name is not None and not others:
            return Taken([self.text(value[name], reason)], _without(value, (name,)))
        item = {"role": "assistant", **{key: value[key] for key in others}}
        if name is not None:
            item["content"] = value[name]
        messages = [_answer(each, reason) for each in self._convert(item)]
        return Taken(messages, _without(value, (name, *others)))

    def _take_list(self, value: Any, reason: str, depth: int) -> Taken | None:
        if type(value[0]) in (int, float) and type(value) is list:
            return None
        if self._is_parts(value):
            return Taken(self._parts(value, reason), None)
        if is_message_list(value) and any(map(is_message, value)):
            new = self._new(value)
            own = (finish_reason_of(item) for item in reversed(new) if type(item) is dict)
            reason = next(filter(None, own), reason)
            return Taken([_answer(each, reason) for each in self._convert(new)], None)
        texts = [item for item in value if type(item) is str and item[:2] != "…["]
        reasons = [text for text in texts if text.lower() in FINISH_WORDS] if len(value) > 1 else []
        reason = finish_reason_of({"finish_reason": reasons[0]}) if reasons else reason
        messages: list[Message] = []
        rest: list[Any] = [*value]
        for index, item in enumerate(value):
            if (type(value) is list or not messages) and (taken := self.take(item, reason, depth + 1)):
                messages += taken.messages
                rest[index] = taken.rest
        if not messages:
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
            item.get("type") not in ITEM_TYPES and ("type" in item or "text" not in item) for item in value
        )

    def _new(self, value: Any) -> Any:
        """Return the messages of a result without those that the op was given."""
        try:
            lengths = (len(each) for each in message_lists(self._arguments) if [*value[: len(each)]] == each)
            given = next((length for length in lengths if length < len(value)), 0)
        except ValueError as error:
            if is_from_signal_handler(error):
                raise
            # Arrays of numpy have no one truth value.
            return value
        return value[given:]


def _answer(message: Message, reason: str) -> Message:
    """Return a message with its finish reason last, which the convention demands of each answer."""
    more = {key: field for key, field in message.more.items() if key != "finish_reason"}
    return message._replace(more={**more, "finish_reason": finish_reason_of(message.more) or reason})


def _status(value: dict[str, Any]) -> dict[str, Any]:
    """Return the finish reason of OpenAI's Responses: why it is incomplete, else its status."""
    details = value.get("incomplete_details")
    reason = details.get("reason") if type(details) is dict else None
    status = value.get("status") if "output" in value else None
    return {"finish_reason": reason or status}


def _without(value: dict[str, Any], names: tuple[str | None, ...]) -> dict[str, Any]:
    return {key: item for key, item in value.items() if key not in names}
