"""Translates stored spans to rows of MLflow's table of spans: pure functions.

They are the rows that MLflow's `log_spans` writes. Most spans of a rollout carry keys that MLflow has nothing to
translate in; these are written without its dozen translators, which take five times as long as everything else.
"""

from __future__ import annotations

import json
import math
import re
from base64 import b64encode
from collections.abc import Mapping
from functools import lru_cache
from typing import Any, Final, NamedTuple

from opentelemetry.sdk.trace import ReadableSpan

from otel_rollout import semconv
from otel_rollout_mlflow.layouts import COSTS, Layout
from otel_rollout_mlflow.mlflow_functions import MlflowFunctions
from otel_rollout_mlflow.payloads import INPUTS, OUTPUTS
from otel_rollout_mlflow.translate import (
    SPAN_TYPE,
    TOOLS,
    TRACE_ID,
    TRACE_NAME,
    UNKNOWN_TYPE,
    USAGE,
    USER_ID,
    column_text,
)

__all__ = ["SpanRow", "parsed_text", "span_row"]

COST: Final = "mlflow.llm.cost"
MODEL: Final = "mlflow.llm.model"
PROVIDER: Final = "mlflow.llm.provider"
MAX_MODEL_CHARACTERS: Final = 500

_USAGE_KEYS: Final = {
    semconv.USAGE_INPUT_TOKENS: "input_tokens",
    semconv.USAGE_OUTPUT_TOKENS: "output_tokens",
}
_TYPE_KEYS: Final = frozenset({semconv.SPAN_KIND, semconv.OPERATION_NAME})
_NEUTRAL: Final = frozenset(
    {
        INPUTS,
        OUTPUTS,
        SPAN_TYPE,
        TRACE_ID,
        TRACE_NAME,
        TOOLS,
        USAGE,
        USER_ID,
        semconv.SESSION_ID,
        f"span.{semconv.SESSION_ID}",
        f"span.{semconv.CONVERSATION_ID}",
        semconv.METADATA,
        semconv.ERROR_TYPE,
        semconv.FINISH_REASONS,
        semconv.TOOL_NAME,
        semconv.TOOL_CALL_ID,
        semconv.TOOL_TYPE,
        semconv.AGENT_NAME,
        *_TYPE_KEYS,
        *_USAGE_KEYS,
    }
)
"""Keys whose values MLflow takes as they are, besides keys that start with `rollout.`."""
_COUNTED: Final = frozenset({semconv.USAGE_CACHED_TOKENS, semconv.USAGE_CACHE_WRITE_TOKENS})
"""Keys that are in the span's token usage, if it has one already."""
_OWN_PREFIX: Final = "rollout."

_MAYBE_DOUBLE_ENCODED: Final = re.compile(r'\s*"\s*["\[{\\]')
_GEMINI_CLI: Final = '"gemini-cli"'
"""The agent's name by which MLflow recognises the Gemini CLI, whose messages it draws in another way."""
_MAYBE_MODEL: Final = ('"model"', "\\u00")
"""MLflow takes the model's name from inputs and outputs that are objects with `model`."""


class SpanRow(NamedTuple):
    """One row of `spans`, and what its trace's row needs of it.

    Args:
        columns: The values of `Layout.span_columns`; the experiment is None.
        attributes: The attributes as they are stored.
        usage: The span's token usage.
        cost: The span's cost.
        metrics: Rows (key, value) of `span_metrics`.
    """

    columns: tuple[Any, ...]
    attributes: Mapping[str, str]
    usage: dict[str, Any] | None
    cost: dict[str, Any] | None
    metrics: tuple[tuple[str, float], ...]

    @property
    def span_id(self) -> str:
        """The span's id in 16 hexadecimal digits."""
        return str(self.columns[1])

    @property
    def parent_id(self) -> str | None:
        """The id of the parent."""
        found: str | None = self.columns[3]
        return found


def span_row(
    span: ReadableSpan, trace_id: str, layout: Layout, functions: MlflowFunctions, *, unwraps_texts: bool
) -> SpanRow:
    """Return the row of a span.

    Args:
        span: A span from `stored_spans`.
        trace_id: MLflow's id of its trace.
        layout: The database's layout.
        functions: MLflow's functions.
        unwraps_texts: MLflow parses a text that looks like JSON, as versions before 3.18 do.
    """
    attributes = _neutral_attributes(span, unwraps_texts)
    if attributes is None:
        content = functions.translated_span(span)
        attributes = content.get("attributes") or {}
    else:
        content = _content(span, trace_id, attributes, layout)
    context, parent = span.get_span_context(), span.parent
    row: tuple[Any, ...] = (
        trace_id,
        f"{context.span_id:016x}" if context else "",
        None,
        None if parent is None else f"{parent.span_id:016x}",
        span.name,
        _type_of(str((span.attributes or {}).get(SPAN_TYPE, "null"))),
        span.status.status_code.name,
        span.start_time,
        span.end_time,
        # MLflow 3.17 keeps text as it is, so that a search finds it; earlier ones escape it.
        json.dumps(content, ensure_ascii=not layout.has_columns, default=str),
    )
    cost = _parsed_dict(attributes.get(COST))
    model, provider = parsed_text(attributes.get(MODEL)), parsed_text(attributes.get(PROVIDER))
    metrics: tuple[tuple[str, float], ...] = ()
    if layout.has_columns:
        row += (*(_finite((cost or {}).get(key)) for key in COSTS), _bounded(model), _bounded(provider))
    else:
        dimensions = {key: text for key, text in ((MODEL, model), (PROVIDER, provider)) if text}
        row += (json.dumps(dimensions or None),)
        metrics = tuple((key, float(value)) for key, value in (cost or {}).items())
    return SpanRow(row, attributes, _parsed_dict(attributes.get(USAGE)), cost, metrics)


