"""The first line of a trajectory's prompt and answer, without parsing large payloads."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any, Final

from opentelemetry.sdk.trace import ReadableSpan

from otel_rollout import semconv
from otel_rollout.analysis.conversation import input_messages, said_by
from otel_rollout.analysis.plain_text import shorten
from otel_rollout.values.sanitize import replace_surrogates

__all__ = ["MAX_CHARACTERS", "answer_of", "prompt_of"]

MAX_CHARACTERS: Final = 200
"""Longer lines are cut, and end in an ellipsis."""
MAX_PARSED_CHARACTERS: Final = 2**18
"""A longer payload of a form that isn't ours is not parsed."""
_MAX_RAW: Final = 10 * MAX_CHARACTERS
_TEXT: Final = re.compile(rf'"((?:[^"\\]|\\.){{0,{_MAX_RAW}}})', re.DOTALL)
_SAID: Final = r',"(?:parts":\[\{"type":"text","content|content":\[\{"type":"text","text|content)":(?=")'
_ASKED: Final = re.compile(rf'"role":"user"{_SAID}')
_ANSWERED: Final = re.compile(rf'"role":"assistant"{_SAID}')


def prompt_of(span: ReadableSpan) -> str:
    """Return the first line that the user asked on a root or a generation; empty if it has none."""
    attributes = span.attributes or {}
    value, messages = attributes.get(semconv.INPUT_VALUE), attributes.get(semconv.INPUT_MESSAGES)
    if span.parent is None and (line := _plain(attributes, semconv.INPUT_MIME_TYPE, value)):
        return line
    if line := _said(_ASKED, messages) or _said(_ASKED, value):
        return line
    if _is_small(value) and _is_small(messages):
        users = [message.text for message in input_messages(span) if message.role == "user"]
        if users:
            return _first_line(users[0])
    return _first_line(str(value)) if span.parent is None and value not in (None, "null") else ""


def answer_of(span: ReadableSpan) -> str:
    """Return the first line that a root or a generation answered; empty if it has none."""
    attributes = span.attributes or {}
    value, messages = attributes.get(semconv.OUTPUT_VALUE), attributes.get(semconv.OUTPUT_MESSAGES)
    if span.parent is None and (line := _plain(attributes, semconv.OUTPUT_MIME_TYPE, value)):
        return line
    if line := _said(_ANSWERED, messages):
        return line
    if _is_small(value) and _is_small(messages) and (line := _first_line(said_by(span))):
        return line
    return _first_line(str(value)) if span.parent is None and value not in (None, "null") else ""


def _plain(attributes: Mapping[str, Any], mime_key: str, value: Any) -> str:
    """Return the first line of a payload that is a text, or a JSON string."""
    if not isinstance(value, str) or value == "null":
        return ""
    if value[:1] == '"' and (text := _string_at(value, 0)):
        return _first_line(text)
    is_text = attributes.get(mime_key) == semconv.TEXT_MIME_TYPE or value[:1] not in ("{", "[", '"')
    return _first_line(value) if is_text else ""


def _said(pattern: re.Pattern[str], payload: Any) -> str:
    found = pattern.search(payload) if isinstance(payload, str) else None
    return _first_line(_string_at(payload, found.end())) if found else ""


def _string_at(payload: str, start: int) -> str:
    """Return the beginning of the JSON string at a position; empty if there is none."""
    found = _TEXT.match(payload, start)
    if found is None:
        return ""
    try:
        # Unlike orjson it takes half a surrogate pair, which may stand at the bound.
        return str(json.loads(f'"{found[1]}"', strict=False))
    except ValueError:
        return ""


def _is_small(payload: Any) -> bool:
    return not isinstance(payload, str) or len(payload) <= MAX_PARSED_CHARACTERS


def _first_line(text: str) -> str:
    text = replace_surrogates(text[:_MAX_RAW]).strip()
    return shorten(text.partition("\n")[0], MAX_CHARACTERS)
