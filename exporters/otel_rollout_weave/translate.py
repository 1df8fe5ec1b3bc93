"""Translates a span to the record of a Weave call: pure functions.

Source of the record: https://docs.wandb.ai/weave/reference/service-api/calls/calls-complete
"""

from __future__ import annotations

import re
import time
from collections.abc import Mapping, Sequence
from typing import Any, Final

import orjson
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.trace import StatusCode

from otel_rollout import semconv
from otel_rollout.export.plain_values import plain_text, plain_value
from otel_rollout.facts.span_facts import (
    exception_attributes,
    kind_of,
    reward_of,
    rollout_label,
    span_id_of,
    trace_id_of,
)
from otel_rollout.messages import Message, answer_json, chat_messages, ids_as_text, request_json
from otel_rollout.text.sanitize import INT64_MAX, replace_surrogates
from otel_rollout_weave.usage import Below

MAX_DISPLAY_NAME: Final = 1024
"""Weave refuses the whole batch (400) for a longer display name."""

_ELSEWHERE: Final = frozenset(
    {
        semconv.INPUT_VALUE,
        semconv.INPUT_MIME_TYPE,
        semconv.OUTPUT_VALUE,
        semconv.OUTPUT_MIME_TYPE,
        semconv.USAGE_INPUT_TOKENS,
        semconv.USAGE_OUTPUT_TOKENS,
        semconv.CONVERSATION_ID,
        semconv.SPAN_KIND,
        semconv.TOOL_CALL_ARGUMENTS,
        semconv.TOOL_CALL_RESULT,
    }
)
"""Attributes that a call has fields for."""

_MESSAGES: Final = frozenset({semconv.INPUT_MESSAGES, semconv.OUTPUT_MESSAGES})
"""Attributes that the inputs and the output hold in the form that Weave draws."""

_PREFIX: Final = "rollout."

_WEAVE_KINDS: Final = {"AGENT": "agent", "LLM": "llm", "TOOL": "tool", "EVALUATOR": "scorer"}

_FRAME = re.compile(r'^  File "(?P<filename>.*)", line (?P<line>\d+), in (?P<function>.*)\n?(?P<text>    \S.*)?', re.M)


def call_of_span(
    span: ReadableSpan,
    *,
    project_id: str,
    op_name: str,
    run_id: str | None = None,
    below: Below | None = None,
    ids_as_text: bool = False,
) -> dict[str, Any]:
    """Return the record of a call for `calls/complete`, with its payload as fragments of JSON.

    Args:
        span: A finished span.
        project_id: `entity/project`.
        op_name: The reference of the op, or a plain name of at most 128 characters.
        run_id: `entity/project/run` of the call's W&B run.
        below: The facts of the calls below this one.
        ids_as_text: Send each list of token ids as one text.
    """
    attributes: Mapping[str, Any] = span.attributes or {}
    parent = span.parent
    own_id = span_id_of(span)
    scope = span.instrumentation_scope
    scope_name = scope.name if scope is not None else ""
    is_ours = is_json_of_ours(semconv.JSON_MIME_TYPE, scope_name)
    chat = chat_messages(span.attributes)
    reward = reward_of(span)
    conversation = plain_text(attributes[semconv.CONVERSATION_ID]) if semconv.CONVERSATION_ID in attributes else None
    step = attributes.get(semconv.STEP)
    start = span.start_time or 0
    return {
        "project_id": project_id,
        "id": own_id,
        "trace_id": f"{trace_id_of(span):032x}",
        "parent_id": f"{parent.span_id:016x}" if parent is not None else None,
        "op_name": op_name,
        "display_name": _display_name(span, op_name),
        "started_at": _timestamp(start),
        "ended_at": _timestamp(max(start, span.end_time or 0)),
        "attributes": _call_attributes(
            span, attributes, is_ours=is_ours, elsewhere=_ELSEWHERE if chat is None else _ELSEWHERE | _MESSAGES
        ),
        "inputs": orjson.Fragment(
            as_inputs(
                _payload(attributes, semconv.INPUT_VALUE, semconv.TOOL_CALL_ARGUMENTS),
                is_trusted=is_json_of_ours(attributes.get(semconv.INPUT_MIME_TYPE), scope_name),
                is_text=_is_text(attributes.get(semconv.INPUT_MIME_TYPE)),
                with_ids_as_text=ids_as_text,
                messages=() if chat is None else chat.input,
            )
        ),
        "output": orjson.Fragment(
            as_output(
                _payload(attributes, semconv.OUTPUT_VALUE, semconv.TOOL_CALL_RESULT),
                is_trusted=is_json_of_ours(attributes.get(semconv.OUTPUT_MIME_TYPE), scope_name),
                is_text=_is_text(attributes.get(semconv.OUTPUT_MIME_TYPE)),
                with_ids_as_text=ids_as_text,
                reward=reward,
                messages=() if chat is None else chat.output,
            )
        ),
        "summary": _summary(span, below),
        "exception": exception_of_span(span),
        "thread_id": conversation,
        "turn_id": own_id if conversation else None,
        "wb_run_id": run_id,
        # The column is unsigned: -1, which trainers use for "no step", would have the whole batch refused.
        "wb_run_step": step if run_id and type(step) is int and 0 <= step <= INT64_MAX else None,
    }


