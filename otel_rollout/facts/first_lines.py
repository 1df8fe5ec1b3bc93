"""The first line of a prompt and of an answer, found without parsing the payload.

A finding is raw: a JSON string without its end, which begins with its quote, or a text after a space. `line_of` decodes
it, so that of all answers of a trajectory only one is decoded.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from contextlib import suppress
from typing import Any, Final

import orjson

from otel_rollout import semconv
from otel_rollout.text.plain_text import shorten
from otel_rollout.text.sanitize import replace_surrogates

MAX_LINE_CHARACTERS: Final = 200
"""Longer lines are cut, and end in an ellipsis."""
_MAX_RAW: Final = 600
_CUT_ESCAPE: Final = re.compile(r"\\(?:u[0-9a-fA-F]{0,3})?$")
_ASKED: Final = re.compile(
    r'"role":\s?"user",\s?"(?:parts":\s?\[\{"type":\s?"text",\s?"content|content":\s?\[\{"type":\s?"text",\s?"text'
    r'|content)":\s?(?=")'
)
_ANSWERED: Final = '"type":"text","content":"'
_PROMPT_KEYS: Final = re.compile(
    r'"(?:prompt|question|query|problem|instruction|task|user_prompt|input|prompt_text|text|content|message)":\s?(?=")'
)
_ANSWER_KEYS: Final = re.compile(
    r'"(?:response_text|output_text|answer|response|completion|content|text|output|result)":\s?(?=")'
)


def find_prompt(attributes: Mapping[str, Any], *, is_root: bool) -> str:
    """Return the beginning of what the user asked, raw; empty if the span has none.

    Args:
        attributes: The span's.
        is_root: The span is a trajectory's root, whose whole input is the prompt.
    """
    value, messages = attributes.get(semconv.INPUT_VALUE), attributes.get(semconv.INPUT_MESSAGES)
    text = _text(value)
    if is_root and (plain := _plain(text, attributes.get(semconv.INPUT_MIME_TYPE))):
        return plain
    for payload in (_text(messages), text):
        if payload and (found := _ASKED.search(payload)):
            return payload[found.end() : found.end() + _MAX_RAW]
    return _by_key(_PROMPT_KEYS, text, attributes.get(semconv.INPUT_MIME_TYPE), is_root=is_root)


def find_answer(attributes: Mapping[str, Any], *, is_root: bool) -> str:
    """Return the beginning of what was answered, raw; empty if the span has no text: tool calls are no answer.

    Args:
        attributes: The span's.
        is_root: The span is a trajectory's root, whose whole output is the answer.
    """
    text = _text(attributes.get(semconv.OUTPUT_VALUE))
    if is_root and (plain := _plain(text, attributes.get(semconv.OUTPUT_MIME_TYPE))):
        return plain
    messages = _text(attributes.get(semconv.OUTPUT_MESSAGES))
    if messages:
        at = messages.find(_ANSWERED) + len(_ANSWERED) - 1
        if at >= len(_ANSWERED) - 1:
            return messages[at : at + _MAX_RAW]
        if not is_root:
            return ""
    return _by_key(_ANSWER_KEYS, text, attributes.get(semconv.OUTPUT_MIME_TYPE), is_root=is_root)


def line_of(raw: str) -> str:
    """Return the first line of a finding."""
    if not raw:
        return ""
    text = raw[:_MAX_RAW]
    if text[0] == '"':
        text = _decoded(text)
    return replace_surrogates(shorten(text.strip().partition("\n")[0], MAX_LINE_CHARACTERS))


def _decoded(raw: str) -> str:
    """Return the text of a JSON string that may be cut; empty if it is none."""
    end = raw.find('"', 1)
    while end > 0 and (end - len(raw[:end].rstrip("\\"))) % 2:
        # The quote is escaped.
        end = raw.find('"', end + 1)
    if end < 0:
        body = raw[1:]
        slashes = len(body) - len(body.rstrip("\\"))
        if slashes % 2 or not slashes:
            body = _CUT_ESCAPE.sub("", body)
    else:
        body = raw[1:end]
    text = f'"{body}"'
    try:
        return str(orjson.loads(text))
    except ValueError:
        with suppress(ValueError):
            # It takes control characters and half a surrogate pair, which may stand at the bound.
            return str(json.loads(text, strict=False))
        return ""


def _plain(text: str, mime_type: Any) -> str:
    """Return a payload that is a text or a JSON string, raw."""
    if not text or text == "null":
        return ""
    if mime_type == semconv.TEXT_MIME_TYPE or text[0] not in '{["':
        return " " + text[:_MAX_RAW]
    return text[:_MAX_RAW] if text[0] == '"' else ""


def _by_key(keys: re.Pattern[str], text: str, mime_type: Any, *, is_root: bool) -> str:
    if plain := _plain(text, mime_type):
        return plain
    if found := keys.search(text):
        return text[found.end() : found.end() + _MAX_RAW]
    return " " + text[:_MAX_RAW] if is_root and text and text != "null" else ""


def _text(value: Any) -> str:
    return value if isinstance(value, str) else ""
