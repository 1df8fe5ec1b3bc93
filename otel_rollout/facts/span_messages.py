"""The messages that a span was given and gave, in any form, and a line of each."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from otel_rollout import semconv
from otel_rollout.messages import (
    PROMPT_TEXT,
    RESPONSE_TEXT,
    Message,
    chat_messages,
    parse_json,
    split_input,
    split_output,
    text_message,
    unfolded,
    value_text,
)
from otel_rollout.messages.names import MESSAGE_ARGUMENTS
from otel_rollout.text.plain_text import printable, shorten

if TYPE_CHECKING:
    from opentelemetry.sdk.trace import ReadableSpan

SYSTEM_INSTRUCTIONS: Final = "gen_ai.system_instructions"
MAX_PREVIEWED_CHARACTERS: Final = 200_000
_LIST: Final = r"\[(?:-?\d[-+.\deE]*,\s*){7,}-?\d[-+.\deE]*\]"
NUMBERS: Final = re.compile(rf'"[^"\\]{{0,64}}":\s*{_LIST},?\s*|{_LIST}')
"""A long list of numbers, with its name if it has one."""


def messages_of(text: Any) -> list[Message]:
    """Return the messages in the JSON of `gen_ai.input.messages` or `gen_ai.output.messages`; empty if it has none."""
    found = chat_messages({semconv.INPUT_MESSAGES: text})
    return [] if found is None else _as_seen(found.input)


def asked_in(attributes: Mapping[str, Any]) -> Sequence[Message]:
    """Return the messages that a span was given, as ops and clients record them."""
    found = chat_messages({semconv.INPUT_MESSAGES: attributes.get(semconv.INPUT_MESSAGES)})
    if found is not None:
        return found.input
    value = _payload_in(attributes, semconv.INPUT_VALUE, semconv.INPUT_MIME_TYPE)
    if f'"{PROMPT_TEXT}"' in text_in(attributes, semconv.OUTPUT_VALUE):
        # With the response's token ids.
        output = parse_json(attributes.get(semconv.OUTPUT_VALUE))
        value = output if isinstance(output, dict) and PROMPT_TEXT in output else value
    side = split_input(value)
    if side is None and isinstance(value, dict):
        # A client of completions.
        texts = (value[name] for name in MESSAGE_ARGUMENTS if isinstance(value.get(name), str))
        side = split_input(next(texts, ""))
    return [] if side is None else side.messages


def answered_in(attributes: Mapping[str, Any]) -> Sequence[Message]:
    """Return the messages that a span answered."""
    found = chat_messages({semconv.OUTPUT_MESSAGES: attributes.get(semconv.OUTPUT_MESSAGES)})
    if found is not None:
        return found.output
    value = _payload_in(attributes, semconv.OUTPUT_VALUE, semconv.OUTPUT_MIME_TYPE)
    side = split_output(value) if value else None
    return [] if side is None else side.messages


def _payload_in(attributes: Mapping[str, Any], value_key: str, mime_key: str) -> Any:
    """Return the value of a payload's JSON; of a text, and of what is no JSON, the text."""
    text = text_in(attributes, value_key)
    if attributes.get(mime_key) == semconv.TEXT_MIME_TYPE or text[:1] not in ("{", "[", '"', "n"):
        return text
    value = parse_json(text)
    return text if value is None and text[0] not in "{[" and text != "null" else value


def text_in(attributes: Mapping[str, Any], key: str) -> str:
    """Return an attribute's text; empty if it has none."""
    value = attributes.get(key)
    return value if isinstance(value, str) else ""


def input_messages(span: ReadableSpan) -> list[Message]:
    """Return the messages that a span was given, as people see them; empty if it has none."""
    attributes = span.attributes or {}
    system = parse_json(attributes.get(SYSTEM_INSTRUCTIONS))
    before = [text_message("system", value_text(system))] if system else []
    return before + _as_seen(asked_in(attributes))


def output_messages(span: ReadableSpan) -> list[Message]:
    """Return the messages that a span gave, as people see them; empty if it has none."""
    return _as_seen(answered_in(span.attributes or {}))


def _as_seen(messages: Sequence[Message]) -> list[Message]:
    return [each for message in messages for each in unfolded(message, has_results=len(messages) > 1)]


def said_by(span: ReadableSpan) -> str:
    """Return the last message of the model that a span gave: words, then tool calls; empty if it has none."""
    said = [message for message in output_messages(span) if message.role == "assistant"]
    return "  ".join(filter(None, (said[-1].text, *map(str, said[-1].calls)))) if said else ""


def previews_of(span: ReadableSpan, limit: int) -> tuple[str, str]:
    """Return a span's input and output; empty if it has none."""
    return _preview(_given(span), limit), _preview(_said(span), limit)


def _given(span: ReadableSpan) -> str:
    """Return a span's input in words: of a generation, the last message of its prompt."""
    attributes = span.attributes or {}
    if attributes.get(semconv.SPAN_KIND) == "LLM" or semconv.INPUT_VALUE not in attributes:
        messages = input_messages(span)
        if messages and messages[-1].text:
            return messages[-1].text
    return _unquoted(attributes.get(semconv.INPUT_VALUE))


def _said(span: ReadableSpan) -> str:
    """Return a span's output in words: of a generation, the model's."""
    attributes = span.attributes or {}
    payload = attributes.get(semconv.OUTPUT_VALUE)
    is_chat = attributes.get(semconv.SPAN_KIND) == "LLM" or payload is None or f'"{RESPONSE_TEXT}"' in str(payload)
    return (is_chat and said_by(span)) or _unquoted(payload)


def _unquoted(payload: Any) -> str:
    """Return a payload's JSON; of a string its text."""
    parsed = parse_json(payload) if isinstance(payload, str) and payload.startswith('"') else None
    return parsed if isinstance(parsed, str) else "" if payload is None else str(payload)


def _preview(payload: str, limit: int) -> str:
    if "[" in payload:
        payload = NUMBERS.sub(_without_numbers, payload[:MAX_PREVIEWED_CHARACTERS])
    return printable(shorten(payload, limit))


def _without_numbers(found: re.Match[str]) -> str:
    return "" if found.group().startswith('"') else f"[{found.group().count(',') + 1} numbers]"
