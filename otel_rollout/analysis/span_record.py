"""One span as what a summary takes of it."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final, NamedTuple

import orjson
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.trace import StatusCode

from otel_rollout import semconv
from otel_rollout.analysis.chat_templates import split_tool_calls
from otel_rollout.analysis.content_hash import call_hash, output_hash, result_hash
from otel_rollout.export.span_facts import exception_attributes
from otel_rollout.values.sanitize import INT64_MAX, replace_surrogates

__all__ = ["MAX_NAME_CHARACTERS", "SpanRecord", "kind_of", "record_of", "short_name"]

MAX_NAME_CHARACTERS: Final = 128
_OPERATIONS: Final = {
    "chat": "LLM",
    "create_agent": "AGENT",
    "execute_tool": "TOOL",
    "generate_content": "LLM",
    "invoke_agent": "AGENT",
    "text_completion": "LLM",
}
_UNKNOWN_TOOL: Final = re.compile(
    r"(?:unknown|no such|unrecognized|invalid|undefined) (?:tool|function)\b"
    r"|no (?:tool|function)(?: is)? (?:named|called)"
    r"|(?:tool|function)(?: name)? [^\s]{0,128} ?(?:is )?(?:not found|does not exist|is unknown|not recognized)",
    re.IGNORECASE,
)
_MARK: Final = "<tool_call>"
_MAX_MESSAGE_CHARACTERS: Final = 500
MAX_PARSED_CHARACTERS: Final = 2**18


class SpanRecord(NamedTuple):
    """A span's part of a summary.

    Args:
        span_id: Its id, 16 hexadecimal digits.
        parent_id: Its parent's; empty if it is a root.
        name: Its name, shortened; of a tool call, the tool's.
        kind: Its kind; empty if it has none.
        start: Its start in microseconds since 1970.
        end: Its end.
        status: 0 unset, 1 ok, 2 error.
        content: A hash of what it said or returned.
        call: A hash of the tool and its arguments.
        input_tokens: Its input tokens.
        output_tokens: Its output tokens.
    """

    span_id: str
    parent_id: str
    name: str
    kind: str
    start: int
    end: int
    status: int
    content: str = ""
    call: str = ""
    input_tokens: int | None = None
    output_tokens: int | None = None


def record_of(span: ReadableSpan) -> SpanRecord:
    """Return a span's record."""
    attributes = span.attributes or {}
    kind = kind_of(attributes)
    name, content, call = span.name, "", ""
    input_tokens = output_tokens = None
    status = span.status.status_code.value
    if kind == "LLM":
        content = output_hash(
            _text(attributes.get(semconv.OUTPUT_MESSAGES)), _text(attributes.get(semconv.OUTPUT_VALUE))
        )
        input_tokens = count_of(attributes.get(semconv.USAGE_INPUT_TOKENS))
        output_tokens = count_of(attributes.get(semconv.USAGE_OUTPUT_TOKENS))
    elif kind == "TOOL":
        name = _text(attributes.get(semconv.TOOL_NAME)) or name
        content = result_hash(_text(attributes.get(semconv.OUTPUT_VALUE)))
        call = call_hash(name, _text(attributes.get(semconv.INPUT_VALUE)))
    context, parent = span.context, span.parent
    start = min(span.start_time or 0, INT64_MAX) // 1000
    return SpanRecord(
        f"{context.span_id if context else 0:016x}",
        f"{parent.span_id:016x}" if parent else "",
        short_name(name),
        kind,
        start,
        max(start, min(span.end_time or 0, INT64_MAX) // 1000),
        status,
        content,
        call,
        input_tokens,
        output_tokens,
    )


def kind_of(attributes: Mapping[str, Any]) -> str:
    """Return a span's kind by OpenInference's attribute, else by the GenAI conventions'; empty if it has none."""
    kind = attributes.get(semconv.SPAN_KIND)
    if kind is None:
        operation = attributes.get(semconv.OPERATION_NAME)
        return _OPERATIONS.get(operation, "") if isinstance(operation, str) else ""
    return kind if kind in semconv.SPAN_KINDS else ""


def count_of(value: Any) -> int | None:
    """Return a count; None if the value is none."""
    return value if type(value) is int and 0 <= value <= INT64_MAX else None


def short_name(name: Any) -> str:
    """Return a name, cut if it is long."""
    text = name if isinstance(name, str) else ""
    if len(text) > MAX_NAME_CHARACTERS:
        text = f"{text[: MAX_NAME_CHARACTERS - 1]}…"
    return replace_surrogates(text)


def error_type_of(span: ReadableSpan) -> str:
    """Return the class of the exception that a failed span ended with; empty if it is unknown."""
    kind = (span.attributes or {}).get(semconv.ERROR_TYPE) or exception_attributes(span).get(semconv.EXCEPTION_TYPE)
    return short_name(kind)


def is_unknown_tool(span: ReadableSpan) -> bool:
    """Return True if a tool span is the call of a tool that there is not."""
    if (span.attributes or {}).get(semconv.REQUESTED_TOOL) is not None:
        return True
    if span.status.status_code is not StatusCode.ERROR:
        return False
    said = (span.status.description, exception_attributes(span).get(semconv.EXCEPTION_MESSAGE))
    return any(isinstance(text, str) and _UNKNOWN_TOOL.search(text[:_MAX_MESSAGE_CHARACTERS]) for text in said)


def unparsed_calls_of(span: ReadableSpan) -> int:
    """Return the number of tool calls in a generation's text that are no calls in the template's form."""
    attributes = span.attributes or {}
    for key in (semconv.OUTPUT_MESSAGES, semconv.OUTPUT_VALUE):
        payload = attributes.get(key)
        if isinstance(payload, str) and payload:
            if _MARK not in payload:
                return 0
            parsed = None
            if len(payload) <= MAX_PARSED_CHARACTERS and payload[0] in '[{"':
                try:
                    parsed = orjson.loads(payload)
                except ValueError:
                    parsed = None
            texts = [payload] if parsed is None else _texts_of(parsed)
            return sum(split_tool_calls(text)[0].count(_MARK) for text in texts if _MARK in text)
    return 0


def _texts_of(value: Any) -> list[str]:
    """Return the texts of a parsed payload that are not inside a tool call or a thought."""
    texts: list[str] = []
    waiting = [value]
    while waiting:
        one = waiting.pop()
        if isinstance(one, str):
            texts.append(one)
        elif isinstance(one, list):
            waiting += one
        elif isinstance(one, dict) and one.get("type") not in ("tool_call", "reasoning", "tool_use", "thinking"):
            waiting += [item for key, item in one.items() if key not in ("tool_calls", "arguments", "prompt_text")]
    return texts


def _text(value: Any) -> str | None:
    return value if isinstance(value, str) else None
