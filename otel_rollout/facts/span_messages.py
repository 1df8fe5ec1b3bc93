"""The messages that a span was given and gave, in any form, and a line of each."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final

from opentelemetry.sdk.trace import ReadableSpan

from otel_rollout import semconv
from otel_rollout.messages import (
    PROMPT_TEXT,
    RESPONSE_TEXT,
    Message,
    chat_messages,
    messages_in,
    parse_json,
    read_template,
    text_message,
    unfolded,
    value_text,
)
from otel_rollout.messages.names import MESSAGE_ARGUMENTS, PROMPT_ARGUMENTS
from otel_rollout.text.plain_text import printable, shorten

SYSTEM_INSTRUCTIONS: Final = "gen_ai.system_instructions"
MAX_PREVIEWED_CHARACTERS: Final = 200_000
_TEXTS: Final = ("text", "content", "response")
_LIST: Final = r"\[(?:-?\d[-+.\deE]*,\s*){7,}-?\d[-+.\deE]*\]"
NUMBERS: Final = re.compile(rf'"[^"\\]{{0,64}}":\s*{_LIST},?\s*|{_LIST}')
"""A long list of numbers, with its name if it has one."""


def messages_of(text: Any) -> list[Message]:
    """Return the messages in the JSON of `gen_ai.input.messages` or `gen_ai.output.messages`; empty if it has none."""
    found = chat_messages({semconv.INPUT_MESSAGES: text})
    return [] if found is None else [each for message in found.input for each in unfolded(message)]


def input_messages(span: ReadableSpan) -> list[Message]:
    """Return the messages that a span was given; empty if it has none."""
    attributes = span.attributes or {}
    system = parse_json(attributes.get(SYSTEM_INSTRUCTIONS))
    before = [text_message("system", value_text(system))] if system else []
    if standard := messages_of(attributes.get(semconv.INPUT_MESSAGES)):
        return before + standard
    prompt = _field(attributes.get(semconv.OUTPUT_VALUE), PROMPT_TEXT)
    if prompt is None:
        prompt = _field(attributes.get(semconv.INPUT_VALUE), PROMPT_TEXT)
    if isinstance(prompt, str):
        return _from_template(prompt, "user")
    value = attributes.get(semconv.INPUT_VALUE)
    parsed = parse_json(value)
    if found := messages_in(parsed):
        return before + found
    if isinstance(parsed, Mapping):
        names = (name for name in (*PROMPT_ARGUMENTS, *MESSAGE_ARGUMENTS) if isinstance(parsed.get(name), str))
        parsed = parsed.get(next(names, "prompt"))
    text = _text(value, parsed)
    return before + _from_template(text, "user")


def output_messages(span: ReadableSpan) -> list[Message]:
    """Return the messages that a span gave; empty if it has none."""
    attributes = span.attributes or {}
    if standard := messages_of(attributes.get(semconv.OUTPUT_MESSAGES)):
        return standard
    value = attributes.get(semconv.OUTPUT_VALUE)
    parsed = parse_json(value)
    if isinstance(parsed, Mapping) and isinstance(parsed.get(RESPONSE_TEXT), str):
        return _from_template(parsed[RESPONSE_TEXT], "assistant")
    if found := messages_in(parsed):
        return found
    if isinstance(parsed, Mapping):
        parsed = next((parsed[key] for key in _TEXTS if isinstance(parsed.get(key), str)), None)
    return _from_template(_text(value, parsed), "assistant")


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


def _from_template(text: str, role: str) -> list[Message]:
    if text and (role == "assistant" or read_template(text)):
        return list(unfolded(text_message(role, text)))
    return [text_message(role, text)] if text else []


def _text(payload: Any, said: Any) -> str:
    """Return the text in a payload's JSON, else the payload if it is no JSON."""
    if isinstance(said, str):
        return said
    is_text = isinstance(payload, str) and payload != "null" and parse_json(payload) is None
    return str(payload) if is_text else ""


def _field(payload: Any, name: str) -> Any:
    if not isinstance(payload, str) or f'"{name}"' not in payload:
        return None
    value = parse_json(payload)
    return value.get(name) if isinstance(value, Mapping) else None
