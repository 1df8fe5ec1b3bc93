"""Values of spans: bounded, and None if they have another type; kinds, names, errors, tool calls that went wrong."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from typing import Any, Final

import orjson
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.trace import StatusCode

from otel_rollout import semconv
from otel_rollout.facts.span_facts import exception_attributes
from otel_rollout.text.sanitize import INT64_MAX, fits_int64, replace_surrogates

MAX_NAME_CHARACTERS: Final = 128
MAX_TEXT_CHARACTERS: Final = 1024
"""Longer strings of the root are left out of its scalar attributes."""
_PAYLOAD: Final = frozenset(
    {
        semconv.INPUT_VALUE,
        semconv.OUTPUT_VALUE,
        semconv.INPUT_MIME_TYPE,
        semconv.OUTPUT_MIME_TYPE,
        semconv.INPUT_MESSAGES,
        semconv.OUTPUT_MESSAGES,
        semconv.TOOL_DEFINITIONS,
        semconv.METADATA,
        semconv.SPAN_KIND,
        semconv.OPERATION_NAME,
    }
)
_UNKNOWN_TOOL: Final = re.compile(
    r"(?:unknown|no such|unrecognized|invalid|undefined) (?:tool|function)\b(?! (?:argument|call|input|output|param))"
    r"|no (?:tool|function)(?: is)? (?:named|called)"
    r"|(?:tool|function)(?: name)? [^\s]{0,128} ?(?:is )?(?:not found|does not exist|is unknown|not recognized)",
    re.IGNORECASE,
)
_OF_QUERIES: Final = frozenset({"DatabaseError", "OperationalError", "ProgrammingError"})
"""Exceptions of databases, whose functions are no tools."""
_MARK: Final = "<tool_call>"
_END_MARK: Final = "</tool_call>"
_TAGS: Final = re.compile(r"\s{0,16}(?:<function=[^\s<>]{1,128}>|[\w.-]{1,128}\s{0,16}<arg_key>)")
"""The forms of Qwen3-Coder and GLM."""
_MAX_MESSAGE_CHARACTERS: Final = 500
MAX_PARSED_CHARACTERS: Final = 2**18


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
    if error_type_of(span).rpartition(".")[2] in _OF_QUERIES:
        return False
    said = (span.status.description, exception_attributes(span).get(semconv.EXCEPTION_MESSAGE))
    return any(isinstance(text, str) and _UNKNOWN_TOOL.search(text[:_MAX_MESSAGE_CHARACTERS]) for text in said)


def unparsed_calls_of(attributes: Mapping[str, Any]) -> int:
    """Return the number of tool calls in a generation's text that are no calls in the template's form."""
    for key in (semconv.OUTPUT_MESSAGES, semconv.OUTPUT_VALUE):
        payload = attributes.get(key)
        if isinstance(payload, str) and payload:
            # The search for one character is ten times as fast.
            if "<" not in payload or _MARK not in payload:
                return 0
            parsed = None
            if len(payload) <= MAX_PARSED_CHARACTERS and payload[0] in '[{"':
                try:
                    parsed = orjson.loads(payload)
                except ValueError:
                    parsed = None
            texts = [payload] if parsed is None else _texts_of(parsed)
            return sum(not _is_call(piece) for text in texts for piece in text.split(_MARK)[1:])
    return 0


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


def text_of(value: Any) -> str | None:
    """Return a text that is not empty, cut if it is long; None if the value is none."""
    return replace_surrogates(value[:MAX_TEXT_CHARACTERS]) if isinstance(value, str) and value else None


def scalars_of(attributes: Mapping[str, Any], trace_id: str) -> dict[str, Any]:
    """Return the attributes that fit into an index: strings other than the trace id, booleans and numbers."""
    scalars: dict[str, Any] = {}
    for key, value in attributes.items():
        if key in _PAYLOAD:
            continue
        if isinstance(value, str):
            if len(value) <= MAX_TEXT_CHARACTERS and value != trace_id:
                scalars[key] = value
        elif isinstance(value, float):
            if math.isfinite(value):
                scalars[key] = float(value)
        elif isinstance(value, int) and fits_int64(value):
            scalars[key] = value
    return scalars


def last_text(reasons: Any) -> str | None:
    """Return the last of the finish reasons."""
    if isinstance(reasons, Sequence) and not isinstance(reasons, str):
        reasons = reasons[-1] if reasons else None
    return text_of(reasons)


def times_of(span: ReadableSpan) -> tuple[int, int]:
    """Return a span's start and end, within 64 bits."""
    end = span.end_time or 0
    start = span.start_time or end
    return (start, end) if end <= INT64_MAX and start <= INT64_MAX else (min(start, INT64_MAX), min(end, INT64_MAX))


def integer_of(value: Any) -> int | None:
    """Return an integer of 64 bits; None if the value is none."""
    return value if type(value) is int and fits_int64(value) else None
