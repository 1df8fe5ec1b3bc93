"""Take the answer out of an LLM op's result.

A result is a text, a message, a response of a client library or a server, a list, or a tuple with usage, ids or
log-probs in any order. The places of all that are in the table of names.
"""

from __future__ import annotations

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
)
from otel_rollout.messages.inputs import SAYING, is_templated, is_texts, walk
from otel_rollout.messages.message import Message, text_message
from otel_rollout.messages.templates import answer_message

_DEEPEST: Final = 5
_REASON_PLACES: Final = ("meta_info", "details", "generation_info", "response_metadata")
"""Fields of a result that engines and clients put the finish reason into: SGLang, TGI, LangChain."""


class Taken(NamedTuple):
    """An answer, and the rest of the value; None if nothing is left."""

    messages: list[Message]
    rest: Any


class AnswerReader:
    """Takes the answer out of a result; `is_whole` is False for the pieces of a stream."""

    def __init__(self, arguments: Any = None, *, is_whole: bool = True, takes_texts: bool = True) -> None:
        self._takes_texts = takes_texts
        self._arguments = arguments
        self._is_whole = is_whole

    def text(self, text: str, reason: str) -> Message:
        """Return the message of a text; after a prompt in a template's form, the text is read as such, too."""
        if "<" in text and is_templated(self._arguments):
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
            return Taken([answer_message(text, reason)], _without_names(value, (names.RESPONSE_TEXT,)))
        if is_message(value):
            return Taken([as_answer(each, reason) for each in self._convert(value)], None)
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
        texts = next((key for key in names.ANSWERS if is_texts(value.get(key))), None) if name is None else None
        if texts is not None:
            return Taken([self.text(text, reason) for text in value[texts]], _without_names(value, (texts,)))
        others = [
            key for key in (*names.REASONING_KEYS, *names.CALL_KEYS) if value.get(key) and type(value[key]) in SAYING
        ]
        if name is not None and not others:
            return Taken([self.text(value[name], reason)], _without_names(value, (name,)))
        if not others:
            return Taken(self._parts([value], reason), None) if is_part(value) else None
        said = {} if name is None else {"content": value[name]}
        item = {"role": "assistant", **{key: value[key] for key in others}, **said}
        return Taken([as_answer(each, reason) for each in self._convert(item)], _without_names(value, (name, *others)))

    def _take_list(self, value: Any, reason: str, depth: int) -> Taken | None:
        if type(value[0]) in (int, float) and type(value) is list:
            return None
        if self._is_parts(value):
            return Taken(self._parts(value, reason), None)
        if is_message_list(value) and (any if type(value) is list else all)(map(is_message, value)):
            new = self._new(value)
            own = (finish_reason_of(item) for item in reversed(new) if type(item) is dict)
            reason = next(filter(None, own), reason)
            return Taken([as_answer(each, reason) for each in self._convert(new)], None)
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
        return [as_answer(each, reason) for each in parts_message(value, "assistant", is_whole=self._is_whole)]

    @staticmethod
    def _is_parts(value: Any) -> bool:
        """Return True for the parts of one message, such as the content of Anthropic's."""
        return all(map(is_part, value)) and any(
            str(item.get("type")) not in names.ITEM_TYPES and ("type" in item or "text" not in item) for item in value
        )

    def _new(self, value: Any) -> Any:
        """Return the messages of a result without those that the op was given."""
        try:
            for _, item, is_conversation in walk(self._arguments):
                if is_conversation and len(item) < len(value) and [*value[: len(item)]] == [*item]:
                    return value[len(item) :]
        except ValueError as error:
            if is_programs(error):
                raise
            # Arrays of numpy have no one truth value.
        return value


def as_answer(message: Message, reason: str) -> Message:
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