def parsed_text(value: Any) -> Any:
    """Return the text in a JSON string; any other value as it is."""
    try:
        parsed = json.loads(value)
    except (ValueError, TypeError):
        return value
    return parsed if isinstance(parsed, str) else value


def _neutral_attributes(span: ReadableSpan, unwraps_texts: bool) -> dict[str, str] | None:
    """Return the attributes as MLflow stores them; None if its translators have to look at them."""
    given: Mapping[str, Any] = span.attributes or {}
    for key in given:
        if key not in _NEUTRAL and not key.startswith(_OWN_PREFIX) and not (key in _COUNTED and USAGE in given):
            return None
    if any(event.name != "exception" for event in span.events):
        return None
    if given.get(semconv.AGENT_NAME) == _GEMINI_CLI:
        return None
    if given.get(SPAN_TYPE) == f'"{UNKNOWN_TYPE}"' and not _TYPE_KEYS.isdisjoint(given):
        return None
    for key in (INPUTS, OUTPUTS):
        # One search for each: a pattern with both takes twenty times as long.
        if key in given and any(words in given[key] for words in _MAYBE_MODEL):
            return None
    attributes = {key: _decoded_once(value) for key, value in given.items()} if unwraps_texts else dict(given)
    if USAGE in attributes:
        return attributes
    usage = {}
    for key, name in _USAGE_KEYS.items():
        if key in attributes:
            if not attributes[key].isdecimal():
                return None
            usage[name] = int(attributes[key])
    if len(usage) == len(_USAGE_KEYS):
        usage["total_tokens"] = sum(usage.values())
    if usage:
        attributes[USAGE] = json.dumps(usage)
    return attributes


def _decoded_once(value: str) -> str:
    """Return the JSON in a JSON string of a string, an object or a list; any other value as it is."""
    if not _MAYBE_DOUBLE_ENCODED.match(value):
        return value
    inner = json.loads(value)
    try:
        return inner if isinstance(inner, str) and isinstance(json.loads(inner), (str, dict, list)) else value
    except ValueError:
        return value


def _content(span: ReadableSpan, trace_id: str, attributes: Mapping[str, str], layout: Layout) -> dict[str, Any]:
    context, parent = span.get_span_context(), span.parent
    content: dict[str, Any] = {
        "trace_id": _base64(int(trace_id.removeprefix("tr-"), 16), 16),
        "span_id": _base64(context.span_id if context else 0, 8),
        "parent_span_id": None if parent is None else _base64(parent.span_id, 8),
        "name": span.name,
    }
    if layout.has_kind:
        content["kind"] = f"SPAN_KIND_{span.kind.name}"
    rest: dict[str, Any] = {
        "start_time_unix_nano": span.start_time,
        "end_time_unix_nano": span.end_time,
        "events": [
            {"name": event.name, "time_unix_nano": event.timestamp, "attributes": dict(event.attributes or {})}
            for event in span.events
        ],
        "status": {
            "code": f"STATUS_CODE_{span.status.status_code.name}",
            "message": span.status.description or "",
        },
        "attributes": attributes,
        "links": [
            {
                "trace_id": f"tr-{link.context.trace_id:032x}",
                "span_id": f"{link.context.span_id:016x}",
                "attributes": dict(link.attributes) if link.attributes else None,
            }
            for link in span.links
        ],
    }
    return content | rest


def _base64(number: int, length: int) -> str:
    return b64encode(number.to_bytes(length, "big")).decode()


@lru_cache(maxsize=64)
def _type_of(text: str) -> Any:
    return json.loads(text)


def _parsed_dict(text: Any) -> dict[str, Any] | None:
    if not text:
        return None
    try:
        value = json.loads(text) if isinstance(text, str) else text
    except ValueError:
        return None
    return value if isinstance(value, dict) else None


def _finite(value: Any) -> float | None:
    if value is None or isinstance(value, bool):
        return None
    try:
        number = float(value)
    except (TypeError, ValueError, OverflowError):
        return None
    return number if math.isfinite(number) else None


def _bounded(value: Any) -> str | None:
    return column_text(value)[:MAX_MODEL_CHARACTERS] if isinstance(value, str) else None
