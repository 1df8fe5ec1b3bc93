"""Translates a span to the record of a Weave call: pure functions.

Source of the record: https://docs.wandb.ai/weave/reference/service-api/calls/calls-complete
"""

from __future__ import annotations

import re
import time
from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

import orjson
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.trace import StatusCode

from otel_rollout import semconv
from otel_rollout.export.span_facts import reward_of, span_id_of, trace_id_of
from otel_rollout.values.sanitize import INT64_MAX, fits_int64, replace_surrogates
from otel_rollout_weave.payload_text import as_inputs, as_output, is_json_of_ours

__all__ = ["NONE_BELOW", "StatusCounts", "call_of_span", "exception_of_span"]

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
    }
)
"""Attributes that a call has fields for."""

_PREFIX: Final = "rollout."
_CLASHES: Final = "other_attributes"
"""The key for attributes whose name is taken: by a tag, or by an attribute that is a dotted prefix of it."""

_WEAVE_KINDS: Final = {"AGENT": "agent", "LLM": "llm", "TOOL": "tool", "EVALUATOR": "scorer"}

_FRAME = re.compile(r'^  File "(?P<filename>.*)", line (?P<line>\d+), in (?P<function>.*)\n?(?P<text>    \S.*)?', re.M)


class StatusCounts(NamedTuple):
    """How many calls succeeded and how many failed."""

    success: int
    error: int

    def with_call(self, span: ReadableSpan) -> StatusCounts:
        """Return the counts with the call of `span` added."""
        failed = span.status.status_code is StatusCode.ERROR
        return StatusCounts(self.success + (not failed), self.error + failed)


NONE_BELOW: Final = StatusCounts(0, 0)


