"""Attributes and events for OTLP backends that only read OpenTelemetry's GenAI conventions, besides a span's own.

Source: https://github.com/open-telemetry/semantic-conventions-genai, `gen_ai.evaluation.result` and `execute_tool`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from opentelemetry.sdk.trace import Event, ReadableSpan

from otel_rollout import semconv
from otel_rollout.facts.reward_parts import RewardPart, reward_parts_of
from otel_rollout.facts.span_facts import trace_id_of
from otel_rollout.finish.payload_limits import cut_json
from otel_rollout.text.plain_text import cut_text
from otel_rollout.text.sanitize import replace_surrogates


def additions_of(span: ReadableSpan) -> tuple[dict[str, str], list[Event]]:
    """Return the attributes of a tool call, and the events of a reward and its parts, that a span does not have yet."""
    attributes = span.attributes or {}
    is_tool = attributes.get(semconv.OPERATION_NAME) == semconv.OPERATION_NAMES["TOOL"]
    return tool_call_attributes(attributes) if is_tool else {}, _evaluation_events(span)


def _evaluation_events(span: ReadableSpan) -> list[Event]:
    """Return one event for the reward on a span and one for each of its parts, its advantage and fate, at its end.

    A part that has its event already, from the sender of a span that is passed on, gets no second one.
    """
    known = {
        (event.attributes or {}).get(semconv.EVALUATION_NAME)
        for event in span.events
        if event.name == semconv.EVALUATION_EVENT
    }
    parts = [part for part in reward_parts_of(span) if part.name not in known]
    return [Event(semconv.EVALUATION_EVENT, _attributes(span, part), span.end_time) for part in parts]


def _attributes(span: ReadableSpan, part: RewardPart) -> dict[str, Any]:
    attributes: dict[str, Any] = {
        semconv.EVALUATION_NAME: part.name,
        semconv.EVALUATION_ID: f"{trace_id_of(span):032x}/{part.name}",
    }
    score, label = part.score_and_label
    if score is not None:
        attributes[semconv.EVALUATION_VALUE] = score
    if label is not None:
        attributes[semconv.EVALUATION_LABEL] = label
    if part.explanation:
        attributes[semconv.EVALUATION_EXPLANATION] = part.explanation
    return attributes


MAX_TEXT_CHARACTERS: Final = 64 * 1024
"""A longer payload is whole in `input.value` and `output.value` alone: requests must not double in size."""
_SIDES: Final = (
    (semconv.TOOL_CALL_ARGUMENTS, semconv.INPUT_VALUE, semconv.INPUT_MIME_TYPE),
    (semconv.TOOL_CALL_RESULT, semconv.OUTPUT_VALUE, semconv.OUTPUT_MIME_TYPE),
)


def tool_call_attributes(attributes: Mapping[str, Any]) -> dict[str, str]:
    """Return the arguments and the result of a tool's call, from its finished payload; without those that it has."""
    found: dict[str, str] = {}
    for key, payload_key, mime_key in _SIDES:
        payload = attributes.get(payload_key)
        if not isinstance(payload, str) or key in attributes:
            continue
        if len(payload) > MAX_TEXT_CHARACTERS:
            if attributes.get(mime_key) == semconv.JSON_MIME_TYPE:
                payload = cut_json(payload.encode("utf-8", "replace"), MAX_TEXT_CHARACTERS).decode()
            else:
                payload = cut_text(replace_surrogates(payload), MAX_TEXT_CHARACTERS)
        found[key] = payload
    return found
