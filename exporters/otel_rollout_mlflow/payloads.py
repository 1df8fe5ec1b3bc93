"""A span's inputs and outputs in the shapes that MLflow's pages draw: conversations, and words before token ids.

Measured on the pages of MLflow 3.17: an object with `messages` or `choices` is drawn as a conversation, and its other
fields below; a list of numbers takes a line for each, a long text three lines. The list of traces shows the text of
the last message of such an object, and any other value as JSON.
"""

from __future__ import annotations

import re
from typing import Any, Final

import orjson
from opentelemetry.sdk.trace import ReadableSpan

from otel_rollout import semconv
from otel_rollout.export.plain_values import plain_value
from otel_rollout.facts.span_facts import is_own, reward_of
from otel_rollout.messages import ChatMessages, answer_json, ids_as_text, is_message, request_json
from otel_rollout.text.sanitize import fits_int64, replace_surrogates
from otel_rollout_mlflow.json_text import JsonText, sanitize_json

INPUTS: Final = "mlflow.spanInputs"
OUTPUTS: Final = "mlflow.spanOutputs"

_PAYLOADS: Final = {
    INPUTS: (semconv.INPUT_VALUE, semconv.INPUT_MIME_TYPE),
    OUTPUTS: (semconv.OUTPUT_VALUE, semconv.OUTPUT_MIME_TYPE),
}
MAX_PREVIEW_CHARACTERS: Final = 1000
"""MLflow's column has room for so many."""
_FIRST_REWARD: Final = re.compile(r'^\{"reward": [^,}]*')
_REASONING: Final = "reasoning"
"""The only field that MLflow's pages read reasoning from; they ignore `reasoning_content`."""
_ROLES: Final = {INPUTS: "user", OUTPUTS: "assistant"}


def payload_of(span: ReadableSpan, side: str, chat: ChatMessages | None) -> JsonText | None:
    """Return the span's `INPUTS` or `OUTPUTS` as JSON text; None if it has none."""
    given = _given(span, side)
    messages = [] if chat is None else chat.input if side == INPUTS else chat.output
    is_root = span.parent is None
    reward, rollout_n = reward_of(span), (span.attributes or {}).get(semconv.ROLLOUT_N)
    if is_root and side == OUTPUTS and (reward is not None or (type(rollout_n) is int and is_own(span))):
        # In the list the columns of assessments and tags are beyond the right edge of most windows; the output isn't.
        is_text = given is not None and given.startswith('"')
        # A text that the program gave is the trajectory's output, whatever the model said last.
        answer = JsonText(_dumps(messages[-1].gist)) if messages and not is_text else given
        return _with_reward(reward, rollout_n, answer)
    if messages:
        make = request_json if side == INPUTS else answer_json
        return sanitize_json(make(messages, None if given is None else str(given), _REASONING), is_trusted=True)
    if given is None or not is_own(span):
        return given
    if given.startswith('"'):
        # MLflow's list shows a bare text with its quotes, a message without.
        return JsonText(f'{{"messages":[{{"role":"{_ROLES[side]}","content":{given}}}]}}') if is_root else given
    return _as_messages(given) if is_root or (span.attributes or {}).get(semconv.SPAN_KIND) == "LLM" else given


def _given(span: ReadableSpan, side: str) -> JsonText | None:
    """Return the payload as the span has it, with each long list of token ids as one text."""
    value_key, mime_key = _PAYLOADS[side]
    attributes = span.attributes or {}
    value = attributes.get(value_key)
    if value is None:
        return None
    if not isinstance(value, str):
        return JsonText(_dumps(plain_value(value)))
    if attributes.get(mime_key) not in (None, semconv.JSON_MIME_TYPE):
        return JsonText(_dumps(replace_surrogates(value)))
    text = sanitize_json(value, is_trusted=is_own(span))
    return JsonText(ids_as_text(text.encode()).decode()) if is_own(span) and text[:1] in "{[" else text


def _with_reward(reward: float | None, rollout_n: Any, answer: JsonText | None) -> JsonText | None:
    # With spaces: MLflow's list shows the text as it is.
    parts = [] if reward is None else [f'"reward": {_dumps(reward)}']
    if type(rollout_n) is int and fits_int64(rollout_n):
        parts.append(f'"rollout": {rollout_n}')
    first = ", ".join(parts)
    if not first:
        return answer
    if answer is None:
        return JsonText(f"{{{first}}}")
    if answer.startswith('{"') and '"reward":' not in answer and '"rollout":' not in answer:
        return JsonText(f"{{{first}, {answer[1:]}")
    return JsonText(f'{{{first}, "output": {answer}}}')


def preview_with_reward(preview: str | None, reward: float) -> str | None:
    """Return the list's text of a trajectory's output, cut by MLflow, with a reward that came after its end."""
    if preview is None:
        return None
    first = f'{{"reward": {_dumps(reward)}'
    if preview.startswith('{"reward": '):
        text = _FIRST_REWARD.sub(first, preview)
    elif preview.startswith('{"rollout": '):
        text = f"{first}, {preview[1:]}"
    else:
        text = f'{first}, "output": {_dumps(preview)}}}'
    return text if len(text) <= MAX_PREVIEW_CHARACTERS else f"{text[: MAX_PREVIEW_CHARACTERS - 3]}..."


def _as_messages(payload: JsonText) -> JsonText:
    """Return a message, or a list of messages, as an object with `messages`."""
    if payload[:1] not in "{[" or '"role":' not in payload:
        return payload
    value = orjson.loads(str(payload))
    items = value if isinstance(value, list) else [value]
    if not items or not all(is_message(item) and ("content" in item or "tool_calls" in item) for item in items):
        return payload
    return JsonText(f'{{"messages":{payload}}}' if isinstance(value, list) else f'{{"messages":[{payload}]}}')


def _dumps(value: Any) -> str:
    return orjson.dumps(value).decode()
