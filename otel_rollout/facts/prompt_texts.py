"""The texts of prompts as lengths and hashes: a prompt continues the one before whose text it begins with."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, NamedTuple
from zlib import crc32

from otel_rollout import semconv
from otel_rollout.facts.span_messages import SYSTEM_INSTRUCTIONS

PROMPT_START: Final = '"prompt_ids_start":'
"""In a turn's input: the number of the prompt's token ids that earlier turns have recorded."""
MAX_PAYLOAD: Final = 256 * 1024
_MAX_KNOWN: Final = 128
"""A prompt is compared with so many earlier ones."""
_MAX_CONTINUED: Final = 4
_MAX_BEFORE: Final = 2
_TOOL_FIRST: Final = ('[{"role":"tool"', '{"messages":[{"role":"tool"')
_USER_FIRST: Final = b'[{"role":"user","parts":[{"type":"text","content":"'
_END_OF_TEXT: Final = b'"}]}'
_NEXT_MESSAGE: Final = b'},{"role":'
_MIN_TEXT: Final = 64
"""Another task may begin with a shorter text."""
_HEAD: Final = 48
_MAX_ROLE: Final = 256
_LISTS_AFTER: Final = ('"tools":', '"functions":')
NO_TEXT: Final = (0, 0)
_IDS: Final = '_ids":'
_TEXT: Final = '_text":'


class PromptText(NamedTuple):
    """The text of a generation's prompt, and those before that it begins with.

    Args:
        own: The length and a hash of its text, of JSON until its last message's end; zeros if it has no text.
        before: The same of the longest earlier prompts that its text begins with.
        is_clear: False if only its messages show what it continues.
    """

    own: tuple[int, int]
    before: tuple[tuple[int, int], ...]
    is_clear: bool


class OpenPrompts:
    """The last prompts of one trajectory that a later one may continue, by the lengths and hashes of their texts."""

    def __init__(self) -> None:
        self._known: dict[tuple[int, int], None] = {}

    def copy(self) -> OpenPrompts:
        """Return a copy, to which prompts can be added without changing this one."""
        other = OpenPrompts()
        other._known = self._known.copy()
        return other

    def add(self, text: bytes, is_clear: bool) -> PromptText:
        """Add a prompt.

        Args:
            text: Its text, of JSON until its last message's end; empty if it has no text of its own.
            is_clear: False if only its messages show what it continues.
        """
        if not text:
            return PromptText(NO_TEXT, (), is_clear)
        data, hashed, at, before = memoryview(text), 0, 0, list[tuple[int, int]]()
        for length, expected in sorted(self._known):
            if length >= len(data):
                break
            hashed, at = crc32(data[at:length], hashed), length
            if expected == hashed and (text[length - 1 : length] != b"}" or text[length : length + 1] == b","):
                before.append((length, expected))
        # A sub-agent may continue a prompt for some turns before its caller does.
        for known in before[:-_MAX_CONTINUED]:
            del self._known[known]
        own = len(data), crc32(data[at:], hashed)
        self._known[own] = None
        if len(self._known) > _MAX_KNOWN:
            del self._known[next(iter(self._known))]
        return PromptText(own, tuple(before[-_MAX_BEFORE:]), is_clear)


def text_of_prompt(attributes: Mapping[str, Any]) -> tuple[bytes, bool]:
    """Return a prompt's text, of JSON until its last message's end, and whether it shows what the prompt continues.

    A prompt without a text, or with the new messages alone, continues the one before it.
    """
    messages, value = attributes.get(semconv.INPUT_MESSAGES), attributes.get(semconv.INPUT_VALUE)
    text = messages if type(messages) is str and messages else value
    if attributes.get(semconv.PREFIX_BROKEN) is not True and (
        (type(text) is str and text[:_HEAD].replace(" ", "").startswith(_TOOL_FIRST))
        or (type(value) is str and PROMPT_START in value)
    ):
        return b"", True
    if not is_chat(attributes, semconv.INPUT_MESSAGES, semconv.INPUT_VALUE, semconv.OUTPUT_VALUE):
        return b"", True
    if type(text) is not str:
        return b"", False
    encoded = text.encode("utf-8", "replace")
    if text.startswith("[") and text.endswith("]") and '"role"' in text[:_MAX_ROLE]:
        found = text_of_messages(encoded[:-1])
        # GenAI's spans may have the system prompt apart.
        system = attributes.get(SYSTEM_INSTRUCTIONS)
        return (system.encode("utf-8", "replace") + found if type(system) is str else found), True
    if text.startswith("{") and '"messages":' in text and (end := _end_of_messages(text)):
        return text[:end].encode("utf-8", "replace"), True
    is_text = semconv.INPUT_MESSAGES not in attributes and text[:1] not in ("[", "{", '"') and _TEXT not in text
    is_clear = is_text and _TEXT not in str(attributes.get(semconv.OUTPUT_VALUE))
    return (encoded, True) if is_clear else (b"", False)


def text_of_messages(text: bytes) -> bytes:
    """Return the text of a prompt's messages: without the end of a single message, which may go on inside.

    Args:
        text: Their JSON without the closing bracket.
    """
    is_one = text.startswith(_USER_FIRST) and text.endswith(_END_OF_TEXT) and _NEXT_MESSAGE not in text
    return text[: -len(_END_OF_TEXT)] if is_one and len(text) > len(_USER_FIRST) + _MIN_TEXT else text


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
    return has_text or (bool(values) and len(values[0]) <= MAX_PAYLOAD and _IDS not in values[0])
