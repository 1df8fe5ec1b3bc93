"""Payloads as OpenAI's requests and answers, the shape in which MLflow and Weave draw conversations."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any, Final

import orjson

from otel_rollout.finish.chat_payload import PREVIEW_CHARACTERS
from otel_rollout.finish.token_text import PROMPT_TEXT, RESPONSE_TEXT
from otel_rollout.messages.chat_messages import ChatMessage, as_openai, text_of
from otel_rollout.text.plain_text import cut_text

__all__ = ["answer_json", "request_json"]

_FINISH_REASON: Final = "finish_reason"
_PREVIEWS: Final = (f'{{"{PROMPT_TEXT}":', f'{{"{RESPONSE_TEXT}":')
_DECODER: Final = json.JSONDecoder()


def request_json(messages: Sequence[ChatMessage], rest: str | None) -> str:
    """Return `messages` followed by the input's other fields, as a JSON object.

    Args:
        messages: The messages.
        rest: The input as JSON; None if there is none.
    """
    return _joined({"messages": as_openai(messages)}, messages, rest)


def answer_json(messages: Sequence[ChatMessage], rest: str | None) -> str:
    """Return `choices` with the finish reason, followed by the output's other fields, as a JSON object.

    Args:
        messages: The model's answers.
        rest: The output as JSON; None if there is none.
    """
    choices = [
        {"index": index, "message": record, _FINISH_REASON: _reason(message)}
        for index, message in enumerate(messages)
        for record in as_openai([message])
    ]
    fields: dict[str, Any] = {"choices": choices}
    reason = _reason(messages[-1])
    if reason:
        # Pages don't draw the one inside a choice.
        fields[_FINISH_REASON] = reason
    return _joined(fields, messages, rest)


def _reason(message: ChatMessage) -> str | None:
    """Return the finish reason in OpenAI's words."""
    return "tool_calls" if message.finish_reason == "tool_call" else message.finish_reason


def _joined(fields: dict[str, Any], messages: Sequence[ChatMessage], rest: str | None) -> str:
    if rest is None or rest in ("{}", "null"):
        return _dumps(fields)
    if not rest.startswith("{"):
        value = orjson.loads(rest)
        texts = [text_of(message) for message in messages]
        if value not in texts and value not in [cut_text(text, PREVIEW_CHARACTERS) for text in texts]:
            fields["value"] = value
        return _dumps(fields)
    rest = _without_preview(rest)
    if rest == "{}":
        return _dumps(fields)
    if any(f'"{key}"' in rest for key in fields):
        found = orjson.loads(rest)
        return _dumps({**fields, **{key: value for key, value in found.items() if key not in fields}})
    # Spliced: token ids may be long.
    return f"{_dumps(fields)[:-1]},{rest[1:]}"


def _without_preview(rest: str) -> str:
    """Return a payload without the text before it that is there for lists of backends without messages."""
    for start in _PREVIEWS:
        if rest.startswith(start):
            _, end = _DECODER.raw_decode(rest, len(start))
            return "{" + rest[end:].removeprefix(",")
    return rest


def _dumps(value: Any) -> str:
    return orjson.dumps(value).decode()