def _timestamp(nanoseconds: int) -> str:
    # The server keys rows by this value: a microsecond of difference makes a second call.
    seconds, rest = divmod(nanoseconds, 10**9)
    return f"{time.strftime('%Y-%m-%dT%H:%M:%S', time.gmtime(seconds))}.{rest // 1000:06d}Z"


def _payload(attributes: Mapping[str, Any], *keys: str) -> str | None:
    """Return the first payload that is there."""
    value = next((attributes[key] for key in keys if attributes.get(key) is not None), None)
    return value if value is None or isinstance(value, str) else str(value)


def _display_name(span: ReadableSpan, op_name: str) -> str | None:
    name = replace_surrogates(span.name)
    label = rollout_label(span) if span.parent is None else ""
    if not label and (op_name == name or f"/op/{name}:" in op_name):
        return None
    # Weave's list cuts the end off: what differs comes first.
    name = " · ".join(part for part in (label, name) if part)
    return name if len(name) <= MAX_DISPLAY_NAME else name[: MAX_DISPLAY_NAME - 1] + "…"


def _call_attributes(
    span: ReadableSpan, attributes: Mapping[str, Any], *, is_ours: bool, elsewhere: frozenset[str]
) -> dict[str, Any]:
    result: dict[str, Any] = {}
    others: list[tuple[str, Any]] = []
    for key, value in attributes.items():
        if key in elsewhere or (is_ours and key == semconv.METADATA):
            continue
        if key.startswith(_PREFIX):
            result[replace_surrogates(key[len(_PREFIX) :])] = plain_value(value)
        else:
            others.append((replace_surrogates(key), value))
    kind = kind_of(span.attributes or {})
    if kind is not None:
        result["kind"] = kind
        if kind in _WEAVE_KINDS:
            result["weave"] = {"kind": _WEAVE_KINDS[kind]}
    run = span.resource.attributes.get(semconv.RUN_ID) if span.resource is not None else None
    if run is not None:
        result.setdefault("run_id", plain_text(run))
    for key, value in others:
        _nest(result, key, plain_value(value))
    return result


def _nest(target: dict[str, Any], key: str, value: Any) -> None:
    # Weave's filters read a dotted path as nested objects; no filter can name a key with a dot.
    here: Any = target
    *path, last = key.split(".")
    for part in path:
        here = here.setdefault(part, {})
        if not isinstance(here, dict):
            break
    if isinstance(here, dict) and last not in here:
        here[last] = value
    else:
        # The name is taken: by a tag, or by an attribute that is a dotted prefix of it.
        target.setdefault("other_attributes", {})[key] = value


def _summary(span: ReadableSpan, below: Below | None) -> dict[str, Any]:
    own = Below()
    own.add(span)
    inner = below or Below()
    summary: dict[str, Any] = {
        "status_counts": {"success": own.success + inner.success, "error": own.error + inner.error}
    }
    # A call of a model has the tokens of the calls below it already.
    usage = own.usage() or inner.usage()
    if usage:
        summary["usage"] = usage
    return summary


