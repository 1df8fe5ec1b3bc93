"""The record of one span: hashes, first lines, characters, and errors that its payload shows by itself.

A record is made once: when a span of ours is finished, of the messages that finishing has; of any other span when its
facts are collected, of its attributes.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, NamedTuple

import orjson

from otel_rollout import semconv
from otel_rollout.facts.content_hash import answer_hash, call_hash, payload_hash
from otel_rollout.facts.figures import MAX_KEYS
from otel_rollout.facts.odd_results import MAX_PARSED, is_odd_result
from otel_rollout.facts.prompt_texts import MAX_PAYLOAD, OpenPrompts, PromptText, is_chat, text_of_prompt
from otel_rollout.facts.span_messages import answered_in, asked_in, text_in
from otel_rollout.messages import Message, parse_json, read_template, unfolded
from otel_rollout.text.plain_text import shorten
from otel_rollout.text.sanitize import replace_surrogates

MAX_LINE_CHARACTERS: Final = 200
"""Longer lines are cut, and end in an ellipsis."""
MAX_KEY_CHARACTERS: Final = 64
_MAX_SEARCHED: Final = 4096
_TEMPLATES: Final = ("<|", "<s>", "<bos>", "<start_of_turn>", "[INST]", "<\uff5c")
_THOUGHTS: Final = ("<think", "<|channel|>")
"""The beginnings of texts in a chat template's form, and of answers with a thought."""
_IDS: Final = '_ids":'
_NOTHING: Final = frozenset({"", "null", '""', "[]", "{}"})
_MARK: Final = "<tool_call>"
_END_MARK: Final = "</tool_call>"
_TAGS: Final = re.compile(r"\s{0,16}(?:<function=[^\s<>]{1,128}>|[\w.-]{1,128}\s{0,16}<arg_key>)")
"""The forms of Qwen3-Coder and GLM."""


class SpanRecord(NamedTuple):
    """The facts that the payload of one span shows by itself.

    Args:
        content: A hash of its output; 0 if that isn't recorded.
        call: A hash of a tool's name and arguments; 0 if they aren't recorded.
        prompt_line: The first line of the prompt.
        answer_line: The first line of the answer.
        characters: The characters of a generation's answer.
        unparsed_calls: The tool calls in the answer's text that are no calls in the template's form.
        is_unread: True if no answer was recognised in a generation's result.
        is_odd: True if a tool's result holds nothing, or is an error in data.
        keys: The keys of the JSON object that a tool returned.
        prompt: The text of a generation's prompt.
    """

    content: int = 0
    call: int = 0
    prompt_line: str = ""
    answer_line: str = ""
    characters: int = 0
    unparsed_calls: int = 0
    is_unread: bool = False
    is_odd: bool = False
    keys: tuple[str, ...] = ()
    prompt: PromptText | None = None


def record_of_generation(
    asked: Iterable[Message], answered: Sequence[Message], output: str, prompt: PromptText, *, is_unread: bool
) -> SpanRecord:
    """Return the record of a generation.

    Args:
        asked: The messages that it was given.
        answered: Its answers, as many as were recognised.
        output: `output.value`, which counts if it has no answer; empty if it isn't recorded.
        prompt: The text of its prompt.
        is_unread: True if no answer was recognised in a result.
    """
    texts = [part["content"] for message in answered for part in message.parts if _is_text(part)]
    return SpanRecord(
        answer_hash(answered) if answered else payload_hash(output),
        prompt_line=asked_line(asked),
        answer_line=said_line(answered),
        characters=sum(map(len, texts)),
        unparsed_calls=sum(map(_unparsed_calls, texts)),
        is_unread=is_unread,
        prompt=prompt,
    )


def record_of_call(tool: str, arguments: str, output: str | None, value: Any = None, *, is_failed: bool) -> SpanRecord:
    """Return the record of a tool's call.

    Args:
        tool: The tool's name.
        arguments: `input.value`; empty if it isn't recorded.
        output: `output.value`; None without one.
        value: The value of its JSON, if that is at hand.
        is_failed: True if it ended with an exception.
    """
    if output is None or output[:1] not in ("{", "[") or len(output) > MAX_PARSED:
        value = None
    elif value is None:
        value = parse_json(output)
    keys = tuple(key[:MAX_KEY_CHARACTERS] for key in list(value)[:MAX_KEYS]) if type(value) is dict else ()
    is_odd = not is_failed and is_odd_result(output if value is None else value)
    return SpanRecord(payload_hash(output or ""), call_hash(tool, arguments), is_odd=is_odd, keys=keys)


