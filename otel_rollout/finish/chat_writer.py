"""Write messages on spans: on LLM ops what they were given and answered, on the root the final conversation."""

from __future__ import annotations

from typing import Any, Final, NamedTuple

from otel_rollout import semconv
from otel_rollout.finish.conversations import Conversation, Conversations, encode_messages
from otel_rollout.finish.payload_finisher import PayloadFinisher
from otel_rollout.messages import (
    PROMPT_TEXT,
    RESPONSE_TEXT,
    ChatSide,
    Message,
    preview,
    split_input,
    split_output,
    text_message,
)
from otel_rollout.text.plain_json import value_to_json


class WrittenSide(NamedTuple):
    """One side of a span.

    Args:
        payload: The JSON of `input.value` or `output.value`, not yet cut; None for none.
        attributes: The attributes of its messages.
        side: Its messages, if it has any.
        cut: The bytes that were cut from the messages.
    """

    payload: bytes | None
    attributes: dict[str, bytes]
    side: ChatSide | None
    cut: int


NOTHING: Final = WrittenSide(None, {}, None, 0)


class ChatWriter:
    """Writes messages; no method changes what it is given.

    Args:
        finisher: Has the limits; the values that are written were cleaned by it.
    """

    def __init__(self, finisher: PayloadFinisher) -> None:
        self._finisher = finisher
        self.conversations = Conversations(finisher.max_bytes)
        """The turns of running trajectories, added and taken by who writes their spans."""

    def write_arguments(self, value: Any, json_bytes: bytes | None) -> WrittenSide:
        """Return the input of an LLM op.

        Args:
            value: Its arguments by name, or what stands for them.
            json_bytes: The same as JSON.
        """
        side = None if is_note(value) else split_input(value)
        if side is None:
            return WrittenSide(json_bytes, {}, None, 0)
        attributes, cut = self._attributes(semconv.INPUT_MESSAGES, side.encoded, side.tools)
        text = preview(side.messages[-1])
        return WrittenSide(_payload(PROMPT_TEXT, text, side.rest), attributes, side, cut)

    def write_result(
        self, value: Any, json_bytes: bytes | None, arguments: Any, *, is_stream: bool = False
    ) -> WrittenSide:
        """Return the output of an LLM op.

        Args:
            value: Its result.
            json_bytes: The same as JSON.
            arguments: Its arguments, if they were captured.
            is_stream: The result is the list of what a generator yielded.
        """
        side = None if is_note(value) else split_output(value, arguments, is_stream=is_stream)
        if side is None:
            return WrittenSide(json_bytes, {}, None, 0)
        attributes, cut = self._attributes(semconv.OUTPUT_MESSAGES, side.encoded, None)
        text = preview(side.messages[-1]) if side.messages else ""
        return WrittenSide(_payload(RESPONSE_TEXT, text, side.rest), attributes, side, cut)

    def write_root(
        self, conversation: Conversation, given: tuple[Any] | None, answered: tuple[Any] | None
    ) -> tuple[WrittenSide, WrittenSide]:
        """Return both sides of a trajectory's root: the final conversation, its prompt's and its last answer's text.

        Args:
            conversation: The trajectory's conversation.
            given: The annotated input, if there is one.
            answered: The annotated output, if there is one.
        """
        payload, messages = self._root_input(conversation, given)
        output, answer = self._root_output(conversation.answer, answered, has_messages=bool(messages))
        asked: dict[str, bytes] = {}
        replied: dict[str, bytes] = {}
        cut, answer_cut = conversation.cut + conversation.tools_cut, 0
        if messages or conversation.tools:
            tools = list(conversation.tools.values()) or None
            asked, more = self._attributes(semconv.INPUT_MESSAGES, messages, tools)
            cut += more
        if answer:
            encoded = [message.to_json() for message in answer]
            replied, answer_cut = self._attributes(semconv.OUTPUT_MESSAGES, encoded, None)
        return WrittenSide(payload, asked, None, cut), WrittenSide(output, replied, None, answer_cut)

    def _root_input(self, conversation: Conversation, given: tuple[Any] | None) -> tuple[bytes | None, list[bytes]]:
        if given is None:
            prompt = None if conversation.prompt is None else value_to_json(conversation.prompt)
            return prompt, conversation.messages()
        (value,) = given
        side = None if type(value) is str else split_input(value, takes_texts=False)
        messages = None if side is None else conversation.messages_after(side.encoded)
        if side is None or messages is None:
            return value_to_json(value), conversation.messages()
        users = [message for message in side.messages if message.role == "user"] or side.messages
        return _payload(PROMPT_TEXT, preview(users[-1], self._finisher.max_bytes), side.rest), messages

    def _root_output(
        self, answer: list[Message], answered: tuple[Any] | None, *, has_messages: bool
    ) -> tuple[bytes | None, list[Message]]:
        if answered is None:
            text = preview(answer[-1], self._finisher.max_bytes) if answer else ""
            return value_to_json(text) if text else None, answer
        (value,) = answered
        side = None if type(value) is str or answer else split_output(value, takes_texts=False)
        if side is not None and side.messages:
            return _payload(
                RESPONSE_TEXT, preview(side.messages[-1], self._finisher.max_bytes), side.rest
            ), side.messages
        if not answer and type(value) is str and has_messages:
            answer = [text_message("assistant", value, "")]
        return value_to_json(value), answer

    def _attributes(
        self, key: str, encoded: list[bytes], tools: list[dict[str, Any]] | None
    ) -> tuple[dict[str, bytes], int]:
        attributes: dict[str, bytes] = {}
        lost = 0
        if encoded:
            text, lost = encode_messages(encoded, self._finisher.max_bytes)
            most = self._finisher.most_bytes(text)
            if len(text) > most:
                text, lost = encode_messages(encoded, most)
            if len(text) <= most:
                attributes[key] = text
            else:
                # There is no room for a single message.
                lost += len(text)
        if tools:
            text, cut = self._finisher.cut(value_to_json(tools))
            lost += cut
            if text:
                attributes[semconv.TOOL_DEFINITIONS] = text
        return attributes, lost


def _payload(name: str, text: str, rest: Any) -> bytes:
    """Return the rest of a payload with a message's text before it, for lists; only the text if nothing is left."""
    if not rest:
        return value_to_json(text)
    return value_to_json(rest if name in rest else {name: text, **rest})


def is_note(value: Any) -> bool:
    """Return True for a note in place of a payload, which nobody said."""
    return type(value) is str and value[:2] == "…["