def exception_of_span(span: ReadableSpan) -> str | None:
    """Return the JSON text of a failed span's exception; None if the span did not fail."""
    if span.status.status_code is not StatusCode.ERROR:
        return None
    found = exception_attributes(span)
    kind = found.get(semconv.EXCEPTION_TYPE) or (span.attributes or {}).get(semconv.ERROR_TYPE) or "Error"
    message = found.get(semconv.EXCEPTION_MESSAGE) or span.status.description or ""
    record: dict[str, Any] = {"type": plain_text(kind), "message": plain_text(message)}
    stacktrace = found.get(semconv.EXCEPTION_STACKTRACE)
    if stacktrace:
        record["traceback"] = _frames(plain_text(stacktrace))
    return orjson.dumps(record).decode()


def _frames(stacktrace: str) -> list[dict[str, Any]]:
    return [
        {
            "filename": frame["filename"],
            "line_number": int(frame["line"]),
            "function_name": frame["function"],
            "text": (frame["text"] or "").strip(),
        }
        for frame in _FRAME.finditer(stacktrace)
    ]


def as_inputs(
    text: str | None,
    *,
    is_trusted: bool,
    is_text: bool = False,
    with_ids_as_text: bool = False,
    messages: Sequence[Message] = (),
) -> bytes:
    """Return a span's input as a JSON object; Weave refuses a batch with other inputs.

    Args:
        text: The input attribute: JSON, or any text of another instrumentation.
        is_trusted: The text is known to be JSON.
        is_text: The text is known to be none, whatever it looks like.
        with_ids_as_text: Replace each list of token ids by one text.
        messages: The messages on the span, which Weave draws as a conversation.
    """
    value = None if text is None else _as_json(text, is_trusted, is_text, with_ids_as_text)
    if messages:
        return request_json(messages, None if value is None else value.decode()).encode()
    if value is None:
        return b"{}"
    return value if value.startswith(b"{") else b'{"input":' + value + b"}"


def as_output(
    text: str | None,
    *,
    is_trusted: bool,
    is_text: bool = False,
    with_ids_as_text: bool = False,
    reward: float | None = None,
    messages: Sequence[Message] = (),
) -> bytes:
    """Return a span's output as JSON.

    Args:
        text: The output attribute: JSON, or any text of another instrumentation.
        is_trusted: The text is known to be JSON.
        is_text: The text is known to be none, whatever it looks like.
        with_ids_as_text: Replace each list of token ids by one text.
        reward: Added as the key `reward`; an output that is no object becomes the key `output` next to it.
        messages: The model's answers, which Weave draws as a conversation.
    """
    value = b"null" if text is None else _as_json(text, is_trusted, is_text, with_ids_as_text)
    if messages:
        value = answer_json(messages, value.decode()).encode()
    if reward is None:
        return value
    number = orjson.dumps(reward)
    if value == b"null":
        return b'{"reward":' + number + b"}"
    if not value.startswith(b"{"):
        return b'{"output":' + value + b',"reward":' + number + b"}"
    body = value.rstrip()[:-1]
    separator = b"" if body.strip() == b"{" else b","
    return body + separator + b'"reward":' + number + b"}"


def is_json_of_ours(mime_type: object, scope_name: str) -> bool:
    """Return True if otel-rollout wrote a payload, which is valid JSON then."""
    return mime_type == semconv.JSON_MIME_TYPE and scope_name.replace("-", "_").partition(".")[0] == "otel_rollout"


def _is_text(mime_type: object) -> bool:
    return mime_type is not None and mime_type != semconv.JSON_MIME_TYPE


def _as_json(text: str, is_trusted: bool, is_text: bool, with_ids_as_text: bool) -> bytes:
    payload = text.encode("utf-8", "replace")
    if is_text or (not is_trusted and not _is_json(payload)):
        return orjson.dumps(payload.decode())
    return ids_as_text(payload) if with_ids_as_text else payload


def _is_json(payload: bytes) -> bool:
    # One invalid payload has the whole batch refused. Only an object or a list counts as JSON: a text that is a JSON
    # number by chance is a text.
    if payload[:1] not in (b"{", b"["):
        return False
    try:
        orjson.loads(payload)
    except orjson.JSONDecodeError:
        return False
    return True