def generation_record(attributes: Mapping[str, Any], prompts: OpenPrompts, *, is_failed: bool) -> SpanRecord:
    """Return the record of a generation that nobody made one of when it was finished.

    Args:
        attributes: Its attributes.
        prompts: The open prompts of its trajectory.
        is_failed: True if it ended with an exception.
    """
    output = text_in(attributes, semconv.OUTPUT_VALUE)
    answered = answered_in(attributes) if is_chat(attributes, semconv.OUTPUT_MESSAGES, semconv.OUTPUT_VALUE) else []
    prompt = prompts.add(*text_of_prompt(attributes))
    # Prompts take long to parse: only the first one's line is shown.
    asked = () if prompt.before else asked_in(attributes)
    is_unread = not is_failed and not answered and has_result(attributes)
    return record_of_generation(asked, answered, output, prompt, is_unread=is_unread)


def call_record(name: str, attributes: Mapping[str, Any], *, is_failed: bool) -> SpanRecord:
    """Return the record of a tool's call that nobody made one of when it was finished."""
    given, output = text_in(attributes, semconv.INPUT_VALUE), attributes.get(semconv.OUTPUT_VALUE)
    return record_of_call(name, given, output if isinstance(output, str) else None, is_failed=is_failed)


def root_lines(attributes: Mapping[str, Any]) -> tuple[str, str]:
    """Return the first lines of a trajectory's prompt and answer: its whole input and output, as they were annotated.

    Where the program annotated none, they come from the messages of generations.
    """
    lines = []
    for value_key, mime_key, messages_of, line_in in (
        (semconv.INPUT_VALUE, semconv.INPUT_MIME_TYPE, asked_in, asked_line),
        (semconv.OUTPUT_VALUE, semconv.OUTPUT_MIME_TYPE, answered_in, said_line),
    ):
        value = text_in(attributes, value_key)
        payload = {value_key: value, mime_key: attributes.get(mime_key)}
        line = line_in(messages_of(payload)) or line_in(messages_of(attributes))
        lines.append(line or (first_line(value) if value[:1] in ("{", "[") else ""))
    return lines[0], lines[1]


def has_result(attributes: Mapping[str, Any]) -> bool:
    """Return True if a generation has a result, other than token ids, that an answer may be in."""
    if semconv.OUTPUT_MESSAGES in attributes:
        return False
    value = attributes.get(semconv.OUTPUT_VALUE)
    if type(value) is not str or value in _NOTHING or len(value) > MAX_PAYLOAD:
        return False
    return _IDS not in value and not (value[0] == "[" and value[1:2].isdigit())


def asked_line(messages: Iterable[Message]) -> str:
    """Return the first line of the first user's message that has words."""
    for message in messages:
        if message.role == "user" and (text := message.text.strip()):
            if text.startswith(_TEMPLATES):
                said = read_template(text[:MAX_PAYLOAD])
                text = next((each.text for each in said if each.role == "user"), text).strip()
            return first_line(text)
    return ""


def said_line(messages: Iterable[Message]) -> str:
    """Return the first line of the first answer with words: without its thought, and the marks of a template."""
    for message in messages:
        texts = (part["content"] for part in message.parts if _is_text(part))
        if text := next(filter(None, map(str.strip, texts)), ""):
            if text.startswith(_THOUGHTS) or "<|" in text[:_MAX_SEARCHED]:
                said = unfolded(Message("assistant", [{"type": "text", "content": text[:MAX_PAYLOAD]}]))
                text = next(filter(None, (each.text.strip() for each in said)), text)
            return first_line(text)
    return ""


def first_line(text: str) -> str:
    """Return the first line of a text, which may be cut."""
    line = text[: 2 * MAX_LINE_CHARACTERS].partition("\n")[0]
    return replace_surrogates(shorten(line, MAX_LINE_CHARACTERS)) if line else ""


def _is_text(part: Mapping[str, Any]) -> bool:
    return part.get("type") == "text" and isinstance(part.get("content"), str)


def _unparsed_calls(text: str) -> int:
    """Return the number of tool calls in a text that are no calls in the template's form."""
    # The search for one character is ten times as fast.
    if "<" not in text or _MARK not in text:
        return 0
    return sum(not _is_call(piece) for piece in text.split(_MARK)[1:])


def _is_call(text: str) -> bool:
    """Return True if a text after the mark is a tool call: an object with a name, or tags, and the mark of its end."""
    end = text.find(_END_MARK)
    if end < 0:
        return False
    if _TAGS.match(text, 0, end):
        return True
    try:
        call = orjson.loads(text[:end])
    except ValueError:
        return False
    return isinstance(call, dict) and any(isinstance(call.get(key), str) for key in ("name", "tool"))
