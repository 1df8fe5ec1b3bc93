"""The prompts of a trajectory's generations, in a few dozen bytes each: which one begins with which, and the marks."""

from __future__ import annotations

import copy
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final, NamedTuple
from zlib import crc32

from opentelemetry.sdk.trace import ReadableSpan

from otel_rollout import semconv
from otel_rollout.facts.span_messages import SYSTEM_INSTRUCTIONS, output_messages

PROMPT_START: Final = '"prompt_ids_start":'
"""In a turn's input: the number of the prompt's token ids that earlier turns have recorded."""
MAX_AGENTS: Final = 16_384
_MAX_OPEN: Final = 64
"""A prompt is compared with so many earlier ones that none has continued yet."""
_MAX_ID: Final = 256
_PROMPT_BYTES: Final = 400
_TOOL_FIRST: Final = ('[{"role":"tool"', '{"messages":[{"role":"tool"')
_USER_FIRST: Final = '[{"role":"user","parts":[{"type":"text","content":"'
_END_OF_TEXT: Final = '"}]}]'
_NEXT_MESSAGE: Final = '},{"role":'
_MIN_TEXT: Final = 64
"""Another task may begin with a shorter text."""
_HEAD: Final = 48
_LISTS_AFTER: Final = ('"tools":', '"functions":')
_COMPACTION: Final = '"compaction"'
_IDS: Final = '_ids":'
_TOKEN_IDS: Final = tuple(f'"{name}_ids":' for name in ("token", "response", "output", "prompt", "input", "completion"))
_TEXT: Final = '_text":'
_MAX_PAYLOAD: Final = 256 * 1024


class Mark(NamedTuple):
    """The marks on a generation, or on an agent around some.

    Args:
        role: `policy` or `user`; empty without the mark.
        is_trained: True if it is training data, has token ids, or versions of weights: the policy has.
    """

    role: str
    is_trained: bool


NO_MARK: Final = Mark("", False)


class Prompt(NamedTuple):
    """A generation's prompt and marks.

    Args:
        text: The length and a hash of its text, of JSON until its last message's end; zeros if it has no text.
        before: The same of the earlier prompt that its text begins with; zeros without one.
        is_clear: False if only its messages show what it continues.
        is_compacted: True if it is marked as the first of a compacted conversation.
        conversation: `gen_ai.conversation.id`; empty without one.
        request: verl's id of the conversation; empty without one.
        mark: The marks on the generation.
    """

    text: tuple[int, int]
    before: tuple[int, int]
    is_clear: bool
    is_compacted: bool
    conversation: str
    request: str
    mark: Mark


NO_TEXT: Final = (0, 0)
UNKNOWN: Final = Prompt(NO_TEXT, NO_TEXT, True, False, "", "", NO_MARK)


class Prompts:
    """The prompts of one trajectory's generations, each compared with those before that none has continued."""

    def __init__(self) -> None:
        self.of_span: dict[int, Prompt] = {}
        self.agents: dict[int, Mark] = {}
        """The agents that are marked, by span id."""
        self._open: dict[tuple[int, int], int] = {}
        """The number of prompts with a text that none has continued."""

    def copy(self) -> Prompts:
        """Return a copy, to which generations can be added without changing this one."""
        other = copy.copy(self)
        for name, value in vars(self).items():
            setattr(other, name, value.copy())
        return other

    @property
    def size(self) -> int:
        """The bytes that it takes in memory, roughly."""
        return _PROMPT_BYTES * len(self.of_span)

    def add(self, span: ReadableSpan) -> Prompt:
        """Add a generation, and return its prompt."""
        attributes: Mapping[str, Any] = span.attributes or {}
        given, is_clear = _text_of(attributes)
        text = before = NO_TEXT
        if given:
            text, before = self._compare(given.encode("utf-8", "replace"))
        conversation, request = attributes.get(semconv.CONVERSATION_ID), attributes.get(semconv.REQUEST_ID)
        prompt = Prompt(
            text,
            before,
            is_clear,
            attributes.get(semconv.COMPACTED) is True,
            conversation[:_MAX_ID] if type(conversation) is str else "",
            request[:_MAX_ID] if type(request) is str else "",
            _mark_of(attributes),
        )
        if span.context is not None:
            self.of_span[span.context.span_id] = prompt
        return prompt

    def _compare(self, text: bytes) -> tuple[tuple[int, int], tuple[int, int]]:
        """Return the length and hash of a prompt's text, and of the longest open one that it begins with."""
        data, hashed, at, before = memoryview(text), 0, 0, NO_TEXT
        for length, expected in sorted(self._open):
            if length >= len(data):
                break
            hashed, at = crc32(data[at:length], hashed), length
            if expected == hashed and (text[length - 1 : length] != b"}" or text[length : length + 1] == b","):
                before = length, expected
        own = len(data), crc32(data[at:], hashed)
        if before in self._open:
            self._open[before] -= 1
            if not self._open[before]:
                del self._open[before]
        self._open[own] = self._open.get(own, 0) + 1
        if len(self._open) > _MAX_OPEN:
            del self._open[next(iter(self._open))]
        return own, before

    def add_agent(self, span_id: int, attributes: Mapping[str, Any]) -> None:
        """Keep the marks on an agent, if it has some."""
        mark = _mark_of(attributes)
        if mark != NO_MARK and len(self.agents) < MAX_AGENTS:
            self.agents[span_id] = mark

    def marks(self, span_id: int, scope: Iterable[int]) -> Iterator[Mark]:
        """Yield the marks on a generation, and on the agents around it, from the innermost."""
        if (prompt := self.of_span.get(span_id)) is not None:
            yield prompt.mark
        for agent in reversed(tuple(scope)):
            if (mark := self.agents.get(agent)) is not None:
                yield mark


