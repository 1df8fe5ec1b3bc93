"""Split the result of an LLM op: the answer, and the rest, which stays in `output.value`."""

from __future__ import annotations

from typing import Any, NamedTuple

from otel_rollout.messages import names
from otel_rollout.messages.answer_reader import AnswerReader, Taken, as_answer
from otel_rollout.messages.forms import is_message
from otel_rollout.messages.inputs import ChatSide
from otel_rollout.messages.message import Message
from otel_rollout.messages.streams import is_chunks, join_stream


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
    if type(value) is list and value and (is_stream or is_chunks(value)):
        taken = join_stream(value, arguments)
    taken = taken or reader.take(value)
    if taken is None:
        return None
    messages, rest = taken
    if rest is None and is_message(value):
        # A message as the result is a response as well: what is no part of it is the response's.
        rest = {key: field for message in messages for key, field in message.more.items() if key != "finish_reason"}
        messages = [as_answer(Message(role, parts), more["finish_reason"]) for role, parts, more in messages]
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
