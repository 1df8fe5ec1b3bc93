"""Translates a span to the span that MLflow stores: pure functions.

Inputs, outputs, type, session and trace tags get MLflow's attribute names
(https://mlflow.org/docs/latest/genai/tracing/opentelemetry/). Over OTLP a value is a plain attribute; in the database
every value is a JSON text.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timezone
from typing import Any, Final

import orjson
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import Event, ReadableSpan
from opentelemetry.trace import Link, Status, StatusCode

from otel_rollout import semconv
from otel_rollout.export.plain_values import plain_value
from otel_rollout.facts.span_facts import is_own, rollout_label, trace_id_of
from otel_rollout.messages import as_openai_tools, chat_messages
from otel_rollout.text.sanitize import fits_int64, replace_surrogates
from otel_rollout_mlflow.json_text import ExactText, JsonText
from otel_rollout_mlflow.payloads import INPUTS, OUTPUTS, payload_of

SPAN_TYPE: Final = "mlflow.spanType"
TRACE_ID: Final = "mlflow.traceRequestId"
TRACE_NAME: Final = "mlflow.traceTag.mlflow.traceName"
USER_ID: Final = "user.id"
USAGE: Final = "mlflow.chat.tokenUsage"
TOOLS: Final = "mlflow.chat.tools"
UNKNOWN_TYPE: Final = "UNKNOWN"
TRACE_NAME_TAG: Final = "mlflow.traceName"
SESSION: Final = "mlflow.trace.session"

MAX_SESSION_CHARACTERS: Final = 250
"""A longer session id makes the server refuse the whole request."""
MAX_TAG_CHARACTERS: Final = 4096
MAX_TRACE_NAME_CHARACTERS: Final = 250
MAX_TYPE_CHARACTERS: Final = 500

_TYPES_OF_OPERATIONS: Final = {
    "chat": "CHAT_MODEL",
    "create_agent": "AGENT",
    "embeddings": "EMBEDDING",
    "execute_tool": "TOOL",
    "generate_content": "CHAT_MODEL",
    "invoke_agent": "AGENT",
    "text_completion": "LLM",
}
_TAG_NAMES: Final = {key: key.removeprefix("rollout.") for key in (*semconv.TAGS, semconv.STATUS)}
_MOVED: Final = frozenset(
    {
        semconv.INPUT_VALUE,
        semconv.INPUT_MIME_TYPE,
        semconv.OUTPUT_VALUE,
        semconv.OUTPUT_MIME_TYPE,
        # The server takes the session from the first span with one of these, root or not.
        semconv.SESSION_ID,
        semconv.CONVERSATION_ID,
        TRACE_ID,
    }
)
_MESSAGES: Final = frozenset({semconv.INPUT_MESSAGES, semconv.OUTPUT_MESSAGES, semconv.TOOL_DEFINITIONS})
"""Attributes that the inputs, the outputs and the tools hold in MLflow's form."""
_KNOWN: Final = frozenset(row.key for row in semconv.ATTRIBUTES)
_OF_CONVENTIONS: Final = ("gen_ai.", "llm.", "mlflow.", "openinference.")
_TOOL_CALL: Final = {
    semconv.TOOL_CALL_ARGUMENTS: semconv.INPUT_VALUE,
    semconv.TOOL_CALL_RESULT: semconv.OUTPUT_VALUE,
}
"""Attributes that repeat another one, if that is there."""
COUNTS: Final = {
    "input_tokens": semconv.USAGE_INPUT_TOKENS,
    "output_tokens": semconv.USAGE_OUTPUT_TOKENS,
    "cache_read_input_tokens": semconv.USAGE_CACHED_TOKENS,
    "cache_creation_input_tokens": semconv.USAGE_CACHE_WRITE_TOKENS,
}
_WRAPPED_JSON: Final = re.compile(r'"\s*(\{|\[|\\")')


def mlflow_trace_id(span: ReadableSpan) -> str:
    """Return MLflow's id of the span's trace."""
    return f"tr-{trace_id_of(span):032x}"