def _text_of(attributes: Mapping[str, Any]) -> tuple[str, bool]:
    """Return a prompt's text, of JSON until its last message's end, and whether it shows what the prompt continues.

    A prompt without a text, or with the new messages alone, continues the one before it.
    """
    messages, value = attributes.get(semconv.INPUT_MESSAGES), attributes.get(semconv.INPUT_VALUE)
    text = messages if type(messages) is str and messages else value
    if attributes.get(semconv.PREFIX_BROKEN) is not True and (
        (type(text) is str and text[:_HEAD].replace(" ", "").startswith(_TOOL_FIRST))
        or (type(value) is str and PROMPT_START in value)
    ):
        return "", True
    if not is_chat(attributes, semconv.INPUT_MESSAGES, semconv.INPUT_VALUE, semconv.OUTPUT_VALUE):
        return "", True
    if type(text) is not str or _COMPACTION in text:
        return "", False
    is_one = text.startswith(_USER_FIRST) and text.endswith(_END_OF_TEXT) and _NEXT_MESSAGE not in text
    if is_one and len(text) > len(_USER_FIRST) + _MIN_TEXT:
        # A prompt of one text may go on inside of it.
        return text.removesuffix(_END_OF_TEXT), True
    if text.startswith("[") and text.endswith("]") and '"role"' in text[:_MAX_ID]:
        # GenAI's spans may have the system prompt apart.
        return f"{attributes.get(SYSTEM_INSTRUCTIONS, '')}{text[:-1]}", True
    if text.startswith("{") and '"messages":' in text and (end := _end_of_messages(text)):
        return text[:end], True
    is_text = semconv.INPUT_MESSAGES not in attributes and text[:1] not in ("[", "{", '"') and _TEXT not in text
    return (text, True) if is_text and _TEXT not in str(attributes.get(semconv.OUTPUT_VALUE)) else ("", False)


def _end_of_messages(text: str) -> int:
    """Return the end of the last message in a client's arguments, which may have tools after the messages."""
    end = len(text)
    for name in _LISTS_AFTER:
        at = text.rfind(name)
        end = at if 0 < at < end else end
    return text.rfind("}]", 0, end) + 1


def is_chat(attributes: Mapping[str, Any], messages: str, *payloads: str) -> bool:
    """Return True if a side has messages, or a payload that may have some: token ids take long to parse.

    Args:
        attributes: The attributes of a generation.
        messages: The key of the side's messages.
        payloads: The keys of the payloads that may have its text.
    """
    if messages in attributes:
        return True
    values = [value for key in payloads if type(value := attributes.get(key)) is str]
    has_text = any(_TEXT in value for value in values)
    return has_text or (bool(values) and len(values[0]) <= _MAX_PAYLOAD and _IDS not in values[0])


def has_result(attributes: Mapping[str, Any]) -> bool:
    """Return True if a generation has a result, other than token ids, that an answer may be in."""
    if semconv.OUTPUT_MESSAGES in attributes:
        return False
    value = attributes.get(semconv.OUTPUT_VALUE)
    if type(value) is not str or value in ("", "null", '""', "[]", "{}") or len(value) > _MAX_PAYLOAD:
        return False
    return _IDS not in value and not (value[0] == "[" and value[1:2].isdigit())


def has_answer(span: ReadableSpan) -> bool:
    """Return True if a message of the model is recognised in a generation's result."""
    if not is_chat(span.attributes or {}, semconv.OUTPUT_MESSAGES, semconv.OUTPUT_VALUE):
        return False
    return any(message.role not in ("tool", "user", "system") for message in output_messages(span))


def _mark_of(attributes: Mapping[str, Any]) -> Mark:
    role = attributes.get(semconv.ROLE)
    is_trained = attributes.get(semconv.TRAINED) is True or semconv.MAX_WEIGHTS_VERSION in attributes
    for key in () if is_trained else (semconv.OUTPUT_VALUE, semconv.INPUT_VALUE):
        value = attributes.get(key)
        if type(value) is str and _IDS in value and any(name in value for name in _TOKEN_IDS):
            is_trained = True
    return Mark(role if role in semconv.ROLES else "", is_trained)
