"""Values of spans: bounded, and None if they have another type; kinds, names, errors, tool calls that went wrong."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from otel_rollout import semconv
from otel_rollout.facts.span_facts import exception_attributes
from otel_rollout.text.sanitize import INT64_MAX, fits_int64, replace_surrogates

if TYPE_CHECKING:
    from opentelemetry.sdk.trace import ReadableSpan

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
_MAX_MESSAGE_CHARACTERS: Final = 500


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
    if span.status.is_ok:
        return False
    if error_type_of(span).rpartition(".")[2] in _OF_QUERIES:
        return False
    said = (span.status.description, exception_attributes(span).get(semconv.EXCEPTION_MESSAGE))
    return any(isinstance(text, str) and _UNKNOWN_TOOL.search(text[:_MAX_MESSAGE_CHARACTERS]) for text in said)


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


def engine_of(attributes: Mapping[str, Any]) -> str | None:
    """Return the address of the engine of a generation, with its port if that is known; None if it is unknown."""
    address, port = text_of(attributes.get(semconv.SERVER_ADDRESS)), attributes.get(semconv.SERVER_PORT)
    return f"{address}:{port}" if address and type(port) is int else address


def times_of(span: ReadableSpan) -> tuple[int, int]:
    """Return a span's start and end, within 64 bits."""
    end = span.end_time or 0
    start = span.start_time or end
    return (start, end) if end <= INT64_MAX and start <= INT64_MAX else (min(start, INT64_MAX), min(end, INT64_MAX))


def integer_of(value: Any) -> int | None:
    """Return an integer of 64 bits; None if the value is none."""
    return value if type(value) is int and fits_int64(value) else None


def tag_of(value: Any) -> int | str | None:
    """Return a tag: an integer or a text; None if the value is neither."""
    return value if type(value) is int else text_of(value)