def call_of_span(
    span: ReadableSpan,
    *,
    project_id: str,
    op_name: str,
    run_id: str | None = None,
    below: StatusCounts = NONE_BELOW,
    ids_as_text: bool = False,
) -> dict[str, Any]:
    """Return the record of a call for `calls/complete`, with its payload as fragments of JSON.

    Args:
        span: A finished span.
        project_id: `entity/project`.
        op_name: The reference of the op, or a plain name of at most 128 characters.
        run_id: `entity/project/run` of the call's W&B run.
        below: The status counts of the calls below this one.
        ids_as_text: Send each list of token ids as one text.
    """
    attributes: Mapping[str, Any] = span.attributes or {}
    parent = span.parent
    own_id = span_id_of(span)
    scope = span.instrumentation_scope
    scope_name = scope.name if scope is not None else ""
    is_ours = is_json_of_ours(semconv.JSON_MIME_TYPE, scope_name)
    reward = reward_of(span)
    conversation = _text(attributes[semconv.CONVERSATION_ID]) if semconv.CONVERSATION_ID in attributes else None
    step = attributes.get(semconv.STEP)
    start = span.start_time or 0
    return {
        "project_id": project_id,
        "id": own_id,
        "trace_id": f"{trace_id_of(span):032x}",
        "parent_id": f"{parent.span_id:016x}" if parent is not None else None,
        "op_name": op_name,
        "display_name": _display_name(span, attributes, op_name),
        "started_at": _timestamp(start),
        "ended_at": _timestamp(max(start, span.end_time or 0)),
        "attributes": _call_attributes(span, attributes, is_ours=is_ours),
        "inputs": orjson.Fragment(
            as_inputs(
                _payload(attributes, semconv.INPUT_VALUE),
                is_trusted=is_json_of_ours(attributes.get(semconv.INPUT_MIME_TYPE), scope_name),
                with_ids_as_text=ids_as_text,
            )
        ),
        "output": orjson.Fragment(
            as_output(
                _payload(attributes, semconv.OUTPUT_VALUE),
                is_trusted=is_json_of_ours(attributes.get(semconv.OUTPUT_MIME_TYPE), scope_name),
                with_ids_as_text=ids_as_text,
                reward=reward,
            )
        ),
        "summary": _summary(span, attributes, below),
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


def _payload(attributes: Mapping[str, Any], key: str) -> str | None:
    value = attributes.get(key)
    return value if value is None or isinstance(value, str) else str(value)


def _display_name(span: ReadableSpan, attributes: Mapping[str, Any], op_name: str) -> str | None:
    name = replace_surrogates(span.name)
    known: list[str] = []
    if span.parent is None:
        parts = [("step", semconv.STEP), ("sample", semconv.SAMPLE_INDEX), ("rollout", semconv.ROLLOUT_N)]
        known = [f"{label} {_text(attributes[key])}" for label, key in parts if key in attributes]
        if attributes.get(semconv.VALIDATE) is True:
            known.insert(0, "validate")
    if not known and (op_name == name or f"/op/{name}:" in op_name):
        return None
    name = " · ".join([name, *known])
    return name if len(name) <= MAX_DISPLAY_NAME else name[: MAX_DISPLAY_NAME - 1] + "…"


def _call_attributes(span: ReadableSpan, attributes: Mapping[str, Any], *, is_ours: bool) -> dict[str, Any]:
    result: dict[str, Any] = {}
    others: list[tuple[str, Any]] = []
    for key, value in attributes.items():
        if key in _ELSEWHERE or (is_ours and key == semconv.METADATA):
            continue
        if key.startswith(_PREFIX):
            result[replace_surrogates(key[len(_PREFIX) :])] = _plain(value)
        else:
            others.append((replace_surrogates(key), value))
    kind = attributes.get(semconv.SPAN_KIND)
    if kind is not None:
        result["kind"] = _text(kind)
        if kind in _WEAVE_KINDS:
            result["weave"] = {"kind": _WEAVE_KINDS[kind]}
    run = span.resource.attributes.get(semconv.RUN_ID) if span.resource is not None else None
    if run is not None:
        result.setdefault("run_id", _text(run))
    for key, value in others:
        _nest(result, key, _plain(value))
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
        target.setdefault(_CLASHES, {})[key] = value


def _summary(span: ReadableSpan, attributes: Mapping[str, Any], below: StatusCounts) -> dict[str, Any]:
    summary: dict[str, Any] = {"status_counts": below.with_call(span)._asdict()}
    tokens_in = attributes.get(semconv.USAGE_INPUT_TOKENS)
    tokens_out = attributes.get(semconv.USAGE_OUTPUT_TOKENS)
    if type(tokens_in) is int or type(tokens_out) is int:
        usage = {"requests": 1}
        if type(tokens_in) is int:
            usage["prompt_tokens"] = tokens_in
        if type(tokens_out) is int:
            usage["completion_tokens"] = tokens_out
        usage["total_tokens"] = usage.get("prompt_tokens", 0) + usage.get("completion_tokens", 0)
        # Weave's own OTLP ingest calls an unknown model "usage".
        model = attributes.get(semconv.RESPONSE_MODEL) or attributes.get(semconv.REQUEST_MODEL) or "usage"
        summary["usage"] = {_text(model): usage}
    return summary


def exception_of_span(span: ReadableSpan) -> str | None:
    """Return the JSON text of a failed span's exception; None if the span did not fail."""
    if span.status.status_code is not StatusCode.ERROR:
        return None
    found: Mapping[str, Any] = {}
    for event in span.events:
        if event.name == semconv.EXCEPTION_EVENT:
            found = event.attributes or {}
    kind = found.get(semconv.EXCEPTION_TYPE) or (span.attributes or {}).get(semconv.ERROR_TYPE) or "Error"
    message = found.get(semconv.EXCEPTION_MESSAGE) or span.status.description or ""
    record: dict[str, Any] = {"type": _text(kind), "message": _text(message)}
    stacktrace = found.get(semconv.EXCEPTION_STACKTRACE)
    if stacktrace:
        record["traceback"] = _frames(_text(stacktrace))
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


def _text(value: object) -> str:
    return replace_surrogates(str(value))


def _plain(value: Any) -> Any:
    if value is None or isinstance(value, (bool, float)):
        return value
    if isinstance(value, int):
        return value if fits_int64(value) else str(value)
    if isinstance(value, bytes):
        return value.decode("utf-8", "replace")
    if isinstance(value, Mapping):
        return {_text(key): _plain(item) for key, item in value.items()}
    if isinstance(value, Sequence) and not isinstance(value, str):
        return [_plain(item) for item in value]
    return _text(value)
