"""Translates a trajectory's spans to one trackio trace, a conversation in OpenAI's form with its ops: pure functions.

Source of the record: `trackio.Trace` of trackio 0.43.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from datetime import datetime, timezone
from typing import Any, Final, NamedTuple

import orjson
from opentelemetry.sdk.trace import Event, ReadableSpan
from opentelemetry.trace import StatusCode

from otel_rollout import semconv
from otel_rollout.export.plain_values import plain_text, plain_value
from otel_rollout.facts.reward_parts import REWARD, reward_parts_of
from otel_rollout.facts.span_facts import exception_attributes, kind_of, reward_of, span_id_of, trace_id_of
from otel_rollout.facts.span_messages import input_messages, output_messages
from otel_rollout.messages import as_openai, chat_messages, messages_in
from otel_rollout.text.sanitize import fits_int64, replace_surrogates

UNFINISHED: Final = "unfinished"
"""The name and the status of spans whose root has not come."""
DEFAULT_PROJECT: Final = "otel-rollout"

_LAST_TIME: Final = 253_402_300_799 * 10**9
"""The last second of the year 9999."""
_KINDS: Final = {"LLM": "generation", "TOOL": "tool"}
_STATUSES: Final = {"completed": "success"}
_FIRST: Final = (
    *semconv.TAGS,
    semconv.TURNS,
    semconv.INPUT_TOKENS,
    semconv.OUTPUT_TOKENS,
)
"""The root's attributes that the page shows first."""
_ELSEWHERE: Final = frozenset(
    {
        *_FIRST,
        semconv.REWARD,
        semconv.REWARD_PARTS,
        semconv.STATUS,
        semconv.SESSION_ID,
        semconv.CONVERSATION_ID,
        semconv.METADATA,
        semconv.SPAN_KIND,
        semconv.OPERATION_NAME,
        semconv.INPUT_VALUE,
        semconv.INPUT_MIME_TYPE,
        semconv.OUTPUT_VALUE,
        semconv.OUTPUT_MIME_TYPE,
        semconv.USAGE_INPUT_TOKENS,
        semconv.USAGE_OUTPUT_TOKENS,
        semconv.INPUT_MESSAGES,
        semconv.OUTPUT_MESSAGES,
    }
)
"""Attributes that have a field of their own, or that the metadata has already."""


class Conversation(NamedTuple):
    """A trace, and its place in trackio; `log_id` makes a second write of it one without effect."""

    project: str
    run: str
    run_id: str
    key: str
    step: int
    timestamp: str
    log_id: str
    trace: dict[str, Any]


def is_root(span: ReadableSpan) -> bool:
    """Return True if a span is the last one of its trace in this process."""
    return span.parent is None or span.parent.is_remote


def run_id_of(project: str, run: str) -> str:
    """Return the id of an experiment's run, the same in all processes."""
    return hashlib.sha256(f"{project}/{run}".encode()).hexdigest()[:32]


def translate(spans: Sequence[ReadableSpan], *, project: str | None = None) -> Conversation:
    """Return the conversation of a trajectory, or of a part of it.

    Args:
        spans: Spans of one trace, in the order in which they ended: with the trajectory's root, or some without it,
            because it has not come or is stored already.
        project: The project; None for the spans' own.
    """
    last = spans[-1]
    root = last if is_root(last) else None
    is_whole = root is not None and root.parent is None
    trace_id = f"{trace_id_of(last):032x}"
    tags = _tags(spans)
    name = project or _project(last)
    run = plain_text(tags.get(semconv.EXPERIMENT_NAME) or "default")
    step = tags.get(semconv.STEP)
    start = min(span.start_time or 0 for span in spans)
    return Conversation(
        project=name,
        run=run,
        run_id=run_id_of(name, run),
        key=_key(root),
        step=step if type(step) is int and fits_int64(step) else 0,
        timestamp=_time(start),
        # A part has an id of its own: the root's row may be stored already, or be yet to come.
        log_id=_log_id(tags, trace_id if is_whole else f"{trace_id}-{span_id_of(spans[0])}"),
        trace={
            "_type": "trackio.trace",
            "messages": conversation_of(spans, root),
            "metadata": _metadata(spans, root, tags, trace_id, start),
            # With the root: the page takes a trajectory's duration from its spans.
            "spans": [_span(span, is_conversation=span is root) for span in _by_start(spans)],
        },
    )


def _log_id(tags: Mapping[str, Any], trace_id: str) -> str:
    """Return the id of a trajectory, `s12-r3-trace-…`: trackio's list shows its first seven letters and digits."""
    named = [(mark, tags.get(key)) for mark, key in (("s", semconv.SAMPLE_INDEX), ("r", semconv.ROLLOUT_N))]
    place = "".join(f"{mark}{value}-" for mark, value in named if type(value) is int and fits_int64(value))
    return f"{place}trace-{trace_id}" if place else trace_id


def _key(root: ReadableSpan | None) -> str:
    """Return the name of a trajectory's record, `agent_loop:0.5`.

    trackio's list shows the id's beginning, and the number after the name's last colon, only if there is a colon.
    """
    reward = None if root is None else reward_of(root)
    name = UNFINISHED if root is None else plain_text(root.name)
    return f"{name}:{'' if reward is None else f'{reward:.3g}'}"


def _tags(spans: Sequence[ReadableSpan]) -> dict[str, Any]:
    """Return the tags that any of the spans has; the last one counts."""
    return {
        key: value for span in spans for key in semconv.TAGS if (value := (span.attributes or {}).get(key)) is not None
    }