def trace_tags(span: ReadableSpan) -> dict[str, str]:
    """Return a span's trace tags, with verl's names and texts; only a root's have the status."""
    attributes = span.attributes or {}
    tags = {}
    for key, name in _TAG_NAMES.items():
        value = attributes.get(key)
        if value is not None and (key != semconv.STATUS or span.parent is None):
            tags[name] = column_text(str(value))[:MAX_TAG_CHARACTERS]
    return tags


def session_of(span: ReadableSpan) -> str | None:
    """Return a root's session, cut to the length that MLflow accepts; None for other spans."""
    attributes = span.attributes or {}
    if span.parent is not None:
        return None
    session = attributes.get(semconv.SESSION_ID)
    if session is None and not is_own(span):
        session = attributes.get(semconv.CONVERSATION_ID)
    if session is None or session == "":
        return None
    text = column_text(str(session))
    if len(text) <= MAX_SESSION_CHARACTERS:
        return text
    # The hash keeps two long ids apart that differ at their ends.
    digest = hashlib.sha256(text.encode()).hexdigest()[:16]
    return f"{text[: MAX_SESSION_CHARACTERS - 17]}-{digest}"


def otlp_spans(spans: Sequence[ReadableSpan], *, unwraps_texts: bool = True) -> list[ReadableSpan]:
    """Return the spans of one experiment for MLflow's OTLP endpoint.

    Args:
        spans: The spans.
        unwraps_texts: The endpoint parses a text that looks like JSON, as versions from 3.10 do.
    """
    with_tags = _with_tags(spans, tags_of_traces(spans))
    return [_with(span, _otlp_attributes(span, unwraps_texts), resource) for span, resource in with_tags]


def stored_spans(
    spans: Sequence[ReadableSpan], *, unwraps_texts: bool, tags: Mapping[int, Mapping[str, str]] | None = None
) -> list[ReadableSpan]:
    """Return the spans of one experiment for MLflow's SQL store: each attribute as a JSON text.

    Args:
        spans: The spans.
        unwraps_texts: The store parses a text that looks like JSON, as versions before 3.18 do.
        tags: The tags to write, by trace id; if None, all of the spans' tags.
    """
    with_tags = _with_tags(spans, tags_of_traces(spans) if tags is None else tags)
    return [_with(span, _stored_attributes(span, unwraps_texts), resource) for span, resource in with_tags]


def tags_of_traces(spans: Sequence[ReadableSpan]) -> dict[int, dict[str, str]]:
    """Return the spans' trace tags by trace id."""
    tags: dict[int, dict[str, str]] = {}
    for span in spans:
        tags.setdefault(trace_id_of(span), {}).update(trace_tags(span))
    return tags


def _with_tags(
    spans: Sequence[ReadableSpan], tags: Mapping[int, Mapping[str, str]]
) -> Iterable[tuple[ReadableSpan, Resource]]:
    """Return each span with a resource that holds its trace's tags.

    MLflow makes trace tags of any span's resource attributes: a trajectory is found before its root has arrived, and
    the root's attributes don't hold the tags.
    """
    resources = {trace_id: Resource(found) for trace_id, found in tags.items()}
    return [(span, resources[trace_id_of(span)]) for span in spans]


def _with(span: ReadableSpan, attributes: Mapping[str, Any], resource: Resource) -> ReadableSpan:
    description = span.status.description
    return ReadableSpan(
        name=column_text(span.name),
        context=span.get_span_context(),
        parent=span.parent,
        resource=resource,
        attributes=attributes,
        events=[
            Event(replace_surrogates(event.name), _scalars(event.attributes), event.timestamp) for event in span.events
        ],
        links=[Link(link.context, _scalars(link.attributes)) for link in span.links],
        kind=span.kind,
        status=Status(span.status.status_code, None if description is None else replace_surrogates(description)),
        start_time=span.start_time,
        end_time=span.end_time,
        instrumentation_scope=span.instrumentation_scope,
    )


