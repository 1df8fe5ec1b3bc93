"""A reward and its parts as events of OpenTelemetry's GenAI conventions, for backends that have no API for them.

Source: https://github.com/open-telemetry/semantic-conventions-genai, `gen_ai.evaluation.result`.
"""

from __future__ import annotations

from typing import Any

from opentelemetry.sdk.trace import Event, ReadableSpan

from otel_rollout import semconv
from otel_rollout.export.reward_parts import RewardPart, reward_parts
from otel_rollout.export.span_facts import trace_id_of

__all__ = ["evaluation_events"]


def evaluation_events(span: ReadableSpan) -> list[Event]:
    """Return one event for the reward on a span and one for each of its parts, its advantage and fate, at its end.

    A part that has its event already, from the sender of a span that is passed on, gets no second one.
    """
    known = {
        (event.attributes or {}).get(semconv.EVALUATION_NAME)
        for event in span.events
        if event.name == semconv.EVALUATION_EVENT
    }
    parts = [part for part in reward_parts(span) if part.name not in known]
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
