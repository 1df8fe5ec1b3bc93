"""A span's input and output in one line each, in words if it has words."""

from __future__ import annotations

import re
from typing import Any, Final

from opentelemetry.sdk.trace import ReadableSpan

from otel_rollout import semconv
from otel_rollout.messages.conversation import RESPONSE_TEXT, input_messages, said_by
from otel_rollout.messages.messages import parse_json
from otel_rollout.text.plain_text import printable, shorten

__all__ = ["previews_of"]

MAX_PREVIEWED_CHARACTERS: Final = 200_000
_LIST: Final = r"\[(?:-?\d[-+.\deE]*,\s*){7,}-?\d[-+.\deE]*\]"
NUMBERS: Final = re.compile(rf'"[^"\\]{{0,64}}":\s*{_LIST},?\s*|{_LIST}')
"""A long list of numbers, with its name if it has one."""


def previews_of(span: ReadableSpan, limit: int) -> tuple[str, str]:
    """Return a span's input and output; empty if it has none.

    Args:
        span: The span.
        limit: The most characters of each.
    """
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