def _project(span: ReadableSpan) -> str:
    resource = span.resource.attributes if span.resource is not None else {}
    return plain_text(resource.get(semconv.PROJECT_NAME) or resource.get(semconv.SERVICE_NAME) or DEFAULT_PROJECT)


def _metadata(
    spans: Sequence[ReadableSpan], root: ReadableSpan | None, tags: Mapping[str, Any], trace_id: str, start: int
) -> dict[str, Any]:
    attributes: Mapping[str, Any] = {} if root is None else root.attributes or {}
    status = plain_text(attributes.get(semconv.STATUS) or (UNFINISHED if root is None else _status(root)))
    known = {**tags, **attributes}
    metadata: dict[str, Any] = {"status": _STATUSES.get(status, status)}
    # A span after the root is a row of its own.
    for part in [part for span in (spans if root is None else [root]) for part in reward_parts_of(span)]:
        name = part.name if part.name == REWARD else f"{REWARD}.{part.name}"
        metadata[name] = {"value": part.value, "explanation": part.explanation} if part.explanation else part.value
    metadata.update((_short(key), plain_value(known[key])) for key in _FIRST if key in known)
    metadata["duration_ms"] = (max(span.end_time or 0 for span in spans) - start) / 1e6
    if semconv.SESSION_ID in attributes:
        metadata["session_id"] = plain_text(attributes[semconv.SESSION_ID])
    metadata["trace_id"] = trace_id
    if root is not None:
        if error := _error(root):
            metadata["error"] = error
        metadata.update(_others(root))
    return metadata


def _by_start(spans: Sequence[ReadableSpan]) -> list[ReadableSpan]:
    # Reversed: of two with the same times, the outer one ended last.
    ordered = list(reversed(spans))
    ordered.sort(key=lambda span: (span.start_time or 0, -(span.end_time or 0)))
    return ordered


def _span(span: ReadableSpan, *, is_conversation: bool) -> dict[str, Any]:
    """Return the record of a span; if the span is the root, its messages and attributes are the conversation's."""
    attributes: Mapping[str, Any] = span.attributes or {}
    start = span.start_time or 0
    end = max(start, span.end_time or 0)
    record: dict[str, Any] = {
        "id": span_id_of(span),
        "name": plain_text(span.name),
        "kind": _KINDS.get(kind_of(span.attributes or {}) or "", "span"),
        "start_time": _time(start),
        "end_time": _time(end),
        "duration_ms": (end - start) / 1e6,
        "status": _status(span),
        "input": input_of(span, with_messages=not is_conversation),
        "output": output_of(span, with_messages=not is_conversation),
    }
    if span.parent is not None:
        record["parent_id"] = f"{span.parent.span_id:016x}"
    if error := _error(span):
        record["error"] = error
    model = attributes.get(semconv.RESPONSE_MODEL) or attributes.get(semconv.REQUEST_MODEL)
    if model:
        record["model"] = plain_text(model)
    usage = {
        name: attributes[key]
        for name, key in (("input_tokens", semconv.USAGE_INPUT_TOKENS), ("output_tokens", semconv.USAGE_OUTPUT_TOKENS))
        if type(attributes.get(key)) is int
    }
    if usage:
        record["usage"] = usage
    others = {} if is_conversation else _others(span)
    for key in (semconv.RESPONSE_MODEL, semconv.REQUEST_MODEL):
        if key in others and others[key] == record.get("model"):
            del others[key]
    if others:
        record["metadata"] = others
    return record


def _status(span: ReadableSpan) -> str:
    return "error" if span.status.status_code is StatusCode.ERROR else "success"


def _error(span: ReadableSpan) -> str | None:
    """Return the exception of a failed span, with its traceback; None if the span did not fail."""
    if span.status.status_code is not StatusCode.ERROR:
        return None
    found = exception_attributes(span)
    if semconv.EXCEPTION_STACKTRACE in found:
        return plain_text(found[semconv.EXCEPTION_STACKTRACE]).rstrip()
    parts = [found.get(semconv.EXCEPTION_TYPE), found.get(semconv.EXCEPTION_MESSAGE) or span.status.description]
    return ": ".join(plain_text(part) for part in parts if part) or "failed"


def _others(span: ReadableSpan) -> dict[str, Any]:
    """Return the attributes and events that have no field of their own."""
    attributes: Mapping[str, Any] = span.attributes or {}
    others = {_short(key): plain_value(value) for key, value in attributes.items() if key not in _ELSEWHERE}
    events = [_event(event) for event in span.events if event.name != semconv.EXCEPTION_EVENT]
    return {**others, "events": events} if events else others


def _event(event: Event) -> dict[str, Any]:
    attributes = {_short(key): plain_value(value) for key, value in (event.attributes or {}).items()}
    return {"name": plain_text(event.name), "time": _time(event.timestamp), **attributes}


def _short(key: str) -> str:
    return replace_surrogates(str(key).removeprefix("rollout."))


def _time(nanoseconds: int) -> str:
    # A program may give a span any time; what is beyond a date's range must not cost the trajectory.
    return datetime.fromtimestamp(min(max(0, nanoseconds), _LAST_TIME) / 1e9, timezone.utc).isoformat()


def conversation_of(spans: Sequence[ReadableSpan], root: ReadableSpan | None) -> list[dict[str, Any]]:
    """Return the messages of a trajectory: the root's, else its last LLM op's, else the root's input and output."""
    turns = [span for span in spans if kind_of(span.attributes or {}) == "LLM"]
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