def _otlp_attributes(span: ReadableSpan, unwraps_texts: bool) -> dict[str, Any]:
    attributes = {}
    for key, value in _attributes(span).items():
        if isinstance(value, ExactText) and unwraps_texts and value.looks_like_json:
            attributes[key] = orjson.dumps(str(value)).decode()
        elif isinstance(value, JsonText) and not (unwraps_texts and value[0] in '{["'):
            # MLflow parses strings, objects and lists only: a number or a boolean would stay a text.
            attributes[key] = orjson.loads(str(value))
        else:
            attributes[key] = value
    return attributes


def _stored_attributes(span: ReadableSpan, unwraps_texts: bool) -> dict[str, str]:
    attributes = {}
    for key, value in _attributes(span).items():
        if isinstance(value, JsonText):
            text = str(value)
        else:
            # orjson refuses subclasses of str.
            text = orjson.dumps(str(value) if isinstance(value, str) else value).decode()
        if unwraps_texts and isinstance(value, (ExactText, JsonText)) and _WRAPPED_JSON.match(text):
            text = orjson.dumps(text).decode()
        attributes[key] = text
    attributes[TRACE_ID] = f'"{mlflow_trace_id(span)}"'
    return attributes


def _attributes(span: ReadableSpan) -> dict[str, Any]:
    """Return the attributes under MLflow's names: payloads as `JsonText`, the rest as plain values."""
    given = span.attributes or {}
    is_root = span.parent is None
    chat = chat_messages(span.attributes)
    moved = _MOVED if chat is None else _MOVED | _MESSAGES
    moved |= {key for key, payload in _TOOL_CALL.items() if payload in given}
    translated = {replace_surrogates(key): plain_value(value) for key, value in given.items() if key not in moved}
    if is_own(span):
        # A text that a program annotates stays a text; MLflow reads JSON in attributes of conventions.
        for key, value in translated.items():
            if type(value) is str and key not in _KNOWN and not key.startswith(_OF_CONVENTIONS):
                translated[key] = ExactText(value)
    for key in (semconv.SPAN_KIND, semconv.OPERATION_NAME):
        if isinstance(translated.get(key), list):
            # MLflow looks the type of a span up by them, and fails on a list.
            translated[key] = ExactText(orjson.dumps(translated[key]).decode())
    payloads = {key: payload_of(span, key, chat) for key in (INPUTS, OUTPUTS)}
    payloads[USAGE] = _token_usage(given)
    if chat is not None and chat.tools:
        payloads[TOOLS] = JsonText(orjson.dumps(plain_value(as_openai_tools(chat.tools))).decode())
    for key, payload in payloads.items():
        if payload is not None and key not in translated:
            translated[key] = payload
    if SPAN_TYPE not in translated:
        translated[SPAN_TYPE] = _span_type(given)
    if not is_root:
        for key in (semconv.SESSION_ID, semconv.CONVERSATION_ID):
            if key in given:
                translated[f"span.{key}"] = plain_value(given[key])
        return translated
    if TRACE_NAME not in translated:
        translated[TRACE_NAME] = ExactText(trace_name(span))
    session = session_of(span)
    if session is not None:
        translated[semconv.SESSION_ID] = ExactText(session)
    if USER_ID in given:
        translated[USER_ID] = ExactText(column_text(str(given[USER_ID]))[:MAX_TAG_CHARACTERS])
    return translated


def trace_name(root: ReadableSpan) -> str:
    """Return the name of a root's trace: the trajectory's distinctive tags, then the span's name."""
    label = rollout_label(root) if is_own(root) else ""
    name = column_text(" · ".join(part for part in (label, root.name) if part))
    return name[:MAX_TRACE_NAME_CHARACTERS] or "trace"


