"""The conversation of a trajectory in OpenAI's form, which trackio's page shows, and payloads as values."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import orjson
from opentelemetry.sdk.trace import ReadableSpan

from otel_rollout import semconv
from otel_rollout.facts.span_facts import kind_of
from otel_rollout.facts.span_messages import input_messages, output_messages
from otel_rollout.messages import as_openai, chat_messages, messages_in
from otel_rollout.text.sanitize import replace_surrogates

__all__ = ["conversation_of", "input_of", "output_of"]


def conversation_of(spans: Sequence[ReadableSpan], root: ReadableSpan | None) -> list[dict[str, Any]]:
    """Return the messages of a trajectory: the root's, else its last LLM op's, else the root's input and output.

    Args:
        spans: Its spans, in the order in which they ended.
        root: The root, if it is among them.
    """
    turns = [span for span in spans if kind_of(span) == "LLM"]
    candidates = [span for span in (root, turns[-1] if turns else None) if span is not None]
    for span in candidates:
        found = chat_messages(span.attributes)
        if found is not None:
            return as_openai([*found.input, *found.output])
    # Messages are switched off, or the op has none.
    asked, answered = (input_messages(turns[-1]), output_messages(turns[-1])) if turns else ([], [])
    return [
        *(as_openai(asked) or _shown(root, "user", semconv.INPUT_VALUE)),
        *(as_openai(answered) or _shown(root, "assistant", semconv.OUTPUT_VALUE)),
    ]


def input_of(span: ReadableSpan, *, with_messages: bool = True) -> Any:
    """Return a span's input: its messages with the other arguments."""
    found = chat_messages(span.attributes) if with_messages else None
    messages = [] if found is None else as_openai(found.input)
    return _with_messages(_payload(span, semconv.INPUT_VALUE, semconv.INPUT_MIME_TYPE), messages)


def output_of(span: ReadableSpan, *, with_messages: bool = True) -> Any:
    """Return a span's output: the model's answer with the rest of the result."""
    found = chat_messages(span.attributes) if with_messages else None
    messages = [] if found is None else as_openai(found.output)
    return _with_messages(_payload(span, semconv.OUTPUT_VALUE, semconv.OUTPUT_MIME_TYPE), messages)


def _parsed(text: str) -> Any:
    """Return the value of a JSON text; the text itself if it isn't JSON."""
    try:
        return orjson.loads(text)
    except ValueError:
        return text


def _payload(span: ReadableSpan, key: str, mime_key: str) -> Any:
    attributes = span.attributes or {}
    value = attributes.get(key)
    if value is None:
        return None
    text = replace_surrogates(value if isinstance(value, str) else str(value))
    mime = attributes.get(mime_key)
    # Without a type, only an object or a list counts as JSON: a text that is a JSON number by chance is a text.
    is_json = mime == semconv.JSON_MIME_TYPE or (mime is None and text[:1] in ("{", "["))
    return _parsed(text) if is_json else text


def _with_messages(value: Any, messages: list[dict[str, Any]]) -> Any:
    if not messages:
        return value
    if value is None:
        return {"messages": messages}
    return {"messages": messages, **value} if isinstance(value, dict) else {"messages": messages, "value": value}


def _shown(root: ReadableSpan | None, role: str, key: str) -> list[dict[str, Any]]:
    """Return one message with a root's input or output, whatever its form."""
    if root is None:
        return []
    value = input_of(root) if key == semconv.INPUT_VALUE else output_of(root)
    if value in (None, "", [], {}):
        return []
    return as_openai(messages_in(value)) or [
        {"role": role, "content": value if isinstance(value, str) else _json(value)}
    ]


def _json(value: Any) -> str:
    return orjson.dumps(value).decode()