def _token_usage(attributes: Mapping[str, Any]) -> JsonText | None:
    """Return the tokens of a model's call with their total, without which MLflow counts a single side as none."""
    counts = {name: attributes.get(key) for name, key in COUNTS.items()}
    known = {name: count for name, count in counts.items() if type(count) is int and fits_int64(count)}
    if "input_tokens" not in known and "output_tokens" not in known:
        return None
    total = known.setdefault("input_tokens", 0) + known.setdefault("output_tokens", 0)
    return JsonText(orjson.dumps({**known, "total_tokens": total}).decode()) if fits_int64(total) else None


def _span_type(attributes: Mapping[str, Any]) -> str:
    kind = attributes.get(semconv.SPAN_KIND)
    if isinstance(kind, str) and kind:
        return column_text(kind.upper())[:MAX_TYPE_CHARACTERS]
    return _TYPES_OF_OPERATIONS.get(str(attributes.get(semconv.OPERATION_NAME)), UNKNOWN_TYPE)


def _scalars(attributes: Mapping[str, Any] | None) -> dict[str, Any]:
    """Return the attributes of an event or link, with lists as JSON text: MLflow stores only scalars there."""
    clean = {replace_surrogates(key): plain_value(value) for key, value in (attributes or {}).items()}
    return {
        key: orjson.dumps(value).decode() if isinstance(value, (list, dict)) else value
        for key, value in clean.items()
        if value is not None
    }


def column_text(text: str) -> str:
    """Return a text for a database column: PostgreSQL refuses NUL there."""
    return replace_surrogates(text).replace("\x00", "\ufffd")


# --- the trace infos that servers before 3.14 need, because they don't read them from the spans


def trace_infos(experiment_id: str, spans: Sequence[ReadableSpan]) -> list[tuple[dict[str, Any], bool]]:
    """Return the trace infos of a batch, and True for each whose root is in the batch.

    Source: StartTraceV3 in https://github.com/mlflow/mlflow/blob/master/mlflow/protos/service.proto
    """
    traces: dict[int, list[ReadableSpan]] = {}
    for span in spans:
        traces.setdefault(trace_id_of(span), []).append(span)
    return [_trace_info(experiment_id, group) for group in traces.values()]


def with_stored(info: Mapping[str, Any], stored: Mapping[str, Any]) -> dict[str, Any]:
    """Return `info` merged with the trace info that the server has stored.

    These versions delete what is left out: 3.6 fails on a missing metadata entry, 3.10 on a missing assessment.
    """
    kept = {key: stored[key] for key in ("request_preview", "response_preview", "assessments") if key in stored}
    merged = {key: {**stored.get(key, {}), **info[key]} for key in ("tags", "trace_metadata")}
    return {**kept, **info, **merged}


def _trace_info(experiment_id: str, spans: Sequence[ReadableSpan]) -> tuple[dict[str, Any], bool]:
    root = next((span for span in spans if span.parent is None), None)
    start = (root or min(spans, key=lambda span: span.start_time or 0)).start_time or 0
    tags: dict[str, str] = {}
    for span in spans:
        tags.update(trace_tags(span))
    info: dict[str, Any] = {
        "trace_id": mlflow_trace_id(spans[0]),
        "trace_location": {"type": "MLFLOW_EXPERIMENT", "mlflow_experiment": {"experiment_id": experiment_id}},
        "request_time": timestamp(start),
        "state": "IN_PROGRESS",
        "tags": tags,
        "trace_metadata": {},
    }
    if root is None:
        return info, False
    info["state"] = "ERROR" if root.status.status_code is StatusCode.ERROR else "OK"
    info["execution_duration"] = f"{max(0, (root.end_time or start) - start) / 1e9:.3f}s"
    tags[TRACE_NAME_TAG] = trace_name(root)
    session = session_of(root)
    if session is not None:
        info["trace_metadata"][SESSION] = session
    return info, True


def timestamp(nanoseconds: int) -> str:
    """Return a time as MLflow's REST API writes it, in UTC with milliseconds."""
    milliseconds = nanoseconds // 1_000_000
    moment = datetime.fromtimestamp(milliseconds / 1000, timezone.utc)
    return f"{moment:%Y-%m-%dT%H:%M:%S}.{milliseconds % 1000:03d}Z"
